//! Records what an edge proxy sends to lookup-svc.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Forwards connections of the edge proxy to lookup-svc. Has its own threads, because curl blocks that of the test. They end
/// with the test's process.
#[derive(Debug)]
pub struct Recorder {
    addr: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// Starts to forward connections to `upstream`.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("free port");
        let addr = listener.local_addr().expect("bound address");
        let received = Arc::<Mutex<Vec<u8>>>::default();
        let recorded = Arc::clone(&received);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let recorded = Arc::clone(&recorded);
                thread::spawn(move || forward(client, upstream, &recorded));
            }
        });
        Self { addr, received }
    }

    /// The address for the edge proxy.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// All bytes that the edge proxy has sent so far.
    #[must_use]
    pub fn received(&self) -> String {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&received).into_owned()
    }
}

/// Forwards one connection until either side closes it. Bytes are recorded before they are forwarded, so a request that has a
/// response is recorded.
fn forward(mut client: TcpStream, upstream: SocketAddr, received: &Mutex<Vec<u8>>) -> io::Result<()> {
    let mut server = TcpStream::connect(upstream)?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from_server, &mut to_client);
        to_client.shutdown(Shutdown::Both)
    });
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut bytes) {
        received.lock().unwrap_or_else(PoisonError::into_inner).extend(&bytes[..length]);
        server.write_all(&bytes[..length])?;
    }
    server.shutdown(Shutdown::Write)
}
