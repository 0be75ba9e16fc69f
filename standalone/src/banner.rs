//! The text printed on standard output once all services are running.

use std::net::SocketAddr;

use crate::bootstrap::{InitialCredentials, LOGIN};
use crate::config::url_of;

/// Listen addresses of the services.
pub struct ListenAddresses {
    pub lookup: SocketAddr,
    pub dashboard: SocketAddr,
    /// quota-svc's internal API.
    pub quota: SocketAddr,
    /// /livez, /readyz and /metrics.
    pub admin: SocketAddr,
}

/// Prints the URLs and, on the first start, the credentials with commands to try them.
pub fn print(addresses: &ListenAddresses, credentials: Option<&InitialCredentials>) {
    let api = url_of(addresses.lookup);
    println!("ip-lookup is running.\n");
    println!("  API            {api}/api/v1/ip");
    println!("  Documentation  {api}/docs");
    println!("  Swagger UI     {api}/swagger");
    println!("  Dashboard      {}", url_of(addresses.dashboard));
    println!("  Metrics        {}/metrics", url_of(addresses.admin));
    match credentials {
        Some(credentials) => print_credentials(&api, credentials),
        None => {
            println!("\nManage keys in the dashboard, or list them from the command line:\n");
            println!("  quota-svc --quota-url http://{} key list --account {LOGIN}", addresses.quota);
        }
    }
    println!("\nPress Ctrl-C to stop.");
}

fn print_credentials(api: &str, InitialCredentials { password, key }: &InitialCredentials) {
    println!("\nFirst start. Save these now; they are not shown again:\n");
    println!("  Login          {LOGIN}");
    println!("  Password       {password}");
    println!("  API key        {key}");
    println!("\nTry it from this machine, then as another client:\n");
    println!("  curl -H \"Authorization: Bearer {key}\" {api}/api/v1/ip");
    println!("  curl -H \"Authorization: Bearer {key}\" -H \"X-Forwarded-For: 203.0.113.7\" {api}/api/v1/ip");
}
