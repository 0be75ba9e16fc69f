//! Every error code of the public services has a section at the place that its `docs` link names: in /docs of lookup-svc.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use service_kit::error::code_for;
use testkit::tools::project_root;

/// What precedes a code in the sources.
const MARKERS: [&str; 4] = ["ErrorBody::new(", "body(", "PERMANENT_REDIRECT, ", "const WRONG_HOST: &str = "];

/// The codes in the sources below a directory.
fn codes_in_sources(dir: &Path, markers: &[&str]) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            codes.extend(codes_in_sources(&path, markers));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for marker in markers {
                codes.extend(text.split(*marker).skip(1).filter_map(leading_code));
            }
        }
    }
    codes
}

/// The string literal at the start of the text, if it is a code.
fn leading_code(text: &str) -> Option<String> {
    let (code, _) = text.trim_start().strip_prefix('"')?.split_once('"')?;
    let is_code = code.contains('_') && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_code || ["unavailable", "unauthenticated", "unauthorized", "forbidden"].contains(&code))
        .then(|| code.to_owned())
}

/// The codes in the examples of a committed OpenAPI document.
fn codes_in_examples(document: &str) -> BTreeSet<String> {
    let document: Value = serde_json::from_str(document).unwrap();
    let examples = document["components"]["examples"].as_object().unwrap().values();
    examples.filter_map(|example| Some(example["value"]["error"].as_str()?.to_owned())).collect()
}

/// The codes of errors that no handler produces.
fn generic_codes() -> BTreeSet<String> {
    let statuses = (400..600).filter_map(|status| reqwest::StatusCode::from_u16(status).ok());
    statuses.map(|status| code_for(status).to_owned()).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(project_root().join(path)).unwrap()
}

#[test]
fn every_code_of_the_public_services_has_a_section_in_docs() {
    let page = read("lookup-svc/src/pages/docs.html");
    let mut codes = generic_codes();
    for sources in ["lookup-svc/src", "dashboard-api/src", "crates/service-kit/src", "crates/http-server/src"]
    {
        codes.extend(codes_in_sources(&project_root().join(sources), &MARKERS));
    }
    for document in ["openapi/lookup-svc.json", "openapi/dashboard-api.json"] {
        codes.extend(codes_in_examples(&read(document)));
    }
    for known in ["rate_limit_exceeded", "wrong_password", "csrf_refused", "wrong_host", "https_required"] {
        assert!(codes.contains(known), "{known} is not found: has the code that this test searches changed?");
    }
    let missing: Vec<_> = codes.iter().filter(|code| !page.contains(&format!("id=\"{code}\""))).collect();
    assert!(missing.is_empty(), "no section in docs.html: {missing:?}");
}
