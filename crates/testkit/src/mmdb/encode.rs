//! Encodes values of the data section, MaxMind DB format version 2.

/// A value of the data section.
#[derive(Clone, Debug)]
pub enum Value {
    Text(String),
    F64(f64),
    /// Used by DB-IP and flat databases.
    F32(f32),
    U16(u16),
    U32(u32),
    U64(u64),
    I32(i32),
    Bool(bool),
    Array(Vec<Value>),
    /// The position of another value in the data section; see [`Builder::share`](super::Builder::share).
    Pointer(u32),
    /// Keeps the order of its entries.
    Map(Vec<(String, Value)>),
}

impl Value {
    pub fn map<'k>(entries: impl IntoIterator<Item = (&'k str, Value)>) -> Self {
        Value::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::Text(text) => encode_bytes(2, text.as_bytes(), out),
            Value::F64(number) => encode_bytes(3, &number.to_be_bytes(), out),
            Value::U16(number) => encode_number(5, &number.to_be_bytes(), out),
            Value::U32(number) => encode_number(6, &number.to_be_bytes(), out),
            Value::I32(number) => encode_bytes(8, &number.to_be_bytes(), out),
            Value::U64(number) => encode_number(9, &number.to_be_bytes(), out),
            Value::Bool(flag) => control(14, usize::from(*flag), out),
            Value::F32(number) => encode_bytes(15, &number.to_be_bytes(), out),
            Value::Pointer(position) => encode_pointer(*position, out),
            Value::Array(items) => {
                control(11, items.len(), out);
                items.iter().for_each(|item| item.encode(out));
            }
            Value::Map(entries) => {
                control(7, entries.len(), out);
                for (key, value) in entries {
                    encode_bytes(2, key.as_bytes(), out);
                    value.encode(out);
                }
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

/// Integers are stored without leading zero bytes.
fn encode_number(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    encode_bytes(kind, &bytes[zeros..], out);
}

fn encode_bytes(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    control(kind, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// A pointer has 11, 19, 27 or 32 bits; the shorter ones start counting where the next shorter one ends.
fn encode_pointer(position: u32, out: &mut Vec<u8>) {
    const BASES: [u32; 3] = [0, 1 << 11, (1 << 11) + (1 << 19)];
    let class = BASES.iter().rposition(|base| position >= *base).unwrap_or(0);
    let offset = position - BASES[class];
    let [_, b2, b1, b0] = offset.to_be_bytes();
    let high = |bits: u32| u8::try_from(bits & 7).expect("three bits");
    match class {
        0 => out.extend([0x20 | high(offset >> 8), b0]),
        1 => out.extend([0x28 | high(offset >> 16), b1, b0]),
        _ if offset < 1 << 27 => out.extend([0x30 | high(offset >> 24), b2, b1, b0]),
        _ => out.extend([&[0x38][..], &position.to_be_bytes()].concat()),
    }
}

/// Writes the control byte, then the extended type and the longer size, if needed.
fn control(kind: u8, size: usize, out: &mut Vec<u8>) {
    let (short, rest) = match size {
        0..29 => (size, 0),
        29..285 => (29, 1),
        285..65_821 => (30, 2),
        _ => (31, 3),
    };
    let short = u8::try_from(short).expect("at most 31");
    out.push(if kind <= 7 { kind << 5 | short } else { short });
    if kind > 7 {
        out.push(kind - 7);
    }
    let base = [0, 29, 285, 65_821][rest];
    let length = u32::try_from(size.saturating_sub(base)).expect("value too large").to_be_bytes();
    out.extend_from_slice(&length[4 - rest..]);
}
