//! A batch: charges with their callers, the body that carries them, and the hand-back of verdicts.

use data_encoding::HEXLOWER;
use http::HeaderMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ChargeError;
use crate::wire::{Outcome, Verdict};

/// What a caller gets.
pub(super) type Answer = Result<Verdict, ChargeError>;

/// What is charged.
pub(super) enum Subject {
    Key([u8; 32]),
    Demo,
}

/// A charge with its caller.
pub(super) struct Pending {
    pub(super) subject: Subject,
    pub(super) deadline: Instant,
    /// None once it is answered.
    pub(super) reply: Option<oneshot::Sender<Answer>>,
    /// Boxed, because nearly always absent.
    pub(super) trace: Option<Box<HeaderMap>>,
}

pub(super) struct Batch(Vec<Pending>);

impl Batch {
    pub(super) fn new(charges: Vec<Pending>) -> Self {
        Self(charges)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Leaves only charges that somebody waits for: what its caller gave up must not be counted.
    pub(super) fn drop_abandoned(&mut self, now: Instant) {
        self.give_up(now);
        self.0.retain(|charge| charge.reply.as_ref().is_some_and(|reply| !reply.is_closed()));
    }

    /// Answers those whose time is over; they keep their places in the batch.
    pub(super) fn give_up(&mut self, now: Instant) {
        for charge in self.0.iter_mut().filter(|charge| charge.deadline <= now) {
            charge.hand_back(Err(ChargeError::TimedOut));
        }
    }

    /// The time by which the first of those who wait gives up; none where nobody waits.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().filter(|charge| charge.reply.is_some()).map(|charge| charge.deadline).min()
    }

    /// The context of its first traced charge.
    pub(super) fn trace(&self) -> Option<&HeaderMap> {
        self.0.iter().find_map(|charge| charge.trace.as_deref())
    }

    /// The JSON of [`crate::wire::ChargeRequest`], written without building one.
    pub(super) fn body(&self) -> String {
        const LONGEST: usize = r#"{"key_sha256":""},"#.len() + 64;
        let mut body = String::with_capacity(16 + LONGEST * self.len());
        body.push_str(r#"{"charges":["#);
        for (at, charge) in self.0.iter().enumerate() {
            if at > 0 {
                body.push(',');
            }
            charge.subject.write(&mut body);
        }
        body.push_str("]}");
        body
    }

    /// Each caller's own verdict, by position.
    pub(super) fn answer(self, verdicts: Vec<Verdict>) {
        for (mut charge, verdict) in self.0.into_iter().zip(verdicts) {
            let unavailable = verdict.outcome == Outcome::Unavailable;
            charge.hand_back(if unavailable { Err(ChargeError::Unavailable) } else { Ok(verdict) });
        }
    }

    pub(super) fn fail(self, error: ChargeError) {
        for mut charge in self.0 {
            charge.hand_back(Err(error));
        }
    }
}

impl Pending {
    /// A caller that has gone away wants no answer.
    fn hand_back(&mut self, answer: Answer) {
        if let Some(reply) = self.reply.take() {
            reply.send(answer).ok();
        }
    }
}

impl Subject {
    fn write(&self, body: &mut String) {
        match self {
            Self::Key(sha256) => {
                body.push_str(r#"{"key_sha256":""#);
                HEXLOWER.encode_append(sha256, body);
                body.push_str(r#""}"#);
            }
            Self::Demo => body.push_str(r#"{"demo":true}"#),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::{Charge, ChargeRequest};

    fn pending(subject: Subject, deadline: Instant) -> (Pending, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        (Pending { subject, deadline, reply: Some(reply), trace: None }, answer)
    }

    #[test]
    fn a_charge_whose_time_is_over_is_answered_and_never_sent() {
        let now = Instant::now();
        let (over, mut over_answer) = pending(Subject::Demo, now);
        let (left, left_answer) = pending(Subject::Demo, now + Duration::from_secs(1));
        let (live, mut live_answer) = pending(Subject::Key([1; 32]), now + Duration::from_millis(1));
        drop(left_answer);
        let mut batch = Batch::new(vec![over, left, live]);
        batch.drop_abandoned(now);
        assert_eq!(over_answer.try_recv(), Ok(Err(ChargeError::TimedOut)));
        assert_eq!(batch.len(), 1);
        assert!(batch.body().contains("key_sha256"));
        assert_eq!(batch.next_deadline(), Some(now + Duration::from_millis(1)));
        assert!(live_answer.try_recv().is_err(), "still waits");
    }

    #[test]
    fn the_written_body_is_the_wire_type() {
        let (one, _a) = pending(Subject::Key([0xab; 32]), Instant::now());
        let (two, _b) = pending(Subject::Demo, Instant::now());
        let batch = Batch::new(vec![one, two]);
        let read: ChargeRequest = serde_json::from_str(&batch.body()).expect("the wire type");
        let key = Charge { key_sha256: Some("ab".repeat(32)), demo: None };
        let demo = Charge { key_sha256: None, demo: Some(true) };
        assert_eq!(read.charges, [key, demo]);
    }
}
