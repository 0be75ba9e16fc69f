//! The contract of API version 1.1.0: paths, parameters, fields, statuses and headers of the OpenAPI document do not change.

use lookup_svc::api;
use lookup_svc::config::Config;
use lookup_svc::public_urls::PublicUrls;
use serde_json::{Map, Value};

/// The document of the commit c90440e.
const CONTRACT: &str = include_str!("../../data/contract-1.1.0.json");

/// The keys whose values may change: texts, examples, the contact, and `security` of operations without a key.
fn may_change(key: &str, value: &Value) -> bool {
    match key {
        "description" | "summary" => value.is_string(),
        "example" | "examples" | "contact" => true,
        "security" => value.as_array().is_some_and(Vec::is_empty),
        _ => false,
    }
}

/// The part of a document that must not change.
fn contract(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, value)| !may_change(key, value));
            Value::Object(kept.map(|(key, value)| (key.clone(), contract(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(contract).collect()),
        other => other.clone(),
    }
}

/// Removes the optional headers of `responses` that the contract does not have: a response may have more headers.
fn remove_new_headers(document: &mut Value, contract: &Value) {
    let paths = document["paths"].as_object_mut().unwrap();
    for (path, operations) in paths {
        for (method, operation) in operations.as_object_mut().unwrap() {
            for (status, response) in operation["responses"].as_object_mut().unwrap() {
                let known = &contract["paths"][path][method]["responses"][status]["headers"];
                let Some(headers) = response["headers"].as_object_mut() else { continue };
                headers.retain(|name, header| known.get(name).is_some() || header["required"] == true);
                if headers.is_empty() {
                    response.as_object_mut().unwrap().remove("headers");
                }
            }
        }
    }
}

/// Where two documents differ, as paths.
fn differences(path: &str, a: &Value, b: &Value) -> Vec<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            let get = |map: &Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or_default();
            keys.flat_map(|key| differences(&format!("{path}/{key}"), &get(a, key), &get(b, key))).collect()
        }
        _ if a == b => vec![],
        _ => vec![format!("{path}: {a} became {b}")],
    }
}

fn changes(document: &str) -> Vec<String> {
    let agreed = contract(&serde_json::from_str(CONTRACT).unwrap());
    let mut current = contract(&serde_json::from_str(document).unwrap());
    remove_new_headers(&mut current, &agreed);
    differences("", &agreed, &current)
}

#[test]
fn document_keeps_the_contract() {
    let urls = PublicUrls::new(&Config::default());
    for ietf in [false, true] {
        let changes = changes(&api::document(&urls.base, &urls, None, ietf).json());
        assert!(changes.is_empty(), "the contract of version 1.1.0 must not change:\n{}", changes.join("\n"));
    }
}

#[test]
fn changes_of_the_contract_are_found() {
    for (from, to, change) in [
        ("/api/v1/ip/demo", "/api/v1/demo", "/paths//api/v1/ip/demo"),
        ("\"tls_cipher\"", "\"cipher\"", "/properties/tls_cipher"),
        ("\"Retry-After\"", "\"Retry-In\"", "/headers/Retry-After"),
        ("\"1.1.0\"", "\"2.0.0\"", "/info/version"),
        ("\"429\"", "\"420\"", "/responses/429"),
    ] {
        let changed = CONTRACT.replace(from, to);
        assert_ne!(changed, CONTRACT, "{from}");
        assert!(changes(&changed).iter().any(|found| found.contains(change)), "{from}");
    }
    assert_eq!(changes(&CONTRACT.replace("Requests left", "Requests remaining")), [""; 0]);
}
