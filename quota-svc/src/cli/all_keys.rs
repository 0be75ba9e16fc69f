//! `key list` without an account: the keys of all accounts, page by page.

use futures_util::{StreamExt, TryStreamExt, stream};
use quota_api::{Account, KeyList, UnreadableKey};
use serde_json::json;
use service_kit::command_line::{Output, print};

use super::account::PAGE_SIZE;
use super::context::{CliContext, ErrorContext};
use super::key_view::{self, KeyView};
use super::table::counted;

/// Accounts whose keys are fetched at the same time.
const CONCURRENT_CALLS: usize = 8;

/// Prints the keys of one page of accounts at a time, because there may be millions.
pub(super) async fn list(context: &CliContext) -> anyhow::Result<()> {
    let (mut cursor, mut printed, mut unreadable) = (None, 0, Vec::new());
    loop {
        let page = context.client.list_accounts(cursor.as_deref(), PAGE_SIZE).await;
        let mut page = page.map_err(context.explain(ErrorContext::Other))?;
        page.accounts.sort_by(|a, b| a.login.cmp(&b.login));
        let listed = keys_of(&page.accounts, context).await?;
        let views = listed.iter().flat_map(|(account, list)| {
            list.keys.iter().map(|key| KeyView { key, login: Some(&account.login) })
        });
        let views: Vec<_> = views.collect();
        print_page(&views, printed == 0, context.output)?;
        printed += views.len() as u64;
        unreadable.extend(listed.iter().flat_map(|(_, list)| list.unreadable.clone()));
        cursor = page.next;
        if cursor.is_none() {
            return print(&match context.output {
                Output::Json => json_end(printed == 0, &unreadable),
                Output::Text => text_end(printed, &unreadable, &context.program),
            });
        }
    }
}

/// The keys of each account, in the order of the accounts. An account that was deleted meanwhile has none.
async fn keys_of<'a>(
    accounts: &'a [Account],
    context: &CliContext,
) -> anyhow::Result<Vec<(&'a Account, KeyList)>> {
    let calls = accounts.iter().map(async |account| match context.client.keys(&account.id).await {
        Err(error) if error.code() == Some("account_not_found") => {
            Ok((account, KeyList { keys: Vec::new(), unreadable: Vec::new() }))
        }
        result => Ok((account, result.map_err(context.explain(ErrorContext::Account(&account.login)))?)),
    });
    stream::iter(calls).buffered(CONCURRENT_CALLS).try_collect().await
}

fn print_page(views: &[KeyView<'_>], first: bool, output: Output) -> anyhow::Result<()> {
    if views.is_empty() {
        return Ok(());
    }
    print(&match output {
        Output::Text => key_view::page(views, first),
        Output::Json => {
            let keys: Vec<_> = views.iter().map(|view| view.json().to_string()).collect();
            format!("{}{}", if first { "{\"keys\":[" } else { "," }, keys.join(",\n"))
        }
    })
}

/// The end of the JSON object, after the last page.
fn json_end(empty: bool, unreadable: &[UnreadableKey]) -> String {
    let start = if empty { "{\"keys\":[]" } else { "]" };
    match unreadable {
        [] => format!("{start}}}"),
        keys => format!("{start},\"unreadable\":{}}}", json!(keys)),
    }
}

fn text_end(printed: u64, unreadable: &[UnreadableKey], program: &str) -> String {
    match unreadable {
        [] => counted(printed, "key"),
        keys => format!("{}\n\n{}", counted(printed, "key"), key_view::unreadable_list(keys, program)),
    }
}
