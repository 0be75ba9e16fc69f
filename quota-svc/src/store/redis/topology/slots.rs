//! `CLUSTER SLOTS`: which master serves which slots.

use redis::Value;

use super::super::target::Node;

/// Slots from the first to the second number, and their master.
pub type Range = (u16, u16, Node);

/// Reads the answer; `asked` is the host that gave it, which it leaves out of its own address.
pub fn parse(answer: &Value, asked: &str) -> Vec<Range> {
    let Value::Array(ranges) = answer else { return Vec::new() };
    ranges.iter().filter_map(|range| parse_range(range, asked)).collect()
}

fn parse_range(range: &Value, asked: &str) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => {
            String::from_utf8_lossy(host).into_owned()
        }
        _ => asked.to_owned(),
    };
    let node = (host, u16::try_from(*port).ok()?);
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, node))
}

/// `HOST:PORT` as redirections write it; the host may be left out and may hold colons.
pub fn parse_address(address: &str, asked: &str) -> Option<Node> {
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { asked } else { host.trim_matches(['[', ']']) };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Value {
        Value::BulkString(s.as_bytes().to_vec())
    }

    #[test]
    fn masters_are_read_and_replicas_passed_over() {
        let master = Value::Array(vec![text("10.0.0.1"), Value::Int(6379), text("id"), Value::Array(vec![])]);
        let replica = Value::Array(vec![text("10.0.0.2"), Value::Int(6379)]);
        let nameless = Value::Array(vec![text(""), Value::Int(7000)]);
        let answer = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(5460), master, replica]),
            Value::Array(vec![Value::Int(5461), Value::Int(16_383), nameless]),
            Value::Nil,
        ]);
        let expected =
            vec![(0, 5460, ("10.0.0.1".to_owned(), 6379)), (5461, 16_383, ("seed".to_owned(), 7000))];
        assert_eq!(parse(&answer, "seed"), expected);
        assert_eq!(parse(&Value::Nil, "seed"), vec![]);
    }

    #[test]
    fn addresses_of_redirections_are_read() {
        assert_eq!(parse_address("10.0.0.1:7000", "x"), Some(("10.0.0.1".to_owned(), 7000)));
        assert_eq!(parse_address(":7000", "x"), Some(("x".to_owned(), 7000)));
        assert_eq!(parse_address("2001:db8::1:7000", "x"), Some(("2001:db8::1".to_owned(), 7000)));
        assert_eq!(parse_address("nonsense", "x"), None);
    }
}
