//! The OpenAPI document: it is up to date and describes the required operations, statuses, headers and schemas.

use lookup_svc::api;
use lookup_svc::config::Config;
use lookup_svc::public_urls::PublicUrls;
use quota_client::wire::Limits;
use serde_json::{Value, json};
use service_kit::openapi::OpenApiDocument;

const COMMITTED: &str = include_str!("../../../../openapi/lookup-svc.json");

fn document() -> Value {
    serde_json::from_str(COMMITTED).unwrap()
}

fn default_document() -> OpenApiDocument {
    document_with(false)
}

fn document_with(ietf: bool) -> OpenApiDocument {
    let urls = PublicUrls::new(&Config::default());
    api::document(&urls.base, &urls, None, ietf)
}

#[test]
fn committed_document_is_up_to_date() {
    assert!(
        default_document().json() == COMMITTED,
        "openapi/lookup-svc.json is stale: run `cargo run -p lookup-svc -- openapi > openapi/lookup-svc.json`"
    );
}

#[test]
fn document_has_version_server_and_both_key_schemes() {
    let document = document();
    assert_eq!(document["info"]["version"], "1.1.0");
    assert_eq!(document["servers"], json!([{"url": "http://localhost:8080"}]));
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!(
        (&schemes["bearer"]["type"], &schemes["bearer"]["scheme"]),
        (&json!("http"), &json!("bearer"))
    );
    let key = &schemes["key"];
    assert_eq!((&key["type"], &key["in"], &key["name"]), (&json!("apiKey"), &json!("query"), &json!("key")));
    let security = &document["paths"]["/api/v1/ip"]["get"]["security"];
    assert_eq!(*security, json!([{"bearer": []}, {"key": []}]), "one of the two schemes is enough");
    for (path, method) in
        [("/api/v1/ip", "options"), ("/api/v1/ip/demo", "get"), ("/api/v1/ip/demo", "options")]
    {
        assert_eq!(document["paths"][path][method]["security"], json!([]), "{method} {path} needs no key");
    }
}

#[test]
fn four_operations_have_their_statuses_and_headers() {
    let document = document();
    let id = "X-Request-Id";
    let rate_limit = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", id];
    let denied = ["Retry-After", rate_limit[0], "X-RateLimit-Reason", rate_limit[1], rate_limit[2], id];
    let none: [&str; 0] = [];
    /// Path, method, operation ID, and the statuses with the names of their headers.
    type Operation<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a [&'a str])]);
    let expected: [Operation; 4] = [
        (
            "/api/v1/ip",
            "get",
            "get_ip",
            &[
                ("200", &rate_limit),
                ("400", &[id]),
                ("401", &["WWW-Authenticate", id]),
                ("403", &["X-Key-Reason", id]),
                ("429", &denied),
                ("500", &[id]),
            ],
        ),
        ("/api/v1/ip", "options", "preflight_ip", &[("204", &none)]),
        ("/api/v1/ip/demo", "get", "get_demo", &[("200", &rate_limit), ("429", &denied), ("500", &[id])]),
        ("/api/v1/ip/demo", "options", "preflight_demo", &[("204", &none)]),
    ];
    let operations =
        document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len());
    assert_eq!(operations.sum::<usize>(), expected.len(), "no other operations");
    for (path, method, id, responses) in expected {
        let operation = &document["paths"][path][method];
        assert_eq!(operation["operationId"], id);
        let documented = operation["responses"].as_object().unwrap();
        assert_eq!(documented.len(), responses.len(), "{id}");
        for (status, names) in responses {
            check_response(&documented[*status], status, names);
        }
    }
}

fn check_response(response: &Value, status: &str, names: &[&str]) {
    let headers = response["headers"].as_object();
    let mut documented: Vec<_> =
        headers.iter().flat_map(|headers| headers.keys()).map(String::as_str).collect();
    documented.sort_unstable();
    assert_eq!(documented, names, "{status}");
    for (name, header) in headers.iter().flat_map(|headers| headers.iter()) {
        let is_reason = name.ends_with("-Reason");
        let is_text = is_reason || ["X-Request-Id", "WWW-Authenticate"].contains(&name.as_str());
        assert_eq!(header["schema"]["type"], if is_text { "string" } else { "integer" });
        assert_eq!(header["required"] == json!(true), !is_text);
        if is_reason {
            let reasons = match status {
                "403" => json!(["deactivated", "expired", "origin", "suspended"]),
                _ => json!(["burst", "paused", "daily", "demo"]),
            };
            assert_eq!(header["schema"]["enum"], reasons);
        }
    }
    let schema = &response["content"]["application/json"]["schema"]["$ref"];
    let expected = match status {
        "204" => Value::Null,
        "200" => json!("#/components/schemas/IpResponse"),
        _ => json!("#/components/schemas/ErrorResponse"),
    };
    assert_eq!(*schema, expected, "{status}");
}

#[test]
fn parameters_are_optional_and_scope_is_an_enum() {
    let document = document();
    let parameters = document["paths"]["/api/v1/ip"]["get"]["parameters"].as_array().unwrap();
    let names: Vec<_> = parameters.iter().map(|parameter| &parameter["name"]).collect();
    assert_eq!(names, ["key", "scope"]);
    for parameter in parameters {
        assert_eq!((&parameter["in"], &parameter["required"]), (&json!("query"), &json!(false)));
        assert_eq!(parameter["allowEmptyValue"], true, "an empty value counts as absent");
    }
    assert_eq!(parameters[1]["schema"], json!({"type": "string", "enum": ["ip", "geo", "full"]}));
    assert_eq!(document["paths"]["/api/v1/ip/demo"]["get"]["parameters"], Value::Null);
}

#[test]
fn schemas_have_the_specified_fields() {
    let document = document();
    let success = &document["components"]["schemas"]["IpResponse"];
    assert_eq!(success["required"], json!(["status"]));
    let fields = success["properties"].as_object().unwrap();
    assert_eq!(fields.len(), 26);
    for (name, field) in fields {
        assert_eq!(field["nullable"] == json!(true), name != "status", "{name}");
    }
    assert_eq!(fields["status"]["enum"], json!(["success"]));
    for (name, ty) in [("latitude", "number"), ("asn", "integer"), ("rtt", "integer"), ("proxy", "boolean")] {
        assert_eq!(fields[name]["type"], ty);
    }
    let error = &document["components"]["schemas"]["ErrorResponse"];
    assert_eq!(error["required"], json!(["error", "message", "docs"]));
    let mut names: Vec<_> = error["properties"].as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["docs", "enterprise", "error", "message", "signup"]);
}

/// The values of a response's examples, by name.
fn examples(path: &str, status: &str) -> serde_json::Map<String, Value> {
    let document = document();
    let response = &document["paths"][path]["get"]["responses"][status];
    let names = response["content"]["application/json"]["examples"].as_object().unwrap().keys();
    let value = |name: &String| document["components"]["examples"][name]["value"].clone();
    names.map(|name| (name.clone(), value(name))).collect()
}

#[test]
fn examples_have_the_fields_that_a_response_has() {
    let fields = |example: &Value| example.as_object().unwrap().len();
    let lookup = examples("/api/v1/ip", "200");
    assert_eq!(["ip", "geo", "full"].map(|scope| fields(&lookup[scope])), [3, 19, 26]);
    let demo = examples("/api/v1/ip/demo", "200");
    assert_eq!(demo.keys().collect::<Vec<_>>(), ["demo"]);
    assert_eq!(fields(&demo["demo"]), 23);
    for absent in ["tls_cipher", "proxy", "hosting"] {
        assert_eq!(demo["demo"].get(absent), None, "{absent}");
    }
}

#[test]
fn every_error_response_has_real_examples() {
    let expected: [(&str, &str, &[&str]); 7] = [
        ("/api/v1/ip", "400", &["invalid_scope"]),
        ("/api/v1/ip", "401", &["missing_api_key", "invalid_api_key"]),
        ("/api/v1/ip", "403", &["inactive_api_key"; 4]),
        ("/api/v1/ip", "429", &["rate_limit_exceeded", "rate_limit_exceeded"]),
        ("/api/v1/ip", "500", &["internal_error"]),
        ("/api/v1/ip/demo", "429", &["rate_limit_exceeded"]),
        ("/api/v1/ip/demo", "500", &["internal_error"]),
    ];
    for (path, status, codes) in expected {
        let mut shown: Vec<_> = examples(path, status)
            .values()
            .map(|example| {
                assert_eq!(
                    example["docs"],
                    format!("http://localhost:8080/docs#{}", example["error"].as_str().unwrap())
                );
                example["error"].as_str().unwrap().to_owned()
            })
            .collect();
        let mut codes = codes.to_vec();
        shown.sort();
        codes.sort();
        assert_eq!(shown, codes, "{path} {status}");
    }
    assert!(examples("/api/v1/ip", "429")["daily_quota_used_up"]["enterprise"].is_string());
    assert!(examples("/api/v1/ip/demo", "429")["demo_quota_used_up"]["signup"].is_string());
}

#[test]
fn known_limits_are_in_the_description_and_the_examples() {
    let urls = PublicUrls::new(&Config::default());
    let limits = Limits { daily: 2_500, burst: 40, demo: 70 };
    let document = api::document(&urls.base, &urls, Some(limits), false).json();
    assert!(document.contains("Limits of this service: 2,500 requests per day and key"), "{document}");
    for text in ["daily quota of 2500 requests", "burst limit of 40 requests", "daily quota of 70 requests"] {
        assert!(document.contains(text), "{text}");
    }
    assert!(default_document().json().contains("`X-RateLimit-Limit` shows the limit that applies."));
}

#[test]
fn headers_of_the_draft_are_optional() {
    let contract = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];
    let draft = ["RateLimit", "RateLimit-Policy"];
    let document: Value = serde_json::from_str(&document_with(true).json()).unwrap();
    for path in ["/api/v1/ip", "/api/v1/ip/demo"] {
        let responses = &document["paths"][path]["get"]["responses"];
        let names = |status: &str, required: bool| -> Vec<&str> {
            let headers = responses[status]["headers"].as_object().unwrap().iter();
            let mut names: Vec<_> = headers
                .filter(|(_, header)| (header["required"] == json!(true)) == required)
                .map(|(name, _)| name.as_str())
                .collect();
            names.sort_unstable();
            names
        };
        let id = ["X-Request-Id"];
        assert_eq!(
            (names("200", true), names("200", false)),
            (contract.to_vec(), [draft.as_slice(), &id].concat())
        );
        assert_eq!(names("429", true), [&["Retry-After"], contract.as_slice()].concat(), "{path}");
        assert_eq!(names("429", false), [draft.as_slice(), &["X-RateLimit-Reason"], &id].concat(), "{path}");
        for name in draft {
            assert_eq!(responses["429"]["headers"][name]["schema"]["type"], "string", "{name}");
        }
        assert_eq!(names("500", false), id);
    }
}
