//! The kernel's measurements of a TCP connection. The only unsafe code of the workspace: no safe wrapper of `TCP_INFO`
//! exists in our dependencies.

use std::{os::fd::RawFd, time::Duration};

/// The smoothed round-trip time of a socket. `None` if the kernel has measured none yet, or on other systems than Linux.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "getsockopt has no safe wrapper for TCP_INFO")]
pub(crate) fn round_trip_time(socket: RawFd) -> Option<Duration> {
    use std::mem::{MaybeUninit, size_of};

    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: `info` and `length` are valid for writes, and the kernel writes at most `length` bytes. An invalid or
    // foreign descriptor makes the call fail.
    let result = unsafe {
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 {
        return None;
    }
    // SAFETY: the struct has only integers, so zeroes are valid where the kernel wrote nothing.
    let micros = unsafe { info.assume_init() }.tcpi_rtt;
    (micros > 0).then(|| Duration::from_micros(micros.into()))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn round_trip_time(_: RawFd) -> Option<Duration> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{
        fs::File,
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd,
    };

    use super::*;

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
}
