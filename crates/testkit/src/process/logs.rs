//! Collects the output of a process in the background, so that the process never blocks on a full pipe.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Enough for every test that searches logs. Bounds the memory if a service logs without end.
const MAX_LINES: usize = 20_000;

/// The lines of one output stream so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Output(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<String>,
    /// Listen address of each server. Stored separately, so that [`MAX_LINES`] never drops it.
    listening: HashMap<String, SocketAddr>,
    /// Whether the pipe has ended.
    ended: bool,
}

impl Output {
    /// Reads `pipe` to its end on a new thread.
    pub(super) fn collect(pipe: impl Read + Send + 'static) -> Self {
        let output = Self::default();
        let sink = output.clone();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(pipe).split(b'\n');
            while let Some(Ok(line)) = lines.next() {
                sink.push(String::from_utf8_lossy(&line).into_owned());
            }
            sink.lock().ended = true;
        });
        output
    }

    /// Whether the process, and all that inherited its pipe, have closed it.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// All lines, each followed by a newline.
    pub(super) fn text(&self) -> String {
        self.lock().lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// The listen address of `server`; `None` until it is logged.
    pub(super) fn listen_addr(&self, server: &str) -> Option<SocketAddr> {
        self.lock().listening.get(server).copied()
    }

    fn push(&self, line: String) {
        let mut state = self.lock();
        if let Some((server, addr)) = parse_listening(&line) {
            state.listening.insert(server, addr);
        }
        if state.lines.len() == MAX_LINES {
            state.lines.pop_front();
        }
        state.lines.push_back(line);
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses a line such as `{"message":"listening","server":"quota","addr":"127.0.0.1:8082",...}`. Returns `None` for any
/// other line.
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
    fn listen_addr_is_read_from_the_matching_line() {
        let output = Output::default();
        output.push("not json".to_owned());
        output.push(r#"{"message":"other","server":"quota","addr":"127.0.0.1:1"}"#.to_owned());
        assert_eq!(output.listen_addr("quota"), None);
        output.push(r#"{"message":"listening","server":"quota","addr":"127.0.0.1:2"}"#.to_owned());
        assert_eq!(output.listen_addr("quota"), Some(([127, 0, 0, 1], 2).into()));
        assert_eq!(output.listen_addr("admin"), None);
    }

    #[test]
    fn oldest_lines_are_dropped_first() {
        let output = Output::default();
        for i in 0..=MAX_LINES {
            output.push(i.to_string());
        }
        assert!(output.text().starts_with("1\n"));
        assert!(output.text().ends_with(&format!("{MAX_LINES}\n")));
    }
}
