//! Evaluates SPDX license expressions such as `(MIT OR Apache-2.0) AND Unicode-3.0`.

use std::collections::BTreeSet;
use std::iter::Peekable;

/// Whether the expression can be fulfilled with the allowed licenses. An exception (`WITH …`) only adds permissions, so
/// it is ignored. Old packages use `/` instead of `OR`.
pub fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let result = any(&mut words, allowed);
    result && words.next().is_none()
}

/// Alternatives: `A OR B`. `AND` binds tighter.
fn any<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &BTreeSet<&str>) -> bool {
    let mut result = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        result |= all(words, allowed);
    }
    result
}

fn all<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &BTreeSet<&str>) -> bool {
    let mut result = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        result &= one(words, allowed);
    }
    result
}

/// A license, or an expression in parentheses.
fn one<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &BTreeSet<&str>) -> bool {
    match words.next() {
        Some("(") => {
            let result = any(words, allowed);
            words.next() == Some(")") && result
        }
        Some(license) => {
            if words.next_if_eq(&"WITH").is_some() {
                words.next();
            }
            allowed.contains(license)
        }
        None => false,
    }
}

#[test]
fn license_expressions_are_evaluated() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0"]);
    for expression in [
        "MIT",
        "GPL-3.0 OR MIT",
        "GPL-3.0/Apache-2.0",
        "MIT AND Apache-2.0",
        "GPL-3.0 AND ISC OR MIT",
        "(GPL-3.0 OR MIT) AND Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR MIT) AND ISC", "MIT)", "(MIT", "MIT ISC"]
    {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}
