//! Imports accounts and keys: concurrently, with one confirmation per server at the end.

use futures_util::future::try_join_all;
use quota_api::ImportReport;

use super::keys::KeyWrite;
use super::operation::Operation;
use super::topology::Reply;
use crate::domain::event::{Actor, Event, EventKind, with_actor};
use crate::domain::id::KeyId;
use crate::store::{ImportAccount, StoreError};

impl Operation<'_> {
    pub(super) async fn import_all(&self, accounts: &[ImportAccount]) -> Result<ImportReport, StoreError> {
        let mut unconfirmed = self.add_to_index(accounts.iter().map(|import| import.account.id())).await?;
        let imported = try_join_all(accounts.iter().map(|account| self.import_one(account))).await?;
        let mut total = ImportReport::default();
        for (report, replies) in imported {
            total += report;
            unconfirmed.extend(replies);
        }
        self.confirm(unconfirmed).await?;
        Ok(total)
    }

    async fn import_one(&self, import: &ImportAccount) -> Result<(ImportReport, Vec<Reply>), StoreError> {
        let (mut report, mut replies) = (ImportReport::default(), Vec::new());
        match self.write_account(&import.account, Some(import.account.created_at)).await {
            Ok((_, reply)) => {
                report.accounts_created = 1;
                replies.push(reply);
            }
            Err(StoreError::AccountExists) => report.accounts_kept = 1,
            Err(error) => return Err(error),
        }
        if import.keys.is_empty() {
            return Ok((report, replies));
        }
        let account = import.account.id();
        let ids: Vec<KeyId> = import.keys.iter().map(|key| key.meta.id()).collect();
        let (now, reserved) = self.reserve(account, &ids).await?;
        let reason = with_actor("imported", Some(Actor::Operator));
        let event = Event { at: now, kind: EventKind::Imported, reason };
        let mut written = Vec::new();
        for (key, reserved) in import.keys.iter().zip(reserved) {
            if !reserved {
                report.keys_refused += 1;
                continue;
            }
            // An interrupted import leaves reservations without a key, so existing reservations are written, too.
            match self.write_key(key, &event).await? {
                KeyWrite::Written(reply) => {
                    report.keys_created += 1;
                    replies.push(reply);
                    written.push(key.meta.id());
                }
                KeyWrite::Existing(Some(owner)) if owner == account => report.keys_kept += 1,
                KeyWrite::Existing(_) => {
                    report.keys_refused += 1;
                    self.release(account, key.meta.id(), now).await?;
                }
            }
        }
        if !written.is_empty() {
            replies.push(self.check_reservations(account, now, &written).await?);
        }
        Ok((report, replies))
    }
}
