//! The `overview` command: the service in numbers.

use base::progress::Progress;
use comfy_table::Cell;
use quota_api::{Overview, UsageCount};
use serde_json::json;

use super::context::{CliContext, ErrorContext};
use super::table::{cell, counted, table, with_commas};

pub(super) async fn run(context: &CliContext) -> anyhow::Result<()> {
    let overview = context.client.overview().await.map_err(context.explain(ErrorContext::Other))?;
    let mut progress = Progress::start(Progress::BAR).only_if_slow();
    progress.set_total(overview.accounts);
    let mut sum = UsageCount::default();
    let fetch = async |cursor: Option<&str>| {
        let page = context.client.count_keys(cursor).await?;
        Ok((page.next.clone(), page))
    };
    let add = async |page: UsageCount| {
        sum += page;
        progress.update(sum.accounts, counted(sum.accounts, "account"));
        Ok(())
    };
    context.for_each_page(fetch, add).await?;
    let mut object = json!(overview);
    object["counts"] = json!(sum);
    context.show(&object, || text(&overview, &sum))
}

fn text(overview: &Overview, sum: &UsageCount) -> String {
    let mut rows = table(&[]);
    let mut row = |name: &str, value: String| {
        rows.add_row([Cell::new(name), cell(value)]);
    };
    row("accounts", format!("{}, {} suspended", with_commas(sum.accounts), with_commas(sum.suspended)));
    let states = [("active", sum.active), ("paused", sum.paused), ("inactive", sum.inactive)];
    let states = states.map(|(name, count)| format!("{} {name}", with_commas(count)));
    row("keys", states.join(", "));
    if sum.unreadable > 0 {
        row("unreadable keys", with_commas(sum.unreadable));
    }
    row("requests today", with_commas(sum.requests_today));
    row("demo today", format!("{} of {}", with_commas(overview.demo_used), with_commas(overview.demo_limit)));
    row("store", overview.store.clone());
    if let Some(problem) = &overview.store_problem {
        row("problem", problem.clone());
    }
    rows.trim_fmt()
}
