//! The 62 letters and digits, unbiased randomness in them and numbers written with them.

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The largest multiple of 62 in a byte: what lies above would favour the first letters.
const UNBIASED: u8 = 248;

/// Fills `out` with random letters and digits, each equally likely.
pub(crate) fn fill_random(out: &mut [u8]) -> Result<(), getrandom::Error> {
    let mut filled = 0;
    while filled < out.len() {
        let mut pool = [0; 64];
        getrandom::fill(&mut pool)?;
        let fair = pool.iter().filter(|byte| **byte < UNBIASED);
        for (slot, byte) in out[filled..].iter_mut().zip(fair) {
            *slot = ALPHABET[usize::from(byte % 62)];
            filled += 1;
        }
    }
    Ok(())
}

/// Writes a number as six digits, the most significant first.
pub(crate) fn encode_u32(mut number: u32) -> [u8; 6] {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(number % 62) as usize];
        number /= 62;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_padded_and_the_largest_fits() {
        assert_eq!(&encode_u32(0), b"000000");
        assert_eq!(&encode_u32(61), b"00000z");
        assert_eq!(&encode_u32(62), b"000010");
        assert_eq!(&encode_u32(u32::MAX), b"4gfFC3");
    }

    #[test]
    fn every_character_occurs() {
        let mut many = vec![0; 20_000];
        fill_random(&mut many).unwrap();
        for letter in ALPHABET {
            let count = many.iter().filter(|byte| *byte == letter).count();
            // 322 are expected; 200 is more than six standard deviations away.
            assert!(count > 200, "{} occurs {count} times", char::from(*letter));
        }
    }
}
