//! Lists of accounts and keys, printed page by page, because there may be millions.

use futures_util::{StreamExt, TryStreamExt, stream};
use quota_api::{Account, Key, KeyList, KeyState};
use serde::Serialize;
use serde_json::json;
use service_kit::command_line::{Output, print};

use super::context::{CliContext, ErrorContext};
use super::key_view::{self, KeyView};
use super::table::{cell, counted, table, time};

/// Accounts per call: the maximum that quota-svc returns.
const PAGE_SIZE: u32 = 500;
/// Accounts whose keys are fetched at the same time.
const CONCURRENT_CALLS: usize = 8;

/// Prints one JSON object with all items, or a table with a heading on its first page.
struct Listing<'a> {
    /// `account` or `key`.
    noun: &'a str,
    output: Output,
    printed: u64,
}

impl Listing<'_> {
    /// `text` gets whether this is the first page.
    fn print_page(
        &mut self,
        items: &[impl Serialize],
        text: impl FnOnce(bool) -> String,
    ) -> anyhow::Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let first = self.printed == 0;
        self.printed += items.len() as u64;
        print(&match self.output {
            Output::Text => text(first),
            Output::Json => {
                let items: Vec<_> = items.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
                let start = if first { format!("{{\"{}s\":[", self.noun) } else { ",".to_owned() };
                start + &items.join(",\n")
            }
        })
    }

    /// Prints what can't be read and, as text, the number of items.
    fn print_end(&self, unreadable: &[impl Serialize], text: impl FnOnce() -> String) -> anyhow::Result<()> {
        let end = match unreadable {
            [] => String::new(),
            _ if self.output == Output::Json => format!(",\"unreadable\":{}", json!(unreadable)),
            _ => format!("\n\n{}", text()),
        };
        print(&match self.output {
            Output::Text => counted(self.printed, self.noun) + &end,
            Output::Json if self.printed == 0 => format!("{{\"{}s\":[]{end}}}", self.noun),
            Output::Json => format!("]{end}}}"),
        })
    }
}

pub(super) async fn accounts(context: &CliContext) -> anyhow::Result<()> {
    let mut listing = Listing { noun: "account", output: context.output, printed: 0 };
    let unreadable = for_each_page(context, async |accounts| {
        listing.print_page(&accounts, |first| account_rows(&accounts, first))
    });
    let unreadable = unreadable.await?;
    listing.print_end(&unreadable, || {
        let program = &context.program;
        let ids = unreadable.join("\n");
        format!(
            "These accounts can't be read. To delete one with its keys: {program} account delete ID\n\n{ids}"
        )
    })
}

pub(super) async fn keys(state: Option<KeyState>, context: &CliContext) -> anyhow::Result<()> {
    let mut listing = Listing { noun: "key", output: context.output, printed: 0 };
    let mut unreadable = Vec::new();
    for_each_page(context, async |accounts| {
        let lists = key_lists(&accounts, context).await?;
        let lists: Vec<_> = lists.into_iter().map(|list| in_state(list, state)).collect();
        let views = accounts.iter().zip(&lists).flat_map(|(account, list)| {
            let (account_id, account) = (&account.id, Some(&*account.login));
            list.keys.iter().map(move |key| KeyView { key, account_id, account })
        });
        let views: Vec<_> = views.collect();
        listing.print_page(&views, |first| key_view::page(&views, first))?;
        unreadable.extend(lists.into_iter().flat_map(|list| list.unreadable));
        Ok(())
    })
    .await?;
    listing.print_end(&unreadable, || key_view::unreadable_list(&unreadable, &context.program))
}

/// Leaves only the keys in this state, if one is given. The state of unreadable keys is not known.
pub(super) fn in_state(mut list: KeyList, state: Option<KeyState>) -> KeyList {
    if let Some(state) = state {
        list.keys.retain(|key| key.state == state);
        list.unreadable.clear();
    }
    list
}

/// Calls `each` with the readable accounts of every page, ordered by login. Returns the IDs of the unreadable ones.
async fn for_each_page(
    context: &CliContext,
    mut each: impl AsyncFnMut(Vec<Account>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let mut unreadable = Vec::new();
    let fetch = async |cursor: Option<&str>| {
        let page = context.client.list_accounts(cursor, PAGE_SIZE).await?;
        Ok((page.next.clone(), page))
    };
    context
        .for_each_page(fetch, async |mut page| {
            page.accounts.sort_by(|a, b| a.login.cmp(&b.login));
            unreadable.append(&mut page.unreadable);
            each(page.accounts).await
        })
        .await?;
    Ok(unreadable)
}

/// Calls `each` with every readable key.
pub(super) async fn for_each_key(context: &CliContext, mut each: impl FnMut(&Key)) -> anyhow::Result<()> {
    let all = for_each_page(context, async |accounts| {
        let lists = key_lists(&accounts, context).await?;
        lists.iter().flat_map(|list| &list.keys).for_each(&mut each);
        Ok(())
    });
    all.await.map(drop)
}

/// The keys of each account.
async fn key_lists(accounts: &[Account], context: &CliContext) -> anyhow::Result<Vec<KeyList>> {
    let calls = accounts.iter().map(async |account| match context.client.keys(&account.id).await {
        // The account was deleted meanwhile.
        Err(error) if error.code() == Some("account_not_found") => Ok(KeyList::default()),
        result => result.map_err(context.explain(ErrorContext::Account(&account.login))),
    });
    stream::iter(calls).buffered(CONCURRENT_CALLS).try_collect().await
}

/// All columns before the login have a fixed width, so that pages align.
fn account_rows(accounts: &[Account], first: bool) -> String {
    let mut rows = table(if first { &["id", "created", "sign-in", "role", "login"] } else { &[] });
    for account in accounts {
        // Padded to the width of the heading, which only the first page has.
        let sign_in = if account.credential_version > 0 { "yes    " } else { "no     " };
        let role = if account.suspension.is_some() { "suspended" } else { account.role.as_str() };
        let role = format!("{role:9}");
        rows.add_row([&account.id, &time(account.created_at), sign_in, &role, &account.login].map(cell));
    }
    rows.trim_fmt()
}
