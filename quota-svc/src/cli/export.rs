//! Export: all accounts and keys as JSON lines, page by page.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use quota_client::wire::ExportedAccount;
use serde::Serialize;

use super::file::NewFile;
use super::operator::{About, Operator};
use super::progress::Progress;
use super::table::counted;

/// The most that quota-svc gives at once.
const PAGE: u32 = 200;

/// Where to write.
#[derive(clap::Args, Debug)]
pub struct ExportArgs {
    /// File to write; it appears when it is whole. Without it the lines go to standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// What was written.
#[derive(Debug, Default, Serialize)]
struct Written<'a> {
    accounts: u64,
    keys: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
}

pub(super) async fn run(args: &ExportArgs, operator: &Operator) -> anyhow::Result<()> {
    match args.to.as_deref() {
        Some(target) => to_file(target, operator).await,
        None => to_stdout(operator).await,
    }
}

async fn to_file(target: &Path, operator: &Operator) -> anyhow::Result<()> {
    let mut file = NewFile::create(target)?;
    let mut written = write_all(&mut file, Progress::start(Some(0)), operator).await?;
    file.commit().map_err(unwritten)?;
    written.file = Some(target);
    operator.show(&written, || format!("Exported {} to {}.", written.summary(), target.display()))
}

/// The lines are the output, in either form of it; the summary goes to standard error.
async fn to_stdout(operator: &Operator) -> anyhow::Result<()> {
    let stdout = io::stdout();
    let progress = if stdout.is_terminal() { Progress::Hidden } else { Progress::start(Some(0)) };
    let written = write_all(&mut BufWriter::new(stdout), progress, operator).await?;
    eprintln!("Exported {}.", written.summary());
    Ok(())
}

async fn write_all(
    out: &mut impl Write,
    mut progress: Progress,
    operator: &Operator,
) -> anyhow::Result<Written<'static>> {
    let (mut written, mut cursor) = (Written::default(), None);
    loop {
        let page = operator.client.export(cursor.as_deref(), PAGE).await;
        let page = page.map_err(|error| operator.explain(error, About::Everything))?;
        write_page(out, &page.accounts, &mut written).map_err(unwritten)?;
        progress.total(page.total.max(written.accounts));
        progress.at(written.accounts, written.summary());
        cursor = page.next;
        if cursor.is_none() {
            out.flush().map_err(unwritten)?;
            return Ok(written);
        }
    }
}

fn write_page(out: &mut impl Write, page: &[ExportedAccount], written: &mut Written<'_>) -> io::Result<()> {
    for account in page {
        serde_json::to_writer(&mut *out, account)?;
        out.write_all(b"\n")?;
        written.accounts += 1;
        written.keys += account.keys.len() as u64;
    }
    Ok(())
}

/// Not passed on as it is: half an export is a failure even where nobody reads on.
fn unwritten(error: io::Error) -> anyhow::Error {
    anyhow!("the export is not whole, it can't be written: {error}")
}

impl Written<'_> {
    fn summary(&self) -> String {
        format!("{} with {}", counted(self.accounts, "account"), counted(self.keys, "key"))
    }
}
