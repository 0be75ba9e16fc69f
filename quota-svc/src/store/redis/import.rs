//! Imports accounts and keys: concurrently, with one confirmation per server at the end.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use quota_client::wire::{Actor, EventKind, ImportReport};

use super::RedisStore;
use super::keys::Reservation;
use super::topology::Reply;
use crate::domain::event::{Event, with_actor};
use crate::domain::id::KeyId;
use crate::store::{ImportAccount, StoreError};

/// One reply per server. Confirming it confirms every write made on its connection before the confirmation.
type Unconfirmed = HashMap<Arc<str>, Reply>;

impl RedisStore {
    pub(super) async fn import_all(&self, accounts: &[ImportAccount]) -> Result<ImportReport, StoreError> {
        let imported = try_join_all(accounts.iter().map(|account| self.import_one(account))).await?;
        let mut total = ImportReport::default();
        let mut unconfirmed = Unconfirmed::new();
        for (report, replies) in imported {
            total.accounts_created += report.accounts_created;
            total.accounts_kept += report.accounts_kept;
            total.keys_created += report.keys_created;
            total.keys_kept += report.keys_kept;
            total.keys_refused += report.keys_refused;
            unconfirmed.extend(replies.into_iter().map(|reply| (reply.server.clone(), reply)));
        }
        try_join_all(unconfirmed.into_values().map(|reply| self.confirmer.confirm(reply))).await?;
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
        let (now, reservations) = self.reserve(import.account.id(), &ids).await?;
        let reason = with_actor("imported", Some(Actor::Operator));
        let event = Event { at: now, kind: EventKind::Imported, reason };
        for (key, reservation) in import.keys.iter().zip(reservations) {
            match reservation {
                Reservation::LimitReached => report.keys_refused += 1,
                // An interrupted import leaves reservations without a key; those keys are written now.
                Reservation::Existing if self.read_key(key.meta.id(), None).await.is_ok() => {
                    report.keys_kept += 1
                }
                Reservation::Existing | Reservation::New => {
                    replies.push(self.write_key(key, now, &event).await?.1);
                    report.keys_created += 1;
                }
            }
        }
        Ok((report, replies))
    }
}
