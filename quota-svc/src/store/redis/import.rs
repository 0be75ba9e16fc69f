//! Importing accounts and keys: many at once over one connection, confirmed once.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use quota_client::wire::{EventKind, ImportReport};

use super::RedisStore;
use super::keys::Place;
use super::topology::Answer;
use crate::domain::event::Event;
use crate::domain::id::KeyId;
use crate::store::{ImportAccount, StoreError};

/// The last write by each server: confirming it confirms all before it.
type Unconfirmed = HashMap<Arc<str>, Answer>;

impl RedisStore {
    pub(super) async fn import_all(&self, accounts: &[ImportAccount]) -> Result<ImportReport, StoreError> {
        let done = try_join_all(accounts.iter().map(|account| self.import_one(account))).await?;
        let mut total = ImportReport::default();
        let mut unconfirmed = Unconfirmed::new();
        for (report, answers) in done {
            total.accounts_created += report.accounts_created;
            total.accounts_kept += report.accounts_kept;
            total.keys_created += report.keys_created;
            total.keys_kept += report.keys_kept;
            total.keys_refused += report.keys_refused;
            unconfirmed.extend(answers.into_iter().map(|answer| (answer.server.clone(), answer)));
        }
        try_join_all(unconfirmed.into_values().map(|answer| self.confirm.confirm(answer))).await?;
        Ok(total)
    }

    async fn import_one(&self, import: &ImportAccount) -> Result<(ImportReport, Vec<Answer>), StoreError> {
        let mut report = ImportReport::default();
        let mut answers = Vec::new();
        match self.write_account(&import.account, Some(import.account.created_at)).await {
            Ok((_, answer)) => {
                report.accounts_created = 1;
                answers.push(answer);
            }
            Err(StoreError::AccountExists) => report.accounts_kept = 1,
            Err(error) => return Err(error),
        }
        let ids: Vec<KeyId> = import.keys.iter().map(|key| key.meta.id()).collect();
        if ids.is_empty() {
            return Ok((report, answers));
        }
        let (now, places) = self.reserve(import.account.id(), &ids).await?;
        let event = Event { at: now, kind: EventKind::Imported, reason: "imported".to_owned() };
        for (key, place) in import.keys.iter().zip(places) {
            match place {
                Place::NoneLeft => report.keys_refused += 1,
                // A place without a record is what an interrupted import leaves: it is written now.
                Place::HadOne if self.read_key(key.meta.id(), None).await.is_ok() => report.keys_kept += 1,
                Place::HadOne | Place::Reserved => {
                    answers.push(self.write_key(key, now, &event).await?.1);
                    report.keys_created += 1;
                }
            }
        }
        Ok((report, answers))
    }
}
