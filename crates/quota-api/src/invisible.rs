//! Characters that logins, key names, reasons and imported texts must not contain: they are not visible, or change the order of others, so
//! that two different texts look alike.

/// Ranges of zero-width, bidirectional and other format characters (Unicode general category Cf, fillers and line
/// separators). Control characters (Cc) are checked with [`char::is_control`].
const RANGES: [(char, char); 22] = [
    ('\u{ad}', '\u{ad}'),       // soft hyphen
    ('\u{34f}', '\u{34f}'),     // combining grapheme joiner
    ('\u{600}', '\u{605}'),     // Arabic number signs
    ('\u{61c}', '\u{61c}'),     // Arabic letter mark (bidi)
    ('\u{6dd}', '\u{6dd}'),     // Arabic end of ayah
    ('\u{70f}', '\u{70f}'),     // Syriac abbreviation mark
    ('\u{115f}', '\u{1160}'),   // Hangul fillers
    ('\u{17b4}', '\u{17b5}'),   // Khmer inherent vowels
    ('\u{180b}', '\u{180f}'),   // Mongolian variation selectors and vowel separator
    ('\u{200b}', '\u{200f}'),   // zero-width space, joiners, bidi marks
    ('\u{2028}', '\u{202e}'),   // line and paragraph separators, bidi embeddings and overrides
    ('\u{2060}', '\u{206f}'),   // word joiner, invisible operators, bidi isolates
    ('\u{2800}', '\u{2800}'),   // blank Braille pattern
    ('\u{3164}', '\u{3164}'),   // Hangul filler
    ('\u{feff}', '\u{feff}'),   // zero-width no-break space
    ('\u{ffa0}', '\u{ffa0}'),   // halfwidth Hangul filler
    ('\u{fff0}', '\u{fffc}'),   // unassigned, interlinear annotation, object replacement
    ('\u{110bd}', '\u{110bd}'), // Kaithi number sign
    ('\u{110cd}', '\u{110cd}'), // Kaithi number sign above
    ('\u{1bca0}', '\u{1bca3}'), // shorthand format controls
    ('\u{1d173}', '\u{1d17a}'), // musical format controls
    ('\u{e0000}', '\u{e0fff}'), // tags and variation selectors
];

/// Whether a new text must not contain this character.
pub fn is_invisible(c: char) -> bool {
    c.is_control() || RANGES.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// Whether this is a variation selector. It changes how the character before it looks, as in emoji, but is not visible
/// after other characters.
pub fn is_variation_selector(c: char) -> bool {
    ('\u{fe00}'..='\u{fe0f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_width_bidi_and_control_characters_are_invisible() {
        for c in
            "\u{0}\u{7f}\u{85}\u{ad}\u{200b}\u{200d}\u{200e}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}".chars()
        {
            assert!(is_invisible(c), "{:x}", c as u32);
        }
        for c in "a1-_.@+ éß東Ж한\u{1f600}\u{fe0f}…·\u{2010}".chars() {
            assert!(!is_invisible(c), "{:x}", c as u32);
        }
    }

    #[test]
    fn ranges_are_in_order() {
        assert!(RANGES.windows(2).all(|pair| pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0));
    }
}
