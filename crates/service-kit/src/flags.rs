//! Flags that all services have, and value parsers for flags: listen addresses, URLs and host names.

use std::{
    ffi::OsStr,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use clap::{
    Arg, Command, Error,
    builder::{StringValueParser, TypedValueParser},
    error::ErrorKind,
};
use tracing_subscriber::filter::{LevelFilter, Targets};
use url::Url;

/// Flags for logging.
///
/// OpenTelemetry export is configured by the standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT` …).
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Logging")]
pub struct TelemetryArgs {
    /// Log format on standard error: text for people, json for machines
    #[arg(long, env, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log filter: off, error, warn, info, debug or trace, or a list such as info,hyper=debug
    #[arg(long, env, value_name = "FILTER", default_value = "info", value_parser = parse_log_filter)]
    pub log_level: Targets,
}

base::default_from_flags!(TelemetryArgs);

/// The format of log lines.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Parses a log filter. A clap value parser.
///
/// [`Targets`] reads an unknown word as the name of a target and turns off all other targets, so a mistyped level would
/// turn off the log.
fn parse_log_filter(text: &str) -> Result<Targets, String> {
    text.split(',').try_fold(Targets::new(), |filter, directive| {
        Ok(match directive.split_once('=') {
            Some((target, level)) => filter.with_target(target.trim(), parse_level(level)?),
            None => filter.with_default(parse_level(directive)?),
        })
    })
}

fn parse_level(text: &str) -> Result<LevelFilter, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" | "warning" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        level => Err(format!("{level:?} is not a level: use off, error, warn, info, debug or trace")),
    }
}

/// A clap value parser for listen addresses: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `:8080` for all addresses
/// of the machine, and `8080` for the address of the flag's default, or all addresses if it has none. So a port alone never
/// exposes a service that is private by default.
#[derive(Debug, Clone, Copy)]
pub struct ListenAddrParser;

impl TypedValueParser for ListenAddrParser {
    type Value = SocketAddr;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<SocketAddr, Error> {
        let text = StringValueParser::new().parse_ref(command, arg, value)?;
        let default = arg.and_then(|arg| arg.get_default_values().first()).and_then(|value| value.to_str());
        let default_ip = default.and_then(|text| text.parse::<SocketAddr>().ok()).map(|addr| addr.ip());
        parse_listen_addr(&text, default_ip).map_err(|reason| {
            let flag = arg.map(ToString::to_string).unwrap_or_default();
            let message = format!("invalid value '{text}' for '{flag}': {reason}\n");
            Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

/// Parses what [`ListenAddrParser`] accepts. A port alone is on `default_ip`, or on all addresses.
pub fn parse_listen_addr(text: &str, default_ip: Option<IpAddr>) -> Result<SocketAddr, &'static str> {
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

/// Parses an http or https URL. Pages link to it, so other schemes such as `javascript:` must be rejected.
pub fn web_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}; example: https://ip.example"))?;
    // The parser also accepts `https:ip.example`, which browsers take for a relative link.
    match text.starts_with("http://") || text.starts_with("https://") {
        true => Ok(url),
        false => Err("must start with http:// or https://".to_owned()),
    }
}

/// Whether this is a plain HTTP URL of this machine, such as `http://localhost:8081`.
pub fn is_local_http(url: &Url) -> bool {
    let is_local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "http" && is_local
}

/// Parses an http or https URL to which paths are appended, and removes a trailing slash.
pub fn base_url(text: &str) -> Result<String, String> {
    let url = web_url(text)?;
    match (url.query(), url.fragment()) {
        (None, None) => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("must not have a query or fragment".to_owned()),
    }
}

/// Parses a host name, and converts it to lower case without a final dot.
pub fn host_flag(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    match name.len() <= 253 && name.split('.').all(is_label) {
        true => Ok(name),
        false => Err(
            "expected a host name without scheme, port and path, such as ip.example.org. Names with other \
                      letters must be in ASCII form (xn--…)"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn log_filter_with_an_unknown_level_is_rejected() {
        for (text, filter) in [
            ("info", "info"),
            ("WARNING", "warn"),
            ("warn,hyper=debug", "warn,hyper=debug"),
            ("info, hyper=warning", "info,hyper=warn"),
            ("off", "off"),
        ] {
            assert_eq!(parse_log_filter(text), Ok(filter.parse().expect("a filter")), "{text}");
        }
        for text in ["verbose", "", "info,", "hyper", "hyper=", "hyper=verbose", "info,loud", "a=b=info"] {
            assert!(parse_log_filter(text).is_err(), "{text}");
        }
    }

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

    #[test]
    fn only_http_urls_are_accepted() {
        for url in [
            "https:ip.example",
            "file:///etc",
            "data:text/html,x",
            "javascript:alert(1)",
            "ip.example",
            "http://",
            "",
        ] {
            assert!(web_url(url).is_err(), "{url}");
        }
        assert!(web_url("https://docs.example/x#y").is_ok());
    }

    #[test]
    fn base_url_has_no_trailing_slash_query_or_fragment() {
        assert_eq!(base_url("https://ip.example/lookup/"), Ok("https://ip.example/lookup".to_owned()));
        for url in ["https://ip.example?a", "https://ip.example#a", "ftp://ip.example"] {
            assert!(base_url(url).is_err(), "{url}");
        }
    }
}
