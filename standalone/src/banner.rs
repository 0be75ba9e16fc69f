//! The text printed on standard output once all services are running.

use std::net::SocketAddr;

use crate::bootstrap::{FirstStart, LOGIN};
use crate::service_urls::{ServiceUrls, url_of};

/// A public address whose country the built-in data knows.
const PUBLIC_ADDRESS: &str = "8.8.8.8";

/// What the banner shows.
pub struct Banner<'a> {
    pub urls: &'a ServiceUrls,
    /// Whether the API's URL leads straight to this process, without a proxy between.
    pub local_api: bool,
    /// Whether this machine is a trusted proxy of the API, so that it can send requests as any client.
    pub trusts_this_machine: bool,
    /// Whether connections must begin with a PROXY header, which curl can send, too.
    pub proxy_protocol: bool,
    /// The program and flags with which commands start.
    pub program: &'a str,
    /// The geo data in use and its age.
    pub geo: &'a str,
    /// Address of /livez, /readyz and /metrics.
    pub admin: SocketAddr,
}

impl Banner<'_> {
    /// Prints the URLs and, on the first start, the credentials with commands to try them.
    pub fn print(&self, first_start: Option<&FirstStart>) {
        let ServiceUrls { api, dashboard } = self.urls;
        println!("ip-lookup is running.\n");
        println!("  Home page      {api}");
        println!("  API            {api}/api/v1/ip");
        println!("  Docs           {api}/docs");
        println!("  API explorer   {api}/swagger");
        println!("  Dashboard      {dashboard}");
        println!("  Metrics        {}/metrics", url_of("http", self.admin));
        println!("  Geo data       {}", self.geo);
        match first_start {
            Some(FirstStart::Credentials { password, key }) => self.print_credentials(password, key),
            Some(FirstStart::NoPassword) => {
                println!("\nFirst start. The account {LOGIN} has no password yet. Set one to sign in:\n");
                println!("  {} reset-password {LOGIN}", self.program);
            }
            None => {
                println!(
                    "\nManage keys in the dashboard or from the command line. If a password is lost, reset it:\n"
                );
                println!("  {} key list", self.program);
                println!("  {} reset-password LOGIN", self.program);
            }
        }
        println!("\nPress Ctrl-C to stop.");
    }

    fn print_credentials(&self, password: &str, key: &str) {
        let flag = if self.local_api && self.proxy_protocol { "--haproxy-protocol " } else { "" };
        let curl = |header: &str| {
            println!("  curl {flag}-H \"Authorization: Bearer {key}\"{header} {}/api/v1/ip", self.urls.api);
        };
        println!("\nFirst start. Save these now; they are not shown again:\n");
        println!("  Login          {LOGIN}");
        println!("  Password       {password}");
        println!("  API key        {key}");
        if self.trusts_this_machine {
            println!(
                "\nTry it as a client with a public address. X-Forwarded-For from this machine is trusted:\n"
            );
            curl(&format!(" -H \"X-Forwarded-For: {PUBLIC_ADDRESS}\""));
        }
        match self.local_api {
            true => println!("\nTry it with your own address. A loopback or private one has no location:\n"),
            false => println!("\nTry it with your own address:\n"),
        }
        curl("");
    }
}
