//! Asks for confirmation before something is deleted permanently.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::bail;

#[derive(clap::Args, Debug, Clone, Copy)]
pub struct ConfirmArgs {
    /// Delete without confirmation
    #[arg(long, short)]
    yes: bool,
}

impl ConfirmArgs {
    /// Fails if confirmation is required but standard input is not a terminal.
    pub(super) fn check_possible(self) -> anyhow::Result<()> {
        self.check_terminal(io::stdin().is_terminal())
    }

    /// Prompts, unless --yes was given. Anything other than `y` or `yes` is an error.
    pub(super) fn prompt(self, question: &str) -> anyhow::Result<()> {
        self.prompt_on(question, &mut io::stdin().lock(), &mut io::stderr())
    }

    fn check_terminal(self, is_terminal: bool) -> anyhow::Result<()> {
        if !self.yes && !is_terminal {
            bail!("standard input is not a terminal: add --yes to delete without confirmation");
        }
        Ok(())
    }

    fn prompt_on(
        self,
        question: &str,
        input: &mut impl BufRead,
        output: &mut impl Write,
    ) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        write!(output, "{question} [y/N] ")?;
        output.flush()?;
        let mut line = String::new();
        input.read_line(&mut line)?;
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => bail!("canceled; nothing was deleted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt_with(input: &str) -> (bool, String) {
        let mut output = Vec::new();
        let confirmed =
            ConfirmArgs { yes: false }.prompt_on("Delete it?", &mut input.as_bytes(), &mut output).is_ok();
        (confirmed, String::from_utf8(output).unwrap())
    }

    #[test]
    fn only_y_or_yes_confirms() {
        for yes in ["y\n", "Y\n", "yes\n", " YES \n"] {
            assert_eq!(prompt_with(yes), (true, "Delete it? [y/N] ".to_owned()), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "yeah\n", "no\n"] {
            assert!(!prompt_with(no).0, "{no:?}");
        }
    }

    #[test]
    fn yes_flag_skips_the_prompt() {
        let mut output = Vec::new();
        ConfirmArgs { yes: true }.prompt_on("Delete it?", &mut "n\n".as_bytes(), &mut output).unwrap();
        assert!(output.is_empty());
        assert!(ConfirmArgs { yes: true }.check_terminal(false).is_ok());
    }

    #[test]
    fn missing_terminal_requires_yes_flag() {
        assert!(ConfirmArgs { yes: false }.check_terminal(true).is_ok());
        assert!(ConfirmArgs { yes: false }.check_terminal(false).unwrap_err().to_string().contains("--yes"));
    }
}
