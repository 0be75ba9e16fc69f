//! Writes small MMDB files: a sample with every field, and test databases of all layouts, valid and invalid.

use std::collections::HashMap;
use std::net::IpAddr;

mod encode;
pub mod sample;

pub use encode::Value;

/// Builds a database. Where networks overlap, the one added last wins.
#[derive(Debug)]
pub struct Builder {
    database_type: String,
    ip_version: u16,
    build_epoch: u64,
    record_size: u16,
    description: Value,
    nodes: Vec<[Target; 2]>,
    data: Vec<u8>,
    offsets: HashMap<Vec<u8>, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Empty,
    Node(usize),
    Data(usize),
}

/// The bytes that precede the metadata section.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

const EMPTY_NODE: [Target; 2] = [Target::Empty; 2];

impl Builder {
    /// A database for both address families. IPv4 is stored under ::/96, as in MaxMind's files.
    pub fn new(database_type: &str) -> Self {
        Builder {
            database_type: database_type.to_owned(),
            ip_version: 6,
            build_epoch: 1_767_225_600,
            record_size: 24,
            description: Value::map([("en", Value::from("written by ip-lookup"))]),
            nodes: vec![EMPTY_NODE],
            data: Vec::new(),
            offsets: HashMap::new(),
        }
    }

    /// A database for IPv4 only.
    pub fn v4(database_type: &str) -> Self {
        Builder { ip_version: 4, ..Builder::new(database_type) }
    }

    #[must_use]
    pub fn build_epoch(self, build_epoch: u64) -> Self {
        Builder { build_epoch, ..self }
    }

    /// Sets the bits per tree record: 24, 28 or 32.
    #[must_use]
    pub fn record_size(self, record_size: u16) -> Self {
        Builder { record_size, ..self }
    }

    /// Replaces the description.
    #[must_use]
    pub fn description(self, text: &str) -> Self {
        Builder { description: Value::map([("en", Value::from(text))]), ..self }
    }

    /// Leaves the description empty, as in many custom-built files.
    #[must_use]
    pub fn without_description(self) -> Self {
        Builder { description: Value::Map(Vec::new()), ..self }
    }

    /// Stores a value for several records and returns a pointer to it.
    #[must_use]
    pub fn share(&mut self, value: &Value) -> Value {
        let position = u32::try_from(self.data.len()).expect("database too large");
        self.data.extend(value.encoded());
        Value::Pointer(position)
    }

    /// Adds a network with its record.
    #[must_use]
    pub fn add(self, network: &str, record: &Value) -> Self {
        self.add_raw(network, record.encoded())
    }

    /// Adds a network with raw record bytes, so that tests can build invalid records.
    #[must_use]
    pub fn add_raw(mut self, network: &str, record: Vec<u8>) -> Self {
        let next = self.data.len();
        let offset = *self.offsets.entry(record.clone()).or_insert(next);
        if offset == next {
            self.data.extend_from_slice(&record);
        }
        let (bits, length) = path(network, self.ip_version);
        self.insert(bits, length, Target::Data(offset));
        self
    }

    fn insert(&mut self, bits: u128, length: u32, target: Target) {
        assert!(length > 0, "the prefix length must not be 0");
        let mut node = 0;
        for depth in 0..length {
            let side = usize::from(bits >> (127 - depth) & 1 == 1);
            if depth + 1 == length {
                self.nodes[node][side] = target;
            } else {
                node = self.child(node, side);
            }
        }
    }

    fn child(&mut self, node: usize, side: usize) -> usize {
        match self.nodes[node][side] {
            Target::Node(child) => child,
            // Both halves inherit the target of the larger network.
            covering => {
                self.nodes.push([covering; 2]);
                self.nodes[node][side] = Target::Node(self.nodes.len() - 1);
                self.nodes.len() - 1
            }
        }
    }

    /// Serializes the file.
    pub fn finish(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for node in &self.nodes {
            self.write_node(node.map(|target| self.pointer(target)), &mut file);
        }
        file.extend_from_slice(&[0; 16]);
        file.extend_from_slice(&self.data);
        file.extend_from_slice(MARKER);
        file.extend(self.metadata().encoded());
        file
    }

    fn pointer(&self, target: Target) -> u32 {
        let number = match target {
            Target::Empty => self.nodes.len(),
            Target::Node(node) => node,
            Target::Data(offset) => self.nodes.len() + 16 + offset,
        };
        u32::try_from(number).expect("database too large")
    }

    fn write_node(&self, [left, right]: [u32; 2], file: &mut Vec<u8>) {
        let (l, r) = (left.to_be_bytes(), right.to_be_bytes());
        match self.record_size {
            24 => file.extend([l[1], l[2], l[3], r[1], r[2], r[3]]),
            28 => file.extend([l[1], l[2], l[3], l[0] << 4 | r[0], r[1], r[2], r[3]]),
            _ => file.extend(l.into_iter().chain(r)),
        }
    }

    fn metadata(&self) -> Value {
        let nodes = u32::try_from(self.nodes.len()).expect("database too large");
        Value::map([
            ("binary_format_major_version", Value::U16(2)),
            ("binary_format_minor_version", Value::U16(0)),
            ("build_epoch", Value::U64(self.build_epoch)),
            ("database_type", Value::from(self.database_type.as_str())),
            ("description", self.description.clone()),
            ("ip_version", Value::U16(self.ip_version)),
            ("languages", Value::Array(vec![Value::from("en")])),
            ("node_count", Value::U32(nodes)),
            ("record_size", Value::U16(self.record_size)),
        ])
    }
}

/// The network's address, left-aligned, and its prefix length in the tree.
fn path(network: &str, ip_version: u16) -> (u128, u32) {
    let (address, length) = network.split_once('/').expect("a network is ADDRESS/LENGTH");
    let length: u32 = length.parse().expect("valid prefix length");
    match (address.parse().expect("valid IP address"), ip_version) {
        (IpAddr::V4(v4), 4) => (u128::from(v4.to_bits()) << 96, length),
        (IpAddr::V4(v4), _) => (u128::from(v4.to_bits()), length + 96),
        (IpAddr::V6(v6), _) => (v6.to_bits(), length),
    }
}
