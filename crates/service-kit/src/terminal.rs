//! What the terminal and its user want: colors or plain text.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::IsTerminal,
};

/// Whether to write colors to `stream`: it is a terminal that can show them, and `NO_COLOR` does not turn them off.
pub fn use_color(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && allows_color(env::var_os)
}

/// `variable` returns the value of an environment variable.
fn allows_color(variable: impl Fn(&'static str) -> Option<OsString>) -> bool {
    let off = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    !off && variable("TERM").as_deref() != Some(OsStr::new("dumb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_turn_colors_off() {
        for (no_color, term, expected) in [
            (None, None, true),
            (None, Some("xterm"), true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (Some("0"), None, false),
            (None, Some("dumb"), false),
        ] {
            let variable = |name| match name {
                "NO_COLOR" => no_color.map(OsString::from),
                _ => term.map(OsString::from),
            };
            assert_eq!(allows_color(variable), expected, "NO_COLOR={no_color:?} TERM={term:?}");
        }
    }
}
