//! Which source provides which connection fact.

use crate::client_ip::Decision;
use crate::facts::ConnectionFacts;

/// Selects the source of each fact. `own` are the facts of the TCP connection to this process, and `headers` reads those
/// in the headers.
///
/// | in front of this process | http_protocol | tls_version, tls_cipher | round-trip time |
/// |---|---|---|---|
/// | nothing, or an untrusted peer | own | own | socket |
/// | trusted proxy that forwards an address | header | header | header |
/// | trusted peer that forwards no address | header, else own | header, else own | header, else socket |
pub(crate) fn select<'h>(
    decision: Decision,
    own: ConnectionFacts<'static>,
    headers: impl FnOnce() -> ConnectionFacts<'h>,
) -> ConnectionFacts<'h> {
    match decision {
        Decision::PeerUntrusted => own,
        // Nothing was forwarded: the peer is the client, so this connection is the client's.
        Decision::Missing => or(headers(), own),
        // The connection to this process is the proxy's, not the client's.
        Decision::Peer | Decision::Xff | Decision::XffAllTrusted | Decision::Header | Decision::Fallback => {
            headers()
        }
    }
}

/// Fills in missing facts. TLS version and cipher belong together: they are taken from the same source.
fn or<'h>(sent: ConnectionFacts<'h>, own: ConnectionFacts<'h>) -> ConnectionFacts<'h> {
    let tls = if sent.tls_version.is_some() || sent.tls_cipher.is_some() { sent } else { own };
    ConnectionFacts {
        http_protocol: sent.http_protocol.or(own.http_protocol),
        tls_version: tls.tls_version,
        tls_cipher: tls.tls_cipher,
        rtt_ms: sent.rtt_ms,
        rtt_from_socket: sent.rtt_ms.is_none() && own.rtt_from_socket,
        colo: sent.colo,
    }
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;

    /// What a TLS connection to this process has.
    fn own() -> ConnectionFacts<'static> {
        ConnectionFacts::direct(Version::HTTP_2).with_tls(Some("TLSv1.2"), Some("TLS_OWN"))
    }

    /// What a proxy sends.
    fn sent() -> ConnectionFacts<'static> {
        ConnectionFacts {
            http_protocol: Some("HTTP/3"),
            tls_version: Some("TLSv1.3"),
            tls_cipher: Some("TLS_SENT"),
            rtt_ms: Some(41),
            ..ConnectionFacts::default()
        }
    }

    #[test]
    fn direct_connection_has_its_own_facts() {
        let direct = ConnectionFacts::direct(Version::HTTP_11);
        let facts = select(Decision::PeerUntrusted, direct, ConnectionFacts::default);
        assert_eq!((facts.http_protocol, facts.tls_version), (Some("HTTP/1.1"), None));
        assert!(facts.rtt_from_socket);
        assert_eq!(select(Decision::PeerUntrusted, own(), ConnectionFacts::default), own());
    }

    #[test]
    fn headers_of_untrusted_peer_are_not_read() {
        let facts = select(Decision::PeerUntrusted, own(), || panic!("the headers are not read"));
        assert_eq!(facts, own());
    }

    #[test]
    fn trusted_proxy_that_forwards_an_address_has_only_the_facts_it_sends() {
        let forwarded =
            [Decision::Peer, Decision::Xff, Decision::XffAllTrusted, Decision::Header, Decision::Fallback];
        for decision in forwarded {
            assert_eq!(select(decision, own(), sent), sent(), "{decision:?}");
            let nothing_sent = select(decision, own(), ConnectionFacts::default);
            assert_eq!(nothing_sent, ConnectionFacts::default(), "{decision:?}");
        }
    }

    #[test]
    fn trusted_peer_without_an_address_has_what_it_sends_and_else_its_own_facts() {
        assert_eq!(select(Decision::Missing, own(), sent), sent());
        assert_eq!(select(Decision::Missing, own(), ConnectionFacts::default), own());
        let version_only = || ConnectionFacts { tls_version: Some("TLSv1.3"), ..ConnectionFacts::default() };
        let facts = select(Decision::Missing, own(), version_only);
        assert_eq!((facts.tls_version, facts.tls_cipher), (Some("TLSv1.3"), None), "not a mixture");
        assert_eq!((facts.http_protocol, facts.rtt_from_socket), (Some("HTTP/2"), true));
    }
}
