//! Base62: generates unbiased random characters and encodes numbers.

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The largest multiple of 62 that fits in a byte. Random bytes from this value up are discarded: their remainders
/// would favor the first eight characters.
const UNBIASED: u8 = 248;

/// Fills `out` with random base62 characters, each equally likely.
pub(crate) fn fill_random(out: &mut [u8]) -> Result<(), getrandom::Error> {
    let mut filled = 0;
    while filled < out.len() {
        let mut pool = [0; 64];
        getrandom::fill(&mut pool)?;
        let unbiased = pool.iter().filter(|byte| **byte < UNBIASED);
        for (slot, byte) in out[filled..].iter_mut().zip(unbiased) {
            *slot = ALPHABET[usize::from(byte % 62)];
            filled += 1;
        }
    }
    Ok(())
}

/// Encodes a number as six base62 digits, most significant first.
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
    fn numbers_are_padded_to_six_digits() {
        assert_eq!(&encode_u32(0), b"000000");
        assert_eq!(&encode_u32(61), b"00000z");
        assert_eq!(&encode_u32(62), b"000010");
        assert_eq!(&encode_u32(u32::MAX), b"4gfFC3");
    }

    #[test]
    fn random_characters_cover_the_alphabet() {
        let mut many = vec![0; 20_000];
        fill_random(&mut many).unwrap();
        for character in ALPHABET {
            let count = many.iter().filter(|byte| *byte == character).count();
            // 323 are expected; 200 is more than six standard deviations below that.
            assert!(count > 200, "{} occurs {count} times", char::from(*character));
        }
    }
}
