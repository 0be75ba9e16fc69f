//! Required bounds, each reported as one line: pass or MISS.

use std::process::ExitCode;

/// A required bound, the measured value, and whether the value is within the bound.
pub struct Gate {
    name: String,
    value: f64,
    passed: bool,
}

impl Gate {
    pub fn at_least(name: &str, value: f64, bound: f64) -> Self {
        Self { name: format!("{name} (at least {bound:.2})"), value, passed: value >= bound }
    }

    pub fn at_most(name: &str, value: f64, bound: f64) -> Self {
        Self { name: format!("{name} (at most {bound:.2})"), value, passed: value <= bound }
    }
}

/// Prints one line per gate. A miss sets the exit code only if `strict`, because a busy machine alone can cause a miss.
pub fn report(gates: &[Gate], strict: bool) -> ExitCode {
    for gate in gates {
        println!("{}  {}: {:.2}", if gate.passed { "pass" } else { "MISS" }, gate.name, gate.value);
    }
    let missed = gates.iter().any(|gate| !gate.passed);
    if missed && strict { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn miss_fails_only_if_strict() {
        let gates = [Gate::at_least("speed", 0.39, 0.40), Gate::at_most("cost", 30.0, 30.0)];
        assert_eq!(gates.iter().map(|gate| gate.passed).collect::<Vec<_>>(), [false, true]);
        assert_eq!(report(&gates, true), ExitCode::FAILURE);
        assert_eq!(report(&gates, false), ExitCode::SUCCESS);
    }
}
