//! As much of a Kubernetes API server as helm needs to look up Secrets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

/// Serves the Secrets of an installed release until the test process ends, and gives its address.
///
/// # Panics
/// When no port is free.
#[must_use]
pub fn serve_secrets(secrets: Vec<Value>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
    let url = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let secrets = secrets.clone();
            // One thread a connection: helm keeps one open and opens others.
            std::thread::spawn(move || talk(stream, &secrets));
        }
    });
    url
}

fn talk(mut stream: TcpStream, secrets: &[Value]) {
    let Ok(reader) = stream.try_clone() else { return };
    let mut lines = BufReader::new(reader).lines();
    while let Some(Ok(request)) = lines.next() {
        // The rest of the head says nothing that we need.
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (status, body) = answer(path.split('?').next().unwrap_or_default(), secrets);
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(path: &str, secrets: &[Value]) -> (&'static str, Value) {
    let secret = |path: &str| secrets.iter().find(|secret| path.ends_with(super::name(secret)));
    match path {
        "/version" => ("200 OK", json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0"})),
        "/api" => ("200 OK", json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => ("200 OK", json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        "/api/v1" => {
            let secrets = json!({"name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret", "verbs": ["get"]});
            ("200 OK", json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [secrets]}))
        }
        path if secret(path).is_some() => ("200 OK", json!(secret(path))),
        _ => (
            "404 Not Found",
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
        ),
    }
}
