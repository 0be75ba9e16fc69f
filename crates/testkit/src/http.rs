//! HTTP client of the tests, and a server for a file.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A client that reuses connections and times out after 10 s, far beyond the default deadlines of the services.
#[must_use]
pub fn client() -> reqwest::Client {
    builder().build().expect("default HTTP client")
}

/// The builder behind [`client`], for tests that need other settings.
pub fn builder() -> reqwest::ClientBuilder {
    // reqwest is built without a cryptography provider. Installing one a second time fails, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10))
}

/// Responds to every request with this content. Returns the server's URL, which ends with a slash.
pub async fn serve(content: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("free port");
    let url = format!("http://{}/", listener.local_addr().expect("bound address"));
    tokio::spawn(async move {
        let length = content.len();
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        let response = Arc::new([head.as_bytes(), &content].concat());
        while let Ok((mut stream, _)) = listener.accept().await {
            let response = response.clone();
            // A task each, because browsers open connections in advance.
            tokio::spawn(async move {
                // The request is small and arrives in one read.
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(&response).await;
            });
        }
    });
    url
}
