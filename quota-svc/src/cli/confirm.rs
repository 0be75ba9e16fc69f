//! The question before something is deleted for good.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::bail;

/// Agreement to a deletion, given in advance.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct Yes {
    /// Delete without asking
    #[arg(long, short)]
    yes: bool,
}

impl Yes {
    /// Refuses at once where nobody could be asked.
    pub(super) fn check(self) -> anyhow::Result<()> {
        self.check_on(io::stdin().is_terminal())
    }

    /// Asks, unless --yes was given; anything but a yes is an error, so that nothing is deleted.
    pub(super) fn ask(self, question: &str) -> anyhow::Result<()> {
        self.ask_on(question, &mut io::stdin().lock(), &mut io::stderr())
    }

    fn check_on(self, terminal: bool) -> anyhow::Result<()> {
        if !self.yes && !terminal {
            bail!(
                "standard input is no terminal, so nobody can be asked: add --yes to delete without a question"
            );
        }
        Ok(())
    }

    fn ask_on(self, question: &str, answers: &mut impl BufRead, to: &mut impl Write) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        write!(to, "{question} [y/N] ")?;
        to.flush()?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => bail!("nothing was deleted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: &str) -> (bool, String) {
        let mut shown = Vec::new();
        let agreed = Yes { yes: false }.ask_on("Delete it?", &mut answer.as_bytes(), &mut shown).is_ok();
        (agreed, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn only_a_yes_deletes() {
        for yes in ["y\n", "Y\n", "yes\n", " YES \n"] {
            assert_eq!(answered(yes), (true, "Delete it? [y/N] ".to_owned()), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "yeah\n", "no\n"] {
            assert!(!answered(no).0, "{no:?}");
        }
    }

    #[test]
    fn with_yes_nobody_is_asked() {
        let mut shown = Vec::new();
        Yes { yes: true }.ask_on("Delete it?", &mut "n\n".as_bytes(), &mut shown).unwrap();
        assert!(shown.is_empty());
        assert!(Yes { yes: true }.check_on(false).is_ok());
    }

    #[test]
    fn where_nobody_can_be_asked_it_refuses() {
        assert!(Yes { yes: false }.check_on(true).is_ok());
        assert!(Yes { yes: false }.check_on(false).unwrap_err().to_string().contains("--yes"));
    }
}
