//! Writes timezone files (TZif, RFC 9636).

/// A timezone whose offset is always `hours` east of UTC.
pub fn fixed_offset(hours: i8) -> Vec<u8> {
    // Version 2 repeats header and data with 64-bit times. Neither block has transitions, so they are the same.
    let mut file = [block(hours), block(hours)].concat();
    // A POSIX rule, whose sign is the opposite.
    file.extend(format!("\n<XXX>{}\n", -i32::from(hours)).bytes());
    file
}

fn block(hours: i8) -> Vec<u8> {
    let mut block = b"TZif2".to_vec();
    block.extend([0; 15]);
    // Counts: UTC flags, standard flags, leap seconds, transitions, types, characters of abbreviations.
    for count in [0_u32, 0, 0, 0, 1, 4] {
        block.extend(count.to_be_bytes());
    }
    block.extend((i32::from(hours) * 3600).to_be_bytes());
    // No daylight saving time, first abbreviation, and its text.
    block.extend(b"\0\0XXX\0");
    block
}
