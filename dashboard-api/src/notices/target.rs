//! Where webhooks may be sent: never into the operator's network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use ipnet::IpNet;
use url::{Host, Url};

const MAX_URL: usize = 2048;

/// Addresses that are not global unicast by IANA's registries of special-purpose addresses.
static NOT_GLOBAL: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    let networks = "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 \
                    192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3 \
                    2001::/23 2001:db8::/32 3fff::/20";
    networks.split_whitespace().map(|network| network.parse().expect("a network")).collect()
});
/// Why a webhook's URL is rejected, or nothing is sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the webhook's URL is not valid")]
    Url,
    #[error("a webhook's URL must begin with https://")]
    Scheme,
    #[error("a webhook's URL can't contain a user or password")]
    UserInfo,
    #[error("a webhook's URL can use the ports 443 and 8443 only")]
    Port,
    #[error("the webhook's host name can't be resolved")]
    Resolve,
    #[error("the webhook's host is not a public address")]
    Address,
}

/// What the operator allows beyond the defaults.
#[derive(Debug, Clone, Default)]
pub struct TargetRules {
    pub allow_http: bool,
    pub networks: Vec<IpNet>,
}

impl TargetRules {
    /// Checks what can be checked without resolving the host.
    pub fn parse(&self, text: &str) -> Result<Url, TargetError> {
        let url = Url::parse(text).ok().filter(|_| text.len() <= MAX_URL).ok_or(TargetError::Url)?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            _ => return Err(TargetError::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::UserInfo);
        }
        match url.host() {
            Some(Host::Domain(_)) if self.networks.is_empty() => check_port(&url)?,
            Some(Host::Domain(_)) => {}
            Some(Host::Ipv4(ip)) => self.check(&url, ip.into())?,
            Some(Host::Ipv6(ip)) => self.check(&url, ip.into())?,
            None => return Err(TargetError::Url),
        }
        Ok(url)
    }

    /// Resolves the host once, and returns an address that a webhook may be sent to. The connection must go to this
    /// address: the name could have another one a moment later.
    pub async fn resolve(&self, url: &Url) -> Result<SocketAddr, TargetError> {
        let port = url.port_or_known_default().ok_or(TargetError::Port)?;
        let host = url.host_str().ok_or(TargetError::Url)?;
        let found = tokio::net::lookup_host(format!("{host}:{port}")).await;
        let mut result = Err(TargetError::Resolve);
        for address in found.map_err(|_| TargetError::Resolve)? {
            match self.check(url, address.ip()) {
                Ok(()) => return Ok(address),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    fn check(&self, url: &Url, ip: IpAddr) -> Result<(), TargetError> {
        if self.networks.iter().any(|network| network.contains(&ip.to_canonical())) {
            return Ok(());
        }
        if is_global(ip) { check_port(url) } else { Err(TargetError::Address) }
    }
}

fn check_port(url: &Url) -> Result<(), TargetError> {
    match (url.scheme(), url.port_or_known_default()) {
        (_, Some(443 | 8443)) | ("http", Some(80)) => Ok(()),
        _ => Err(TargetError::Port),
    }
}

/// Whether an address is global unicast; for an address that contains an IPv4 address, whether that is.
fn is_global(ip: IpAddr) -> bool {
    let ip: IpAddr = match ip.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => match ip.segments() {
            // NAT64 and 6to4: packets are translated to the IPv4 address.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into()
            }
            // Outside of 2000::/3.
            [first, ..] if first >> 13 != 1 => return false,
            _ => ip.into(),
        },
    };
    !NOT_GLOBAL.iter().any(|network| network.contains(&ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_global_unicast_addresses_are_global() {
        for ip in
            ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
        {
            assert!(is_global(ip.parse().unwrap()), "{ip}");
        }
        let private = "0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 169.254.169.254 172.31.0.1 192.0.0.8 192.168.1.1 198.18.0.1 \
                       203.0.113.1 224.0.0.1 255.255.255.255 :: ::1 fe80::1 fc00::1 ff02::1 fec0::1 2001:db8::1 3fff::1 5f00::1 \
                       100::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1::1 2002:a00:1::1 \
                       2001:0:4136:e378:8000:63bf:3fff:fdd2 ::127.0.0.1";
        for ip in private.split_whitespace() {
            assert!(!is_global(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn urls_are_checked_before_anything_is_resolved() {
        let rules = TargetRules::default();
        for (url, expected) in [
            ("https://hooks.example/x?y=z", Ok(())),
            ("https://hooks.example:8443/", Ok(())),
            ("https://8.8.8.8/", Ok(())),
            ("https://[2606:4700::1111]:443/", Ok(())),
            ("", Err(TargetError::Url)),
            ("hooks.example", Err(TargetError::Url)),
            ("http://hooks.example/", Err(TargetError::Scheme)),
            ("file:///etc/passwd", Err(TargetError::Scheme)),
            ("https://user@hooks.example/", Err(TargetError::UserInfo)),
            ("https://:password@hooks.example/", Err(TargetError::UserInfo)),
            ("https://hooks.example:22/", Err(TargetError::Port)),
            ("https://127.0.0.1/", Err(TargetError::Address)),
            ("https://0x7f.1/", Err(TargetError::Address)),
            ("https://2130706433/", Err(TargetError::Address)),
            ("https://[::ffff:10.0.0.1]/", Err(TargetError::Address)),
        ] {
            assert_eq!(rules.parse(url).map(drop), expected, "{url}");
        }
        assert_eq!(
            rules.parse(&format!("https://hooks.example/{}", "x".repeat(MAX_URL))),
            Err(TargetError::Url)
        );
        let open = TargetRules { allow_http: true, networks: vec!["10.0.0.0/8".parse().unwrap()] };
        assert!(open.parse("http://10.1.2.3:5000/").is_ok());
        assert_eq!(open.parse("http://127.0.0.1/"), Err(TargetError::Address));
        assert_eq!(open.parse("https://8.8.8.8:5000/"), Err(TargetError::Port));
    }

    #[tokio::test]
    async fn name_of_a_local_address_is_rejected_when_it_is_resolved() {
        let url = TargetRules::default().parse("https://localhost/").unwrap();
        assert_eq!(TargetRules::default().resolve(&url).await, Err(TargetError::Address));
        let open = TargetRules { networks: vec!["127.0.0.0/8".parse().unwrap()], ..TargetRules::default() };
        assert_eq!(open.resolve(&url).await, Ok("127.0.0.1:443".parse().unwrap()));
    }
}
