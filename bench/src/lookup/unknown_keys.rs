//! Background load: requests with malformed or unknown API keys at a fixed rate, while valid keys are measured.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use testkit::lookup::unknown_key;

/// Requests per second of all threads together.
const RATE: u32 = 10_000;

/// The threads send in turn. Each waits for its response.
const THREADS: u32 = 4;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub enum InvalidKey {
    /// The checksum is wrong, so lookup-svc rejects it without a call to quota-svc.
    Malformed,
    /// Well-formed, so it needs a store call.
    Unknown,
}

/// The running load. It ends when this is stopped or dropped. Uses threads, because tokio's timers have a resolution
/// of 1 ms: requests from tasks would arrive in bursts.
pub struct InvalidKeyLoad {
    threads: Vec<JoinHandle<anyhow::Result<u64>>>,
    stop: Arc<AtomicBool>,
    started: Instant,
}

impl InvalidKeyLoad {
    pub fn start(addr: SocketAddr, invalid_key: InvalidKey) -> Self {
        let (stop, started) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let threads = (0..THREADS).map(|index| {
            let stop = stop.clone();
            let first_due = started + Duration::from_secs(1) * index / RATE;
            thread::spawn(move || send_requests(addr, invalid_key, first_due, &stop))
        });
        Self { threads: threads.collect(), stop, started }
    }

    /// Stops the load and returns its rate in requests per second. Fails if a response was not 401.
    pub fn stop(mut self) -> anyhow::Result<f64> {
        let elapsed = self.started.elapsed();
        self.stop.store(true, Ordering::Relaxed);
        let mut requests = 0;
        for thread in self.threads.drain(..) {
            requests += thread.join().map_err(|_| anyhow!("a load thread panicked"))??;
        }
        Ok(requests as f64 / elapsed.as_secs_f64())
    }
}

impl Drop for InvalidKeyLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends this thread's share of the requests until `stop` is set. Returns their number.
fn send_requests(
    addr: SocketAddr,
    invalid_key: InvalidKey,
    first_due: Instant,
    stop: &AtomicBool,
) -> anyhow::Result<u64> {
    // In production, other machines would send this load. Here it has the lowest priority, so that the measured
    // processes get the CPU first. On Linux, `nice` applies to the calling thread only.
    rustix::process::nice(19)?;
    let mut stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut due, mut requests) = (first_due, 0);
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due += Duration::from_secs(1) * THREADS / RATE;
        let key = invalid_key.generate();
        let request =
            format!("GET /api/v1/ip HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let status_line = read_response(&mut reader)?;
        ensure!(status_line.starts_with("HTTP/1.1 401 "), "an invalid key got {status_line}");
        requests += 1;
    }
    Ok(requests)
}

/// Reads one complete response. Returns its status line.
fn read_response(stream: &mut impl BufRead) -> anyhow::Result<String> {
    let (mut status_line, mut line, mut length) = (String::new(), String::new(), None);
    stream.read_line(&mut status_line)?;
    while line != "\r\n" {
        line.clear();
        ensure!(stream.read_line(&mut line)? > 0, "the connection was closed");
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse()?);
        }
    }
    let mut body = vec![0; length.context("a response has no Content-Length")?];
    stream.read_exact(&mut body)?;
    Ok(status_line)
}

impl InvalidKey {
    fn generate(self) -> String {
        let mut key = unknown_key();
        if let Self::Malformed = self {
            let wrong_digit = if key.ends_with('0') { '1' } else { '0' };
            key.pop();
            key.push(wrong_digit);
        }
        key
    }
}
