//! What a newcomer sees.

use std::net::SocketAddr;

use crate::config::url_of;
use crate::first_start::{LOGIN, Made};

/// Where the services listen.
pub struct Places {
    /// The public API.
    pub lookup: SocketAddr,
    /// The dashboard.
    pub dashboard: SocketAddr,
    /// quota-svc's internal API.
    pub quota: SocketAddr,
    /// Probes and metrics.
    pub admin: SocketAddr,
}

/// Prints the addresses, and on the first start the account and the key with lines to try it.
pub fn print(places: &Places, made: Option<&Made>) {
    let api = url_of(places.lookup);
    println!("ip-lookup is running.\n");
    println!("  API            {api}/api/v1/ip");
    println!("  Documentation  {api}/docs");
    println!("  Swagger UI     {api}/swagger");
    println!("  Dashboard      {}", url_of(places.dashboard));
    println!("  Metrics        {}/metrics", url_of(places.admin));
    match made {
        Some(made) => print_made(&api, made),
        None => println!(
            "\nKeys: the dashboard, or quota-svc --quota-url http://{} key list --account {LOGIN}",
            places.quota
        ),
    }
    println!("\nStop with Ctrl-C.");
}

fn print_made(api: &str, Made { password, key }: &Made) {
    println!("\nThis is the first start. Shown only now:\n");
    println!("  Account        {LOGIN}");
    println!("  Password       {password}");
    println!("  API key        {key}");
    println!("\nTry it, as yourself and as somebody behind a proxy:\n");
    println!("  curl -H \"Authorization: Bearer {key}\" {api}/api/v1/ip");
    println!("  curl -H \"Authorization: Bearer {key}\" -H \"X-Forwarded-For: 203.0.113.7\" {api}/api/v1/ip");
}
