//! The `export` command: writes all accounts and keys as JSON lines, page by page.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use base::atomic_file;
use base::progress::Progress;
use quota_api::{ExportPage, LeftOut};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::context::CliContext;
use super::table::{counted, with_commas};

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

#[derive(Debug, Default, Serialize)]
struct ExportSummary<'a> {
    accounts: u64,
    keys: u64,
    /// How many accounts and keys were left out, because they can't be read.
    #[serde(skip_serializing_if = "is_zero")]
    left_out_count: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(super) async fn run(args: &ExportArgs, context: &CliContext) -> anyhow::Result<()> {
    match args.to.as_deref() {
        Some(target) => to_file(target, context).await,
        None => to_stdout(context).await,
    }
}

async fn to_file(target: &Path, context: &CliContext) -> anyhow::Result<()> {
    let mut file = BufWriter::new(temporary_file(target)?);
    let mut summary = write_all(&mut file, progress_bar(), context).await?;
    let file = file.into_inner().map_err(|error| incomplete(error.into_error()))?;
    atomic_file::commit(file, target).map_err(incomplete)?;
    summary.file = Some(target);
    context.show(&summary, || format!("Exported {} to {}.", summary.counts(), target.display()))?;
    summary.check_complete(&context.program)
}

/// Creates the file that replaces `target` when the export is complete. Readable by the owner only: the export contains
/// password hashes.
fn temporary_file(target: &Path) -> anyhow::Result<NamedTempFile> {
    if target.file_name().is_none() {
        bail!("--to {} is not a file name", target.display());
    }
    if fs::metadata(target).is_ok_and(|metadata| !metadata.is_file()) {
        bail!(
            "--to {} exists and is not a regular file; omit --to to write to standard output",
            target.display()
        );
    }
    atomic_file::temporary(target)
        .with_context(|| format!("can't create a file next to --to {}", target.display()))
}

/// Writes JSON lines whatever `--output` is; the summary goes to standard error.
async fn to_stdout(context: &CliContext) -> anyhow::Result<()> {
    let stdout = io::stdout();
    // A bar would mix with the exported data on the terminal.
    let progress = if stdout.is_terminal() { Progress::hidden() } else { progress_bar() };
    let summary = write_all(&mut BufWriter::new(stdout), progress, context).await?;
    eprintln!("Exported {}.", summary.counts());
    summary.check_complete(&context.program)
}

fn progress_bar() -> Progress {
    Progress::start(Progress::BAR).only_if_slow()
}

async fn write_all(
    out: &mut impl Write,
    mut progress: Progress,
    context: &CliContext,
) -> anyhow::Result<ExportSummary<'static>> {
    let mut summary = ExportSummary::default();
    let fetch = async |cursor: Option<&str>| {
        let page = context.client.export(cursor, PAGE_SIZE).await?;
        Ok((page.next.clone(), page))
    };
    context
        .for_each_page(fetch, async |page| {
            write_page(out, &page, &mut summary).map_err(incomplete)?;
            progress.set_total(page.total.max(summary.accounts));
            progress.update(summary.accounts, summary.counts());
            Ok(())
        })
        .await?;
    out.flush().map_err(incomplete)?;
    Ok(summary)
}

fn write_page(out: &mut impl Write, page: &ExportPage, summary: &mut ExportSummary<'_>) -> io::Result<()> {
    summary.left_out_count += page.left_out.len() as u64;
    let room = MAX_NAMED - summary.left_out.len();
    summary.left_out.extend(page.left_out.iter().take(room).cloned());
    for account in &page.accounts {
        serde_json::to_writer(&mut *out, account)?;
        out.write_all(b"\n")?;
        summary.accounts += 1;
        summary.keys += account.keys.len() as u64;
    }
    Ok(())
}

/// Hides the I/O error from [`service_kit::command_line::exit`], which ignores a broken pipe: an incomplete export must be
/// an error.
fn incomplete(error: io::Error) -> anyhow::Error {
    anyhow!("the export is incomplete: {error}")
}

impl ExportSummary<'_> {
    /// An error that names what was left out. The rest has been written.
    fn check_complete(&self, program: &str) -> anyhow::Result<()> {
        if self.left_out_count == 0 {
            return Ok(());
        }
        let named = self.left_out.iter().map(|LeftOut { account, key, reason }| match key {
            Some(key) => format!("\n  key {key} of account {account}: {reason}"),
            None => format!("\n  account {account} with all its keys: {reason}"),
        });
        let more = self.left_out_count - self.left_out.len() as u64;
        let more = if more > 0 { format!("\n  and {} more", with_commas(more)) } else { String::new() };
        Err(anyhow!(
            "the export is incomplete: it leaves out {} that can't be read. Everything else was written.{}{more}\n\
             To delete what can't be read, run: {program} key delete ID, or {program} account delete ID",
            counted(self.left_out_count, "item"),
            named.collect::<String>()
        ))
    }

    fn counts(&self) -> String {
        format!("{} with {}", counted(self.accounts, "account"), counted(self.keys, "key"))
    }
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
