//! A fake Kubernetes API server that provides Secrets to helm's template function `lookup`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

/// Serves the Secrets of an installed release until the test process exits. Returns the URL.
#[must_use]
pub fn serve_secrets(secrets: Vec<Value>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("free port on loopback");
    let url = format!("http://{}", listener.local_addr().expect("bound socket has an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let secrets = secrets.clone();
            // One thread per connection: helm opens several and keeps them open.
            std::thread::spawn(move || serve_connection(stream, &secrets));
        }
    });
    url
}

fn serve_connection(mut stream: TcpStream, secrets: &[Value]) {
    let Ok(reader) = stream.try_clone() else { return };
    let mut lines = BufReader::new(reader).lines();
    while let Some(Ok(request)) = lines.next() {
        // Skip the headers.
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (status, body) = respond(path.split('?').next().unwrap_or_default(), secrets);
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

fn respond(path: &str, secrets: &[Value]) -> (&'static str, Value) {
    let secret = |path: &str| secrets.iter().find(|secret| path.ends_with(super::name(secret)));
    match path {
        "/version" => ("200 OK", json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0"})),
        "/api" => ("200 OK", json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => ("200 OK", json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        "/api/v1" => {
            let resource = json!({"name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret", "verbs": ["get"]});
            ("200 OK", json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]}))
        }
        path if secret(path).is_some() => ("200 OK", json!(secret(path))),
        _ => (
            "404 Not Found",
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
        ),
    }
}
