//! The `export` command: writes all accounts and keys as JSON lines, page by page.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use base::atomic_file;
use base::progress::Progress;
use quota_api::LeftOut;
use serde_json::json;
use tempfile::NamedTempFile;

use super::context::CliContext;
use super::output::{accounts_with_keys, counted, with_commas};

/// Accounts per call: the maximum that quota-svc returns.
const PAGE_SIZE: u32 = 200;
/// At most this many accounts and keys that were left out are named.
const MAX_NAMED: usize = 100;

#[derive(clap::Args, Debug)]
pub struct ExportArgs {
    /// File to write, created or replaced when the export is complete. Default: standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Default)]
struct Summary {
    accounts: u64,
    keys: u64,
    /// How many accounts and keys were left out, because they can't be read.
    left_out_count: u64,
    /// The first of them.
    left_out: Vec<LeftOut>,
}

impl ExportArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<()> {
        let progress = || Progress::start(Progress::BAR).only_if_slow();
        let mut summary = Summary::default();
        match &self.to {
            Some(target) => {
                let mut file = BufWriter::new(temporary_file(target)?);
                summary.write(&mut file, progress(), context).await?;
                let file = file.into_inner().map_err(|error| incomplete(error.into_error()))?;
                atomic_file::commit(file, target).map_err(incomplete)?;
                let Summary { accounts, keys, left_out_count, left_out } = &summary;
                let mut object =
                    json!({ "accounts": accounts, "keys": keys, "file": target.display().to_string() });
                if *left_out_count > 0 {
                    (object["left_out_count"], object["left_out"]) = (json!(left_out_count), json!(left_out));
                }
                let text = || format!("Exported {} to {}.", summary.counts(), target.display());
                context.output.show(&object, text)?;
            }
            // Writes JSON lines whatever `--output` is; the summary goes to standard error.
            None => {
                let stdout = io::stdout();
                // A bar would mix with the exported data on the terminal.
                let progress = if stdout.is_terminal() { Progress::hidden() } else { progress() };
                summary.write(&mut BufWriter::new(stdout), progress, context).await?;
                eprintln!("Exported {}.", summary.counts());
            }
        }
        summary.check_complete(&context.program)
    }
}

/// Creates the file that replaces `target` when the export is complete. Readable by the owner only: the export contains
/// password hashes.
fn temporary_file(target: &Path) -> anyhow::Result<NamedTempFile> {
    let (is_other, target_name) =
        (fs::metadata(target).is_ok_and(|metadata| !metadata.is_file()), target.display());
    ensure!(!is_other, "--to {target_name} is not a regular file; omit --to to write to standard output");
    atomic_file::temporary(target).with_context(|| format!("can't create a file next to --to {target_name}"))
}

impl Summary {
    /// Writes all accounts and counts them.
    async fn write(
        &mut self,
        out: &mut impl Write,
        mut progress: Progress,
        context: &CliContext,
    ) -> anyhow::Result<()> {
        let mut cursor = None;
        loop {
            let page = context.call("", context.client.export(cursor.as_deref(), PAGE_SIZE)).await?;
            for account in page.accounts {
                serde_json::to_writer(&mut *out, &account).map_err(io::Error::from).map_err(incomplete)?;
                out.write_all(b"\n").map_err(incomplete)?;
                self.accounts += 1;
                self.keys += account.keys.len() as u64;
            }
            self.left_out_count += page.left_out.len() as u64;
            self.left_out.extend(page.left_out.into_iter().take(MAX_NAMED - self.left_out.len()));
            progress.set_total(page.total.max(self.accounts));
            progress.update(self.accounts, self.counts());
            cursor = page.next;
            if cursor.is_none() {
                return out.flush().map_err(incomplete);
            }
        }
    }

    /// An error that names what was left out. The rest has been written.
    fn check_complete(&self, program: &str) -> anyhow::Result<()> {
        let named = self.left_out.iter().map(|LeftOut { account, key, reason }| match key {
            Some(key) => format!("\n  key {key} of account {account}: {reason}"),
            None => format!("\n  account {account} with all its keys: {reason}"),
        });
        let more = self.left_out_count - self.left_out.len() as u64;
        let more = if more > 0 { format!("\n  and {} more", with_commas(more)) } else { String::new() };
        ensure!(
            self.left_out_count == 0,
            "the export is incomplete: it leaves out {} that can't be read. Everything else was written.{}{more}\n\
             To delete what can't be read, run: {program} key delete ID, or {program} account delete ID",
            counted(self.left_out_count, "item"),
            named.collect::<String>()
        );
        Ok(())
    }

    fn counts(&self) -> String {
        accounts_with_keys(self.accounts, self.keys)
    }
}

/// Hides the I/O error from [`service_kit::command_line::exit`], which ignores a broken pipe: an incomplete export must be
/// an error.
fn incomplete(error: io::Error) -> anyhow::Error {
    anyhow!("the export is incomplete: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_that_is_not_a_file_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        assert!(temporary_file(dir.path()).err().unwrap().to_string().contains("not a regular file"));
        assert!(temporary_file(Path::new("/")).is_err());
    }
}
