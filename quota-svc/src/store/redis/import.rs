//! Imports accounts and keys: concurrently, with one confirmation per server at the end.

use crate::domain::event::{Actor, EventKind};
use crate::store::ImportReport;
use futures_util::future::try_join_all;

use super::keys::KeyWrite;
use super::operation::Operation;
use super::topology::Reply;
use crate::domain::event::{Event, with_actor};
use crate::domain::id::KeyId;
use crate::store::{ImportAccount, StoreError};

impl Operation<'_> {
    pub(super) async fn import_all(&self, accounts: &[ImportAccount]) -> Result<ImportReport, StoreError> {
        let mut unconfirmed = self.add_to_index(accounts.iter().map(|import| import.account.id())).await?;
        let imported = try_join_all(accounts.iter().map(|account| self.import_one(account))).await?;
        let mut total = ImportReport::default();
        for (report, replies) in imported {
            total.accounts_created += report.accounts_created;
            total.accounts_kept += report.accounts_kept;
            total.keys_created += report.keys_created;
            total.keys_kept += report.keys_kept;
            total.keys_refused += report.keys_refused;
            unconfirmed.extend(replies);
        }
        self.confirm(unconfirmed).await?;
        Ok(total)
    }

    async fn import_one(&self, import: &ImportAccount) -> Result<(ImportReport, Vec<Reply>), StoreError> {
        let mut report = ImportReport::default();
        let mut replies = Vec::new();
        match self.write_account(&import.account, Some(import.account.created_at)).await {
            Ok((_, reply)) => {
                report.accounts_created = 1;
                replies.push(reply);
            }
            Err(StoreError::AccountExists) => report.accounts_kept = 1,
            Err(error) => return Err(error),
        }
        let ids: Vec<KeyId> = import.keys.iter().map(|key| key.meta.id()).collect();
        if ids.is_empty() {
            return Ok((report, replies));
        }
        self.import_keys(import, &ids, &mut report, &mut replies).await?;
        Ok((report, replies))
    }

    async fn import_keys(
        &self,
        import: &ImportAccount,
        ids: &[KeyId],
        report: &mut ImportReport,
        replies: &mut Vec<Reply>,
    ) -> Result<(), StoreError> {
        let account = import.account.id();
        let (now, reserved) = self.reserve(account, ids).await?;
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
        Ok(())
    }
}
