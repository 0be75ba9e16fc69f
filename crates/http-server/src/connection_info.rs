//! What the server knows about a request besides its contents: the connection it arrived on, and its ID.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::{fmt, net::SocketAddr, os::fd::RawFd, time::Duration};

use http::{HeaderName, HeaderValue};
use poem::Request;

use crate::{proxy_header::ProxyHeader, tls::TlsInfo};

/// The header with the ID.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Characters of a generated ID, with 5 bits each. Among a billion IDs, two are equal with a probability of 1 in 2 million.
const GENERATED_LENGTH: usize = 16;
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The origin of a request. Each request has it as an extension.
#[derive(Clone, Debug)]
pub struct RequestOrigin {
    /// The connection.
    pub connection: Arc<ConnectionInfo>,
    /// The request's ID.
    pub id: RequestId,
}

impl RequestOrigin {
    /// The origin of a request. `None` in tests without a server.
    pub fn of(request: &Request) -> Option<&Self> {
        request.extensions().get()
    }

    /// Whether the request arrived from a load balancer that does not name the client.
    pub fn client_is_unknown(request: &Request) -> bool {
        Self::of(request).is_some_and(|origin| origin.connection.client_is_unknown())
    }
}

/// A connection to this server.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The other end of the TCP connection, never IPv4-mapped.
    pub peer: SocketAddr,
    /// What the load balancer sent. `None` on a port without PROXY protocol.
    pub proxied: Option<ProxyHeader>,
    /// `None` on a port without TLS.
    pub tls: Option<TlsInfo>,
    /// The descriptor of the open socket. Not a duplicate, which would count against the limit of open files.
    pub(crate) socket: Mutex<Option<RawFd>>,
}

impl ConnectionInfo {
    /// The client that the load balancer names, otherwise the peer. Requests have it as their remote address.
    /// `X-Forwarded-For` and similar headers are trusted only if this address is a trusted proxy.
    pub fn client(&self) -> SocketAddr {
        self.proxied.as_ref().and_then(|header| header.client).unwrap_or(self.peer)
    }

    /// Whether the load balancer names no client. Then forwarding headers may come from anybody and are not trusted.
    pub fn client_is_unknown(&self) -> bool {
        self.proxied.as_ref().is_some_and(|header| header.client.is_none())
    }

    /// The smoothed round-trip time to the peer, measured by the kernel.
    pub fn round_trip_time(&self) -> Option<Duration> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.and_then(round_trip_time)
    }

    /// Must be called before the socket is closed: its number is reused, and an HTTP/2 stream may outlive its connection.
    pub(crate) fn forget_socket(&self) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The ID of a request: in the header `X-Request-Id` of its response, in the log lines about it and in its span. 1 to 64
/// characters, each a letter, a digit, `.`, `_` or `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Creates an ID from keyed hashes of a counter: as unique as random numbers, without a clue how many there are.
    pub fn generate() -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Relaxed);
        let half = |index: u8| u128::from(KEY.hash_one((number, index)));
        let bits = half(0) << 64 | half(1);
        let digits: [u8; GENERATED_LENGTH] =
            std::array::from_fn(|index| DIGITS[(bits >> (5 * index)) as usize % DIGITS.len()]);
        // Every digit is valid in a header.
        Self(HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("-")))
    }

    /// The ID in an `X-Request-Id`, if it is valid. Only for trusted proxies: a client could choose any ID.
    pub fn received(value: &HeaderValue) -> Option<Self> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let is_valid = (1..=64).contains(&value.len()) && value.as_bytes().iter().all(is_allowed);
        is_valid.then(|| Self(value.clone()))
    }

    /// The value of the header.
    pub fn to_header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// The ID as text.
    pub fn as_str(&self) -> &str {
        // All characters are ASCII.
        self.0.to_str().unwrap_or_default()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The smoothed round-trip time of a socket. `None` if the kernel has measured none yet, or on other systems than Linux.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "getsockopt has no safe wrapper for TCP_INFO")]
fn round_trip_time(socket: RawFd) -> Option<Duration> {
    // SAFETY: the struct has only integers, so zeroes are valid where the kernel writes nothing.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).ok()?;
    let (value, level) = ((&raw mut info).cast(), libc::IPPROTO_TCP);
    // SAFETY: `info` and `length` are valid for writes, and the kernel writes at most `length` bytes. A descriptor that is
    // closed or no TCP socket makes the call fail, and `forget_socket` prevents the use of another connection's.
    let result = unsafe { libc::getsockopt(socket, level, libc::TCP_INFO, value, &raw mut length) };
    (result == 0 && info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into()))
}

#[cfg(not(target_os = "linux"))]
fn round_trip_time(_: RawFd) -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        fs::File,
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd,
    };

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn forgotten_socket_is_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let _client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (server, peer) = listener.accept().expect("accept");
        let socket = Mutex::new(Some(server.as_raw_fd()));
        let info = ConnectionInfo { peer, proxied: None, tls: None, socket };
        assert!(info.round_trip_time().is_some());
        // The descriptor is still open, as it would be if another connection had got its number.
        info.forget_socket();
        assert_eq!(info.round_trip_time(), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_tcp_sockets_have_a_round_trip_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let _client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (server, _) = listener.accept().expect("accept");
        let rtt = round_trip_time(server.as_raw_fd()).expect("measured by the handshake");
        assert!(rtt < Duration::from_secs(1), "{rtt:?}");
        let file = File::open("/dev/null").expect("open");
        assert_eq!(round_trip_time(file.as_raw_fd()), None);
        assert_eq!(round_trip_time(-1), None);
    }

    fn received(value: &[u8]) -> Option<RequestId> {
        RequestId::received(&HeaderValue::from_bytes(value).expect("a header value"))
    }

    #[test]
    fn generated_ids_are_valid_and_differ() {
        let ids: HashSet<String> = (0..10_000).map(|_| RequestId::generate().to_string()).collect();
        assert_eq!(ids.len(), 10_000);
        for id in &ids {
            assert_eq!(id.len(), GENERATED_LENGTH);
            assert_eq!(received(id.as_bytes()).expect("a valid ID").as_str(), id);
        }
        let first: HashSet<char> = ids.iter().filter_map(|id| id.chars().next()).collect();
        assert_eq!(first.len(), DIGITS.len(), "every digit varies");
    }

    #[test]
    fn generated_id_is_the_same_as_header_and_text() {
        let id = RequestId::generate();
        assert_eq!(id.to_header(), id.as_str());
    }

    #[test]
    fn short_id_of_safe_characters_is_received() {
        let longest = [b'x'; 64];
        for valid in [&b"a"[..], b"AZaz09._-", b"0af7651916cd43dd8448eb211c80319c", &longest] {
            assert_eq!(received(valid).expect("a valid ID").as_str().as_bytes(), valid);
        }
        let too_long = [b'x'; 65];
        for invalid in [&b""[..], b"a b", b"a\"", b"a=b", b"a\tb", b"a/b", b"a:b", b"\xc3\xa9", &too_long] {
            assert_eq!(received(invalid), None, "{invalid:?}");
        }
    }
}
