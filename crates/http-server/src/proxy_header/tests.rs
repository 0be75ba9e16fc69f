//! Headers of the PROXY protocol that are accepted or rejected.

use super::*;

/// Reads a header, followed by a request that must stay unread. In two parts, split at every position.
fn read(header: &[u8]) -> Result<ProxyHeader, String> {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
    let bytes = [header, REQUEST].concat();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let mut results = (0..=bytes.len()).map(|split| {
        let (mut first, mut second) = (&bytes[..split], &bytes[split..]);
        let result = runtime.block_on(ProxyHeader::read(&mut AsyncReadExt::chain(&mut first, &mut second)));
        let result = result.map_err(|error| error.to_string());
        if result.is_ok() {
            assert_eq!([first, second].concat(), REQUEST, "nothing after the header is read");
        }
        result
    });
    let result = results.next().expect("at least one");
    for other in results {
        assert_eq!(other, result, "independent of how the bytes arrive");
    }
    result
}

fn client(addr: &str) -> Option<SocketAddr> {
    Some(addr.parse().expect("valid address"))
}

/// A header of version 2 with the correct length.
fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
    [v2::PROTOCOL_PREFIX, &[0x20 | command, family], &length, payload].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("short").to_be_bytes();
    [&[kind], length.as_slice(), value].concat()
}

/// A header of version 2 for the client 192.0.2.1:1000, with TLVs.
fn v2_tcp4(tlvs: &[u8]) -> Vec<u8> {
    v2(1, 0x11, &[[192, 0, 2, 1, 127, 0, 0, 1, 3, 232, 1, 187].as_slice(), tlvs].concat())
}

fn ssl(flags: u8, tlvs: &[Vec<u8>]) -> Vec<u8> {
    tlv(SSL, &[[flags, 0, 0, 0, 0].as_slice(), &tlvs.concat()].concat())
}

#[test]
fn version_1_names_the_client() {
    for (header, want) in [
        ("PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\r\n", client("192.0.2.1:1000")),
        ("PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n", client("0.0.0.0:0")),
        ("PROXY TCP6 2001:db8::1 ::1 65535 443\r\n", client("[2001:db8::1]:65535")),
        ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1000 443\r\n", client("192.0.2.1:1000")),
        (
            "PROXY TCP6 2001:0db8:ffff:ffff:ffff:ffff:ffff:ffff 2001:0db8:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            client("[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
        ),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN 2001:db8::1 ::1 1 1\r\n", None),
        ("PROXY UNKNOWN a b c d e f g\r\n", None),
    ] {
        let read = read(header.as_bytes()).unwrap_or_else(|error| panic!("{header:?}: {error}"));
        assert_eq!(read, ProxyHeader { client: want, tls: None }, "{header:?}");
    }
}

#[test]
fn malformed_version_1_is_rejected() {
    for header in [
        "PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\r\r\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 1000 443 \r\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 1000 443 1\r\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 1000\r\n",
        "PROXY TCP4  192.0.2.1 127.0.0.1 1000 443\r\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 01000 443\r\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 +1000 443\r\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 1000 65536\r\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 -1 443\r\n",
        "PROXY TCP4 192.0.2.01 127.0.0.1 1000 443\r\n",
        "PROXY TCP4 192.0.2 127.0.0.1 1000 443\r\n",
        "PROXY TCP4 2001:db8::1 ::1 1000 443\r\n",
        "PROXY TCP6 192.0.2.1 127.0.0.1 1000 443\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1000 443\r\n",
        "PROXY TCP5 192.0.2.1 127.0.0.1 1000 443\r\n",
        "PROXY UDP4 192.0.2.1 127.0.0.1 1000 443\r\n",
        "PROXY tcp4 192.0.2.1 127.0.0.1 1000 443\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY UNKNOWN\n\r\n",
        "PROXY TCP4 192.0.2.1\r127.0.0.1 1000 443\r\n",
        "PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\0\r\n",
        "PROXY TCP6 \u{661}::1 ::1 1000 443\r\n",
    ] {
        let error = read(header.as_bytes()).expect_err(header);
        assert_eq!(error, MALFORMED, "{header:?}");
    }
    let too_long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    assert_eq!(too_long.len(), V1_MAX_BYTES + 1);
    assert_eq!(read(too_long.as_bytes()), Err(MALFORMED.to_owned()));
    assert!(read(too_long.replacen('x', "", 1).as_bytes()).is_ok(), "the longest header");
}

#[test]
fn version_2_names_the_client() {
    let tcp6 = |source: [u8; 16]| [source.as_slice(), &[0; 16], &[3, 232, 1, 187]].concat();
    let documentation = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    for (header, want) in [
        (v2_tcp4(&[]), client("192.0.2.1:1000")),
        // ALPN, authority, no operation, unique ID, network namespace, and one of AWS.
        (v2_tcp4(&[1, 2, 4, 5, 0x30, 0xEA].map(|kind| tlv(kind, b"x")).concat()), client("192.0.2.1:1000")),
        (v2(1, 0x21, &tcp6(documentation)), client("[2001:db8::1]:1000")),
        (v2(1, 0x21, &tcp6(mapped)), client("192.0.2.1:1000")),
        (v2(1, 0x31, &[0; 216]), None),
        (v2(1, 0x00, &[]), None),
        (v2(1, 0x00, &[1, 2, 3]), None),
        (v2(0, 0x00, &[]), None),
        // The addresses of a LOCAL connection must be ignored.
        (v2(0, 0x11, &[192, 0, 2, 1, 127, 0, 0, 1, 3, 232, 1, 187]), None),
        (v2(0, 0xFF, &[1]), None),
    ] {
        let read = read(&header).unwrap_or_else(|error| panic!("{header:?}: {error}"));
        assert_eq!(read, ProxyHeader { client: want, tls: None }, "{header:?}");
    }
}

#[test]
fn malformed_version_2_is_rejected() {
    let tcp4 = [192, 0, 2, 1, 127, 0, 0, 1, 3, 232, 1, 187];
    let with_version = |version: u8| {
        let mut header = v2_tcp4(&[]);
        header[12] = version;
        header
    };
    for (header, reason) in [
        (with_version(0x11), "version 1"),
        (with_version(0x31), "version 3"),
        (with_version(0x22), "unknown command"),
        (v2(1, 0x12, &tcp4), "datagrams"),
        (v2(1, 0x10, &tcp4), "unspecified protocol"),
        (v2(1, 0x01, &tcp4), "unspecified family"),
        (v2(1, 0x41, &tcp4), "unknown family"),
        (v2(1, 0x13, &tcp4), "unknown protocol"),
        (v2(1, 0x11, &tcp4[..11]), "half an address"),
        (v2(1, 0x21, &[0; 35]), "half an IPv6 address"),
        (v2(1, 0x31, &[0; 215]), "half a Unix address"),
        (v2_tcp4(&[4]), "a byte after the addresses"),
        (v2_tcp4(&[4, 0, 2, 0]), "a TLV that ends after the header"),
        (v2_tcp4(&tlv(SSL, &[1, 0, 0, 0])), "a short SSL TLV"),
        (v2_tcp4(&tlv(SSL, &[1, 0, 0, 0, 0, SSL_VERSION])), "a byte after the fixed part of the SSL TLV"),
        (
            v2_tcp4(&tlv(SSL, &[1, 0, 0, 0, 0, SSL_VERSION, 0, 9, b'T'])),
            "a version that ends after the SSL TLV",
        ),
        (v2_tcp4(&ssl(1, &[tlv(SSL_VERSION, b"")])), "an empty version"),
        (v2_tcp4(&ssl(1, &[tlv(SSL_CIPHER, b"a b")])), "a cipher with a space"),
        (v2_tcp4(&ssl(1, &[tlv(SSL_CIPHER, &[0xff])])), "a cipher that is not UTF-8"),
        (v2_tcp4(&ssl(1, &[tlv(SSL_CIPHER, &[b'x'; 65])])), "a long cipher"),
        (v2_tcp4(&ssl(1, &[tlv(SSL_CIPHER, b"x"), tlv(SSL_CIPHER, b"x")])), "two ciphers"),
        (v2_tcp4(&[ssl(1, &[]), ssl(1, &[])].concat()), "two SSL TLVs"),
        (v2_tcp4(&tlv(CRC32C, &[0; 4])), "a wrong checksum"),
        (v2_tcp4(&tlv(CRC32C, &[0; 3])), "a short checksum"),
    ] {
        let error = read(&header).expect_err(reason);
        assert_eq!(error, MALFORMED, "{reason}");
    }
}

#[test]
fn tls_comes_from_the_ssl_tlv() {
    let names =
        [tlv(SSL_VERSION, b"TLSv1.3"), tlv(0x22, b"a client"), tlv(SSL_CIPHER, b"TLS_AES_128_GCM_SHA256")];
    let tls = read(&v2_tcp4(&ssl(1, &names))).expect("valid").tls.expect("TLS");
    assert_eq!(
        (tls.version.as_deref(), tls.cipher.as_deref()),
        (Some("TLSv1.3"), Some("TLS_AES_128_GCM_SHA256"))
    );
    let tls = read(&v2_tcp4(&ssl(7, &names[..1]))).expect("valid").tls.expect("TLS");
    assert_eq!((tls.version.as_deref(), tls.cipher), (Some("TLSv1.3"), None));
    // HAProxy sends this for connections that it does not decrypt.
    assert_eq!(read(&v2_tcp4(&ssl(0, &[]))).expect("valid").tls, None);
}

#[test]
fn correct_checksum_is_accepted() {
    let mut header = v2_tcp4(&[tlv(4, b"x"), tlv(CRC32C, &[0; 4]), tlv(4, b"y")].concat());
    let checksum = Crc::<u32>::new(&CRC_32_ISCSI).checksum(&header).to_be_bytes();
    let start = header.len() - 8;
    header[start..start + 4].copy_from_slice(&checksum);
    assert_eq!(read(&header).expect("valid").client, client("192.0.2.1:1000"));
    header[16] ^= 1;
    assert_eq!(read(&header), Err(MALFORMED.to_owned()), "another client");
}

#[tokio::test]
async fn anything_else_is_rejected_at_its_first_wrong_byte() {
    for start in ["G", "PROXI", "PROXY\r", "\r\n\r\n\0\r\nQUIT\r", "\x16\x03\x01", "\0"] {
        // The connection stays open: more bytes could follow.
        let (mut peer, mut connection) = tokio::io::duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut peer, start.as_bytes()).await.expect("buffered");
        let error = ProxyHeader::read(&mut connection).await.expect_err(start);
        assert_eq!(error.to_string(), MISSING, "{start:?}");
    }
}

#[tokio::test]
async fn header_that_ends_early_or_is_too_long_is_rejected() {
    for header in [&b"PROXY TCP4 192.0.2.1 127.0.0.1 1000 443\r\n"[..], &v2_tcp4(&[])] {
        for length in 0..header.len() {
            let error = ProxyHeader::read(&mut &header[..length]).await.expect_err("incomplete");
            assert!(error.is::<io::Error>(), "{length}: {error}");
        }
    }
    let longest = v2(0, 0, &vec![0; V2_MAX_BYTES - V2_FIXED_BYTES]);
    assert!(ProxyHeader::read(&mut &longest[..]).await.is_ok());
    let longer = v2(0, 0, &vec![0; V2_MAX_BYTES - V2_FIXED_BYTES + 1]);
    let error = ProxyHeader::read(&mut &longer[..]).await.expect_err("too long");
    assert_eq!(error.to_string(), "the PROXY header is longer than 16384 bytes");
}
