//! The text printed on standard output once all services are running.

use std::net::{Ipv4Addr, SocketAddr};

use edge::TrustedProxies;

use crate::bootstrap::{FirstStart, LOGIN};
use crate::commands;
use crate::config::Config;
use crate::service_urls::{ServiceUrls, url_of};

/// A public address whose country the built-in data knows.
const PUBLIC_ADDRESS: &str = "8.8.8.8";

/// Prints the URLs and, on the first start, the credentials with commands to try them. `geo` is the geo data in use and its
/// age.
pub fn print(
    config: &Config,
    urls: &ServiceUrls,
    trusted: &TrustedProxies,
    geo: &str,
    admin: SocketAddr,
    first_start: Option<&FirstStart>,
) {
    let ServiceUrls { api, dashboard } = urls;
    let program = commands::program(config);
    println!("ip-lookup is running.\n");
    println!("  Home page      {api}");
    println!("  API            {api}/api/v1/ip");
    println!("  Docs           {api}/docs");
    println!("  API explorer   {api}/swagger");
    println!("  Dashboard      {dashboard}");
    println!("  Metrics        {}/metrics", url_of("http", admin));
    println!("  Geo data       {geo}");
    match first_start {
        Some(FirstStart::Credentials { password, key }) => {
            println!("\nFirst start. Save these now; they are not shown again:\n");
            println!("  Login          {LOGIN}");
            println!("  Password       {password}");
            println!("  API key        {key}");
            print_examples(config, api, trusted, key);
        }
        Some(FirstStart::NoPassword) => {
            println!("\nFirst start. The account {LOGIN} has no password yet. Set one to sign in:\n");
            println!("  {program} reset-password {LOGIN}");
        }
        None => {
            println!(
                "\nManage keys in the dashboard or from the command line. If a password is lost, reset it:\n"
            );
            println!("  {program} key list");
            println!("  {program} reset-password LOGIN");
        }
    }
    println!("\nPress Ctrl-C to stop.");
}

fn print_examples(config: &Config, api: &str, trusted: &TrustedProxies, key: &str) {
    // Whether the API's URL leads straight to this process, without a proxy between.
    let is_direct = config.base_url.is_none() && config.api_host.is_none();
    // Without a proxy, curl must send the PROXY header.
    let flag = if is_direct && config.listener.proxy_protocol { "--haproxy-protocol " } else { "" };
    let curl =
        |header: &str| println!("  curl {flag}-H \"Authorization: Bearer {key}\"{header} {api}/api/v1/ip");
    // The peer address of connections from this machine.
    let listen = config.listen.ip();
    let own_address = if listen.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { listen };
    if is_direct && trusted.contains(own_address) {
        println!(
            "\nTry it as a client with a public address. X-Forwarded-For from this machine is trusted:\n"
        );
        curl(&format!(" -H \"X-Forwarded-For: {PUBLIC_ADDRESS}\""));
    }
    match is_direct {
        true => println!("\nTry it with your own address. A loopback or private one has no location:\n"),
        false => println!("\nTry it with your own address:\n"),
    }
    curl("");
}
