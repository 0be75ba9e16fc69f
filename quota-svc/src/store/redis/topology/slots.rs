//! Parses the reply to `CLUSTER SLOTS` and the addresses in redirections.

use redis::Value;

use super::super::target::Node;

/// First slot, last slot, master.
pub type Range = (u16, u16, Node);

/// `sender` is the host that sent the reply. It replaces the host that a node may leave out of its own address.
pub fn parse(reply: &Value, sender: &str) -> Vec<Range> {
    let Value::Array(ranges) = reply else { return Vec::new() };
    ranges.iter().filter_map(|range| parse_range(range, sender)).collect()
}

fn parse_range(range: &Value, sender: &str) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => {
            String::from_utf8_lossy(host).into_owned()
        }
        _ => sender.to_owned(),
    };
    let node = (host, u16::try_from(*port).ok()?);
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, node))
}

/// Parses `HOST:PORT` of a redirection. The host may be empty, meaning `sender`, or contain colons (IPv6).
pub fn parse_address(address: &str, sender: &str) -> Option<Node> {
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { sender } else { host.trim_matches(['[', ']']) };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Value {
        Value::BulkString(s.as_bytes().to_vec())
    }

    #[test]
    fn masters_are_parsed_and_replicas_ignored() {
        let master = Value::Array(vec![text("10.0.0.1"), Value::Int(6379), text("id"), Value::Array(vec![])]);
        let replica = Value::Array(vec![text("10.0.0.2"), Value::Int(6379)]);
        let without_host = Value::Array(vec![text(""), Value::Int(7000)]);
        let reply = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(5460), master, replica]),
            Value::Array(vec![Value::Int(5461), Value::Int(16_383), without_host]),
            Value::Nil,
        ]);
        let expected =
            vec![(0, 5460, ("10.0.0.1".to_owned(), 6379)), (5461, 16_383, ("seed".to_owned(), 7000))];
        assert_eq!(parse(&reply, "seed"), expected);
        assert_eq!(parse(&Value::Nil, "seed"), vec![]);
    }

    #[test]
    fn redirection_addresses_are_parsed() {
        assert_eq!(parse_address("10.0.0.1:7000", "x"), Some(("10.0.0.1".to_owned(), 7000)));
        assert_eq!(parse_address(":7000", "x"), Some(("x".to_owned(), 7000)));
        assert_eq!(parse_address("2001:db8::1:7000", "x"), Some(("2001:db8::1".to_owned(), 7000)));
        assert_eq!(parse_address("nonsense", "x"), None);
    }
}
