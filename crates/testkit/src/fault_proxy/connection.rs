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

/// Passes bytes in both directions, subject to the current fault, until one side or the fault ends the connection.
pub(super) async fn serve(mut client: TcpStream, target: SocketAddr, faults: Faults, counts: Arc<Counts>) {
    let Ok(mut server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    // Without this option, the kernel would merge dripped bytes.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_in, client_out) = client.split();
    let (server_in, server_out) = server.split();
    let mut responses =
        Responses { server_in, client_out, faults: faults.clone(), counts: &counts, passed: 0, lossy: false };
    let end = tokio::select! {
        end = pass_requests(client_in, server_out, faults, &counts) => end,
        end = responses.pass() => end,
    };
    if end.unwrap_or(End::Reset) == End::Reset {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// Passes bytes from the client to the target. When the client has closed its direction, closes the target's and then
/// waits forever, because the target may still be responding. Returns only after an error, or if the proxy is dropped
/// during a stall.
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
            return std::future::pending().await;
        }
        if counts.is_cut(&buffer[..read], *faults.borrow()) {
            return Ok(End::Reset);
        }
        server_out.write_all(&buffer[..read]).await?;
        counts.request_bytes.fetch_add(read as u64, Ordering::SeqCst);
    }
}

/// The direction from the target to the client, where most faults apply.
struct Responses<'a> {
    server_in: ReadHalf<'a>,
    client_out: WriteHalf<'a>,
    faults: Faults,
    counts: &'a Counts,
    /// Bytes delivered since the fault last changed.
    passed: usize,
    /// Whether bytes were discarded. The stream then has a gap, so it can't be resumed.
    lossy: bool,
}

impl Responses<'_> {
    async fn pass(&mut self) -> io::Result<End> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            if let Some(end) = self.apply_fault_change().await? {
                return Ok(end);
            }
            tokio::select! {
                biased;
                dropped = dropped_before_change(self.faults.clone()) => if dropped { return Ok(End::Reset) },
                read = self.server_in.read(&mut buffer) => match read? {
                    0 => return Ok(End::Closed),
                    read if self.counts.is_cut(&buffer[..read], *self.faults.borrow()) => {
                        return Ok(End::Reset);
                    }
                    read => if let Some(end) = self.deliver(&buffer[..read]).await? { return Ok(end) },
                },
            }
        }
    }

    /// Marks the current fault as seen. Returns how the connection must end because of it, or because of bytes lost to
    /// an earlier one; `None` if it continues.
    async fn apply_fault_change(&mut self) -> io::Result<Option<End>> {
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

    /// Sends bytes to the client, applying a changed fault before each part. Returns how the connection must end, or
    /// `None` once everything is sent.
    async fn deliver(&mut self, mut bytes: &[u8]) -> io::Result<Option<End>> {
        while !bytes.is_empty() {
            if let Some(end) = self.apply_fault_change().await? {
                return Ok(Some(end));
            }
            let fault = *self.faults.borrow();
            let ready = match fault {
                Fault::Delay(delay) => self.unchanged_for(delay).await,
                Fault::Drip(delay) => self.unchanged_for(delay).await,
                // If the fault changes, the loop starts again. If the proxy is dropped, nothing else ends the stall.
                Fault::Stall => dropped_before_change(self.faults.clone()).await,
                _ => true,
            };
            if !ready {
                continue;
            }
            let count = match fault {
                Fault::Drip(_) => 1,
                Fault::ResetAfter(limit) if self.passed >= limit => return Ok(Some(End::Reset)),
                Fault::ResetAfter(limit) => bytes.len().min(limit - self.passed),
                _ => bytes.len(),
            };
            let (now, later) = bytes.split_at(count);
            self.send(now, fault).await?;
            bytes = later;
        }
        Ok(None)
    }

    async fn send(&mut self, bytes: &[u8], fault: Fault) -> io::Result<()> {
        if fault == Fault::Blackhole {
            self.lossy = true;
            self.counts.discarded_bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
            return Ok(());
        }
        self.passed += bytes.len();
        self.client_out.write_all(bytes).await
    }

    /// Waits until `duration` has passed (true), or until the fault changes or the proxy is dropped (false).
    async fn unchanged_for(&self, duration: Duration) -> bool {
        timeout(duration, dropped_before_change(self.faults.clone())).await.is_err()
    }

    /// Closes the direction to the client, then discards the target's bytes until the target closes.
    async fn half_close(&mut self) -> io::Result<End> {
        self.client_out.shutdown().await?;
        let mut sink = vec![0; 16 << 10];
        while self.server_in.read(&mut sink).await? > 0 {}
        Ok(End::Closed)
    }
}

/// Waits until the fault changes (false) or the proxy is dropped (true). Takes a clone of the receiver, so the change
/// still counts as unseen in the original; only `apply_fault_change` marks it as seen.
async fn dropped_before_change(mut faults: Faults) -> bool {
    faults.changed().await.is_err()
}
