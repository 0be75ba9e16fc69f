//! The `export` command: writes all accounts and keys as JSON lines, page by page.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use quota_client::wire::ExportedAccount;
use serde::Serialize;

use super::atomic_file::AtomicFile;
use super::context::{CliContext, ErrorContext};
use super::progress::Progress;
use super::table::counted;

/// Accounts per call: the maximum that quota-svc returns.
const PAGE_SIZE: u32 = 200;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
}

pub(super) async fn run(args: &ExportArgs, context: &CliContext) -> anyhow::Result<()> {
    match args.to.as_deref() {
        Some(target) => to_file(target, context).await,
        None => to_stdout(context).await,
    }
}

async fn to_file(target: &Path, context: &CliContext) -> anyhow::Result<()> {
    let mut file = AtomicFile::create(target)?;
    let mut summary = write_all(&mut file, Progress::start(Some(0)), context).await?;
    file.commit().map_err(incomplete)?;
    summary.file = Some(target);
    context.show(&summary, || format!("Exported {} to {}.", summary.counts(), target.display()))
}

/// Writes JSON lines whatever `--output` is; the summary goes to standard error.
async fn to_stdout(context: &CliContext) -> anyhow::Result<()> {
    let stdout = io::stdout();
    let progress = if stdout.is_terminal() { Progress::Hidden } else { Progress::start(Some(0)) };
    let summary = write_all(&mut BufWriter::new(stdout), progress, context).await?;
    eprintln!("Exported {}.", summary.counts());
    Ok(())
}

async fn write_all(
    out: &mut impl Write,
    mut progress: Progress,
    context: &CliContext,
) -> anyhow::Result<ExportSummary<'static>> {
    let (mut summary, mut cursor) = (ExportSummary::default(), None);
    loop {
        let page = context.client.export(cursor.as_deref(), PAGE_SIZE).await;
        let page = page.map_err(|error| context.explain(error, ErrorContext::Other))?;
        write_page(out, &page.accounts, &mut summary).map_err(incomplete)?;
        progress.set_total(page.total.max(summary.accounts));
        progress.update(summary.accounts, summary.counts());
        cursor = page.next;
        if cursor.is_none() {
            out.flush().map_err(incomplete)?;
            return Ok(summary);
        }
    }
}

fn write_page(
    out: &mut impl Write,
    page: &[ExportedAccount],
    summary: &mut ExportSummary<'_>,
) -> io::Result<()> {
    for account in page {
        serde_json::to_writer(&mut *out, account)?;
        out.write_all(b"\n")?;
        summary.accounts += 1;
        summary.keys += account.keys.len() as u64;
    }
    Ok(())
}

/// Hides the I/O error from [`super::run`], which ignores a broken pipe: an incomplete export must be an error.
fn incomplete(error: io::Error) -> anyhow::Error {
    anyhow!("the export is incomplete: {error}")
}

impl ExportSummary<'_> {
    fn counts(&self) -> String {
        format!("{} with {}", counted(self.accounts, "account"), counted(self.keys, "key"))
    }
}
