//! What a newcomer sees.

use std::net::SocketAddr;

use crate::config::Config;
use crate::first_start::LOGIN;

/// Prints the addresses, and on the first start the key with a line to try it.
pub fn print(url: &str, quota: SocketAddr, key: Option<&str>, config: &Config) {
    println!("ip-lookup is running.\n");
    println!("  API            {url}/api/v1/ip");
    println!("  Documentation  {url}/docs");
    println!("  Swagger UI     {url}/swagger");
    println!("  Metrics        http://{}/metrics", config.admin_listen);
    match key {
        Some(key) => {
            println!("\nThis is the first start: account `{LOGIN}` with one API key, shown only now:\n");
            println!("  {key}\n\nTry it:\n");
            println!("  curl -H \"Authorization: Bearer {key}\" {url}/api/v1/ip");
        }
        None => println!("\nKeys: quota-svc --quota-url http://{quota} key list --account {LOGIN}"),
    }
    println!("\nStop with Ctrl-C.");
}
