//! The text printed on standard output once all services are running.

use std::net::SocketAddr;

use crate::bootstrap::{FirstStart, InitialCredentials, LOGIN};
use crate::data_dir::DataDir;
use crate::public_urls::{PublicUrls, url_of};

/// What the banner shows.
pub struct Banner<'a> {
    pub urls: &'a PublicUrls,
    /// Whether the API's URL leads straight to this process, which then trusts `X-Forwarded-For` from this machine.
    pub local_api: bool,
    /// Whether connections must begin with a PROXY header, which curl can send, too.
    pub proxy_protocol: bool,
    /// Address of quota-svc's internal API.
    pub quota: SocketAddr,
    pub data: &'a DataDir,
    /// The geo data in use and its age.
    pub geo: &'a str,
    /// Address of /livez, /readyz and /metrics.
    pub admin: SocketAddr,
}

impl Banner<'_> {
    /// Prints the URLs and, on the first start, the credentials with commands to try them.
    pub fn print(&self, first_start: Option<&FirstStart>) {
        let PublicUrls { api, dashboard } = self.urls;
        println!("ip-lookup is running.\n");
        println!("  API            {api}/api/v1/ip");
        println!("  Documentation  {api}/docs");
        println!("  Swagger UI     {api}/swagger");
        println!("  Dashboard      {dashboard}");
        println!("  Metrics        {}/metrics", url_of("http", self.admin));
        println!("  Geo data       {}", self.geo);
        let token = self.data.quota_token_file.display();
        let quota = format!("--quota-url http://{} --quota-token-file {token}", self.quota);
        match first_start {
            Some(FirstStart::Credentials(credentials)) => self.print_credentials(credentials),
            Some(FirstStart::NoPassword) => {
                println!("\nFirst start. The account {LOGIN} has no password yet. Set one to sign in:\n");
                println!("  dashboard-api {quota} set-password {LOGIN}");
            }
            None => {
                println!("\nManage keys in the dashboard, or list them from the command line:\n");
                println!("  quota-svc {quota} key list --account {LOGIN}");
            }
        }
        println!("\nPress Ctrl-C to stop.");
    }

    fn print_credentials(&self, InitialCredentials { password, key }: &InitialCredentials) {
        let flag = if self.local_api && self.proxy_protocol { "--haproxy-protocol " } else { "" };
        let curl = |header: &str| {
            println!("  curl {flag}-H \"Authorization: Bearer {key}\"{header} {}/api/v1/ip", self.urls.api);
        };
        println!("\nFirst start. Save these now; they are not shown again:\n");
        println!("  Login          {LOGIN}");
        println!("  Password       {password}");
        println!("  API key        {key}");
        match self.local_api {
            true => println!("\nTry it from this machine, then as another client:\n"),
            false => println!("\nTry it:\n"),
        }
        curl("");
        if self.local_api {
            curl(" -H \"X-Forwarded-For: 8.8.8.8\"");
        }
    }
}
