//! What a process prints, read in the background so that it never has to wait for us.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Enough for every test that searches logs; a service gone wild must not eat the machine's memory.
const MAX_LINES: usize = 20_000;

/// The lines of one output, up to now.
#[derive(Debug, Clone, Default)]
pub(super) struct Output(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<String>,
    /// Kept apart, so that no amount of other lines pushes them out.
    listening: HashMap<String, SocketAddr>,
}

impl Output {
    /// Reads `pipe` to its end on a thread of its own.
    pub(super) fn collect(pipe: impl Read + Send + 'static) -> Self {
        let output = Self::default();
        let sink = output.clone();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(pipe).split(b'\n');
            while let Some(Ok(line)) = lines.next() {
                sink.push(String::from_utf8_lossy(&line).into_owned());
            }
        });
        output
    }

    /// All lines, each ended by a line feed.
    pub(super) fn text(&self) -> String {
        self.lock().lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// Where `server` said it listens.
    pub(super) fn listening(&self, server: &str) -> Option<SocketAddr> {
        self.lock().listening.get(server).copied()
    }

    fn push(&self, line: String) {
        let mut read = self.lock();
        if let Some((server, addr)) = parse_listening(&line) {
            read.listening.insert(server, addr);
        }
        if read.lines.len() == MAX_LINES {
            read.lines.pop_front();
        }
        read.lines.push_back(line);
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `{"message":"listening","server":"quota","addr":"127.0.0.1:8082",...}`
fn parse_listening(line: &str) -> Option<(String, SocketAddr)> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| line.get(name).and_then(serde_json::Value::as_str);
    if text("message")? != "listening" {
        return None;
    }
    Some((text("server")?.to_owned(), text("addr")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_of_that_server_tells_its_address() {
        let output = Output::default();
        output.push("not json".to_owned());
        output.push(r#"{"message":"other","server":"quota","addr":"127.0.0.1:1"}"#.to_owned());
        assert_eq!(output.listening("quota"), None);
        output.push(r#"{"message":"listening","server":"quota","addr":"127.0.0.1:2"}"#.to_owned());
        assert_eq!(output.listening("quota"), Some(([127, 0, 0, 1], 2).into()));
        assert_eq!(output.listening("admin"), None);
    }

    #[test]
    fn the_oldest_lines_go_first() {
        let output = Output::default();
        for i in 0..=MAX_LINES {
            output.push(i.to_string());
        }
        assert!(output.text().starts_with("1\n"));
        assert!(output.text().ends_with(&format!("{MAX_LINES}\n")));
    }
}
