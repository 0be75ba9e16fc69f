//! Parser for flags that are listen addresses.

use std::{
    ffi::OsStr,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use clap::{
    Arg, Command, Error,
    builder::{StringValueParser, TypedValueParser},
    error::ErrorKind,
};

/// A clap value parser for listen addresses: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `:8080` for all addresses
/// of the machine, and `8080` for the address of the flag's default. So a port alone never exposes a service that is
/// private by default.
#[derive(Debug, Clone, Copy)]
pub struct ListenAddrParser;

impl TypedValueParser for ListenAddrParser {
    type Value = SocketAddr;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<SocketAddr, Error> {
        let text = StringValueParser::new().parse_ref(command, arg, value)?;
        let default = arg.and_then(|arg| arg.get_default_values().first()).and_then(|value| value.to_str());
        let default_ip = default.and_then(|text| text.parse::<SocketAddr>().ok()).map(|addr| addr.ip());
        parse(&text, default_ip).map_err(|reason| {
            let flag = arg.map(ToString::to_string).unwrap_or_default();
            let message = format!("invalid value '{text}' for '{flag}': {reason}\n");
            Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

fn parse(text: &str, default_ip: Option<IpAddr>) -> Result<SocketAddr, &'static str> {
    const EXPECTED: &str =
        "expected ADDRESS:PORT, :PORT or PORT, for example 127.0.0.1:8080, [::]:8080 or 8080";
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (Some(host), port),
        None => (None, text),
    };
    let all = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let ip = match host {
        None => default_ip.unwrap_or(all),
        Some("") => all,
        Some("localhost") => Ipv4Addr::LOCALHOST.into(),
        Some(_) => return Err(EXPECTED),
    };
    // `parse` would accept a sign.
    match port.parse() {
        Ok(port) if !text.contains('+') => Ok(SocketAddr::new(ip, port)),
        _ => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Flags {
        #[arg(long, default_value = "127.0.0.1:8080", value_parser = ListenAddrParser)]
        listen: SocketAddr,
        #[arg(long, value_parser = ListenAddrParser)]
        redirect_listen: Option<SocketAddr>,
    }

    fn listen(text: &str) -> Result<String, Error> {
        Ok(Flags::try_parse_from(["x", "--listen", text])?.listen.to_string())
    }

    #[test]
    fn address_may_be_a_port_or_localhost() {
        for (text, addr) in [
            ("8081", "127.0.0.1:8081"),
            (":8081", "[::]:8081"),
            ("localhost:8081", "127.0.0.1:8081"),
            ("0.0.0.0:8081", "0.0.0.0:8081"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(listen(text).unwrap(), addr, "{text}");
        }
        assert_eq!(Flags::try_parse_from(["x"]).unwrap().listen.to_string(), "127.0.0.1:8080");
        let redirect = Flags::try_parse_from(["x", "--redirect-listen", "80"]).unwrap().redirect_listen;
        assert_eq!(redirect, Some("[::]:80".parse().unwrap()), "no default to take the address from");
    }

    #[test]
    fn invalid_address_error_names_the_flag_and_the_forms() {
        for text in
            ["", ":", "host:80", "80:", "65536", "+80", "localhost", "::1:80", "127.0.0.1", "localhost:+80"]
        {
            let error = listen(text).unwrap_err().to_string();
            assert!(error.contains("--listen") && error.contains("[::]:8080"), "{text}: {error}");
        }
    }
}
