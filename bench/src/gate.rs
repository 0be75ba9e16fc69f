//! What must hold, each as one line: pass or miss.

use std::process::ExitCode;

/// What was asked and whether it holds.
pub struct Gate {
    what: String,
    seen: f64,
    holds: bool,
}

impl Gate {
    /// `seen` must be `bound` or more.
    pub fn at_least(what: &str, seen: f64, bound: f64) -> Self {
        Self { what: format!("{what} (at least {bound:.2})"), seen, holds: seen >= bound }
    }

    /// `seen` must be `bound` or less.
    pub fn at_most(what: &str, seen: f64, bound: f64) -> Self {
        Self { what: format!("{what} (at most {bound:.2})"), seen, holds: seen <= bound }
    }
}

/// Prints the lines. A miss is a failure only where the caller is `strict`: a busy machine misses too.
pub fn report(gates: &[Gate], strict: bool) -> ExitCode {
    for gate in gates {
        println!("{}  {}: {:.2}", if gate.holds { "pass" } else { "MISS" }, gate.what, gate.seen);
    }
    let missed = gates.iter().any(|gate| !gate.holds);
    if missed && strict { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_fails_only_where_it_is_asked_to() {
        let missed = [Gate::at_least("speed", 0.39, 0.40), Gate::at_most("cost", 30.0, 30.0)];
        assert_eq!(missed.iter().map(|gate| gate.holds).collect::<Vec<_>>(), [false, true]);
        assert_eq!(report(&missed, true), ExitCode::FAILURE);
        assert_eq!(report(&missed, false), ExitCode::SUCCESS);
    }
}
