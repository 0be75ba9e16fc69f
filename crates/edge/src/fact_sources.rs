//! Which source provides which connection fact.

use crate::client_ip::Decision;
use crate::explain::Explain;
use crate::facts::ConnectionFacts;

/// Selects the source of each fact. `own` are the facts of the TCP connection to this process, and `headers` reads those
/// in the headers.
///
/// | in front of this process | http_protocol | tls_version, tls_cipher | round-trip time |
/// |---|---|---|---|
/// | nothing, or an untrusted peer | own | own | socket |
/// | load balancer with PROXY protocol | own | PROXY header, else own | none |
/// | trusted proxy that forwards an address (valid or not), or `--client-ip-from peer` | header | header | header |
/// | trusted peer that forwards no address | header, else own | header, else own | header, else socket |
///
/// With PROXY protocol, `own` comes from [`ConnectionFacts::behind_balancer`], and the client in the PROXY header takes the
/// place of the peer. If that client is a trusted proxy itself, its row applies.
///
/// Explains the source of each fact except the colo, which this function does not select.
pub(crate) fn select<'h, E: Explain>(
    decision: Decision,
    own: ConnectionFacts<'h>,
    headers: impl FnOnce(&mut E) -> ConnectionFacts<'h>,
    explain: &mut E,
) -> ConnectionFacts<'h> {
    match decision {
        Decision::PeerUntrusted => only_own(own, explain),
        // Nothing was forwarded: the peer is the client, so this connection is the client's.
        Decision::Missing => or(headers(explain), own, explain),
        // The peer is a trusted proxy, so only its headers describe the client's connection. With `--client-ip-from
        // peer` too: only its address is used as the client's.
        Decision::Peer | Decision::Xff | Decision::XffAllTrusted | Decision::Header | Decision::Fallback => {
            headers(explain)
        }
    }
}

/// Uses only the facts of the connection, for requests whose headers must not be read.
pub(crate) fn only_own<'h>(own: ConnectionFacts<'h>, explain: &mut impl Explain) -> ConnectionFacts<'h> {
    or(ConnectionFacts::default(), own, explain)
}

/// Fills in missing facts. TLS version and cipher belong together: they are taken from the same source.
fn or<'h>(
    sent: ConnectionFacts<'h>,
    own: ConnectionFacts<'h>,
    explain: &mut impl Explain,
) -> ConnectionFacts<'h> {
    let tls_sent = sent.tls_version.is_some() || sent.tls_cipher.is_some();
    let (http_sent, rtt_sent) = (sent.http_protocol.is_some(), sent.rtt_ms.is_some());
    for (field, is_sent) in
        [("http_protocol", http_sent), ("tls_version", tls_sent), ("tls_cipher", tls_sent), ("rtt", rtt_sent)]
    {
        if !is_sent {
            explain.add(field, || match field == "rtt" && !own.rtt_from_socket {
                true => "not known behind a load balancer".to_owned(),
                false => "the connection to this service, which `explain` does not open".to_owned(),
            });
        }
    }
    let tls = if tls_sent { sent } else { own };
    ConnectionFacts {
        http_protocol: sent.http_protocol.or(own.http_protocol),
        tls_version: tls.tls_version,
        tls_cipher: tls.tls_cipher,
        rtt_ms: sent.rtt_ms,
        rtt_from_socket: !rtt_sent && own.rtt_from_socket,
        colo: sent.colo,
    }
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;

    fn select<'h>(
        decision: Decision,
        own: ConnectionFacts<'h>,
        headers: impl FnOnce() -> ConnectionFacts<'h>,
    ) -> ConnectionFacts<'h> {
        super::select(decision, own, |()| headers(), &mut ())
    }

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
    fn connection_behind_a_balancer_has_no_round_trip_time_and_the_tls_of_the_proxy_header() {
        let tls = |version, cipher| Some((version, cipher));
        let passed_through = own().behind_balancer(None);
        let direct = ConnectionFacts::direct(Version::HTTP_11);
        for (balancer, version, cipher) in [
            (passed_through, Some("TLSv1.2"), Some("TLS_OWN")),
            (direct.behind_balancer(None), None, None),
            (
                direct.behind_balancer(tls(Some("TLSv1.3"), Some("ECDHE-RSA-AES128-GCM-SHA256"))),
                Some("TLSv1.3"),
                Some("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            ),
            // The connection from the load balancer has TLS, too.
            (own().behind_balancer(tls(Some("TLSv1.3"), None)), Some("TLSv1.3"), None),
            (own().behind_balancer(tls(Some("unknown"), Some("a b"))), None, None),
        ] {
            let facts = select(Decision::PeerUntrusted, balancer, || panic!("the headers are not read"));
            assert_eq!((facts.tls_version, facts.tls_cipher), (version, cipher));
            assert!(!facts.rtt_from_socket && facts.rtt_ms.is_none());
        }
        assert_eq!(passed_through.http_protocol, Some("HTTP/2"));
        assert_eq!(select(Decision::Missing, passed_through, ConnectionFacts::default), passed_through);
        assert_eq!(select(Decision::Xff, passed_through, sent), sent(), "a proxy in front of the balancer");
    }

    #[test]
    fn headers_of_untrusted_peer_are_not_read() {
        let facts = select(Decision::PeerUntrusted, own(), || panic!("the headers are not read"));
        assert_eq!(facts, own());
    }

    #[test]
    fn trusted_proxy_that_forwards_an_address_or_is_the_client_by_policy_has_only_the_facts_it_sends() {
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
