//! Requests with keys that nobody has, at a fixed rate, beside those that are measured (F18 of faults.md).

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use e2e::lookup::unknown_key;

/// Requests a second in all.
const RATE: u32 = 10_000;

/// So many of them send in turn, each waiting for its answer.
const STRANGERS: u32 = 4;

const PATIENCE: Duration = Duration::from_secs(5);

/// What kind of key they try.
#[derive(Clone, Copy, Debug)]
pub enum Tried {
    /// Its checksum is wrong: refused without a question to anyone.
    Malformed,
    /// Of the right form: the store has to be asked.
    Unknown,
}

/// The strangers at work, until they are stopped or dropped. They are threads that wait in the kernel, and not tasks:
/// a timer of tokio has milliseconds, so that their requests would come in crowds.
pub struct Strangers {
    threads: Vec<JoinHandle<anyhow::Result<u64>>>,
    stop: Arc<AtomicBool>,
    since: Instant,
}

impl Strangers {
    /// Lets them begin.
    pub fn start(at: SocketAddr, tried: Tried) -> Self {
        let (stop, since) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let threads = (0..STRANGERS).map(|nth| {
            let stop = stop.clone();
            thread::spawn(move || knock(at, tried, since + Duration::from_secs(1) * nth / RATE, &stop))
        });
        Self { threads: threads.collect(), stop, since }
    }

    /// Ends them; how many were refused a second. Anything but a refusal is an error.
    pub fn stop(mut self) -> anyhow::Result<f64> {
        let took = self.since.elapsed();
        self.stop.store(true, Ordering::Relaxed);
        let mut refused = 0;
        for thread in self.threads.drain(..) {
            refused += thread.join().map_err(|_| anyhow!("a stranger panicked"))??;
        }
        Ok(refused as f64 / took.as_secs_f64())
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn knock(at: SocketAddr, tried: Tried, first: Instant, stop: &AtomicBool) -> anyhow::Result<u64> {
    // Elsewhere they would have processors of their own: here their work shall wait for what is measured. On Linux this
    // holds for the one thread.
    rustix::process::nice(19)?;
    let mut stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let (mut due, mut refused) = (first, 0);
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        due += Duration::from_secs(1) * STRANGERS / RATE;
        let key = tried.key();
        let request =
            format!("GET /api/v1/ip HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let status = answer(&mut answers)?;
        ensure!(status.starts_with("HTTP/1.1 401 "), "a stranger was answered: {status}");
        refused += 1;
    }
    Ok(refused)
}

/// Reads one answer to its end; its first line.
fn answer(stream: &mut impl BufRead) -> anyhow::Result<String> {
    let (mut status, mut line, mut length) = (String::new(), String::new(), None);
    stream.read_line(&mut status)?;
    while line != "\r\n" {
        line.clear();
        ensure!(stream.read_line(&mut line)? > 0, "the connection was closed");
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse()?);
        }
    }
    let mut body = vec![0; length.context("an answer without a length")?];
    stream.read_exact(&mut body)?;
    Ok(status)
}

impl Tried {
    fn key(self) -> String {
        let mut key = unknown_key();
        if let Self::Malformed = self {
            let last = if key.ends_with('0') { '1' } else { '0' };
            key.pop();
            key.push(last);
        }
        key
    }
}
