//! One connection through the fault proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Counts, Fault};

type Faults = watch::Receiver<Fault>;

/// How a connection ends for both sides.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// In order (FIN).
    Closed,
    /// Abruptly (RST).
    Reset,
}

/// Passes bytes both ways, as the fault of the moment says, until one side or the fault ends it.
pub(super) async fn serve(mut client: TcpStream, target: SocketAddr, faults: Faults, counts: Arc<Counts>) {
    let Ok(mut server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    // Or the kernel would put dripped bytes together again.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_in, client_out) = client.split();
    let (server_in, server_out) = server.split();
    let mut replies =
        Replies { server_in, client_out, faults: faults.clone(), counts: &counts, passed: 0, lossy: false };
    let end = tokio::select! {
        end = pass_requests(client_in, server_out, faults, &counts) => end,
        end = replies.pass() => end,
    };
    if end.unwrap_or(End::Reset) == End::Reset {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// Ends only with an error: after the client's last byte the server may still be answering.
async fn pass_requests(
    mut client_in: ReadHalf<'_>,
    mut server_out: WriteHalf<'_>,
    mut faults: Faults,
    counts: &Counts,
) -> io::Result<End> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = client_in.read(&mut buffer).await?;
        if faults.wait_for(|fault| *fault != Fault::Stall).await.is_err() {
            return Ok(End::Reset);
        }
        if read == 0 {
            server_out.shutdown().await?;
            std::future::pending::<()>().await;
        }
        server_out.write_all(&buffer[..read]).await?;
        counts.requested.fetch_add(read as u64, Ordering::SeqCst);
    }
}

/// The way back, where the faults are.
struct Replies<'a> {
    server_in: ReadHalf<'a>,
    client_out: WriteHalf<'a>,
    faults: Faults,
    counts: &'a Counts,
    /// Bytes delivered since the fault last changed.
    passed: usize,
    /// Something was swallowed: this stream can't go on.
    lossy: bool,
}

impl Replies<'_> {
    async fn pass(&mut self) -> io::Result<End> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            if let Some(end) = self.react().await? {
                return Ok(end);
            }
            tokio::select! {
                biased;
                // Looked at only: `react` takes note of the change.
                gone = change(self.faults.clone()) => if gone { return Ok(End::Reset) },
                read = self.server_in.read(&mut buffer) => match read? {
                    0 => return Ok(End::Closed),
                    read => if let Some(end) = self.deliver(&buffer[..read]).await? { return Ok(end) },
                },
            }
        }
    }

    /// What the fault of this moment does to a connection on which nothing is under way.
    async fn react(&mut self) -> io::Result<Option<End>> {
        if self.faults.has_changed().unwrap_or(false) {
            self.passed = 0;
        }
        let fault = *self.faults.borrow_and_update();
        match fault {
            Fault::Refuse => Ok(Some(End::Reset)),
            _ if self.lossy && fault != Fault::Blackhole => Ok(Some(End::Reset)),
            Fault::HalfClose => self.half_close().await.map(Some),
            _ => Ok(None),
        }
    }

    /// Hands bytes on, following each change of the fault while that takes time.
    async fn deliver(&mut self, mut bytes: &[u8]) -> io::Result<Option<End>> {
        while !bytes.is_empty() {
            if let Some(end) = self.react().await? {
                return Ok(Some(end));
            }
            let fault = *self.faults.borrow();
            let ready = match fault {
                Fault::Delay(by) => self.unchanged_for(by).await,
                Fault::Drip(pause) => self.unchanged_for(pause).await,
                Fault::Stall => change(self.faults.clone()).await,
                _ => true,
            };
            if !ready {
                continue;
            }
            let count = match fault {
                Fault::Drip(_) => 1,
                Fault::CutAfter(limit) if self.passed >= limit => return Ok(Some(End::Reset)),
                Fault::CutAfter(limit) => bytes.len().min(limit - self.passed),
                _ => bytes.len(),
            };
            let (now, later) = bytes.split_at(count);
            self.hand_on(now, fault).await?;
            bytes = later;
        }
        Ok(None)
    }

    async fn hand_on(&mut self, bytes: &[u8], fault: Fault) -> io::Result<()> {
        if fault == Fault::Blackhole {
            self.lossy = true;
            self.counts.swallowed.fetch_add(bytes.len() as u64, Ordering::SeqCst);
            return Ok(());
        }
        self.passed += bytes.len();
        self.client_out.write_all(bytes).await
    }

    /// Whether the fault stayed as it is for `time`.
    async fn unchanged_for(&self, time: Duration) -> bool {
        timeout(time, change(self.faults.clone())).await.is_err()
    }

    /// Nothing more to the client; what the target still says is read and dropped until it closes.
    async fn half_close(&mut self) -> io::Result<End> {
        self.client_out.shutdown().await?;
        let mut sink = vec![0; 16 << 10];
        while self.server_in.read(&mut sink).await? > 0 {}
        Ok(End::Closed)
    }
}

/// Waits for the next change, without taking note of it in the receiver this was cloned from (a clone has seen what
/// its original has). True when no change can come any more.
async fn change(mut faults: Faults) -> bool {
    faults.changed().await.is_err()
}
