//! The numbers of the batches that the server makes of inserted rows: the requests of one origin take turns.

use config::PushSettings;
use model::{Boot, Origin};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// Origins with a remembered number. Beyond, idle ones start again with another boot.
const ORIGINS_MAX: usize = 10_000;

/// State of inserted rows.
#[derive(Debug)]
pub(crate) struct PushState {
    pub(crate) settings: PushSettings,
    pub(crate) numbers: PushNumbers,
}

impl PushState {
    pub(crate) fn new(settings: &PushSettings) -> Self {
        Self { settings: settings.clone(), numbers: PushNumbers::default() }
    }
}

/// The next number of each origin.
#[derive(Debug, Default)]
pub(crate) struct PushNumbers {
    next: Mutex<HashMap<Origin, Arc<tokio::sync::Mutex<NextNumber>>>>,
}

/// The next number of an origin. A number is taken before its batch is passed to the store, because a number that is used
/// twice would lose the second batch.
#[derive(Debug)]
pub(crate) struct NextNumber {
    boot: Boot,
    seq: u64,
}

impl NextNumber {
    /// Takes a number.
    pub(crate) const fn take(&mut self) -> (Boot, u64) {
        let taken = (self.boot, self.seq);
        self.seq += 1;
        taken
    }

    /// Returns the latest number, after its batch was rejected.
    pub(crate) fn give_back(&mut self, (boot, seq): (Boot, u64)) {
        if boot == self.boot && seq.checked_add(1) == Some(self.seq) {
            self.seq = seq;
        }
    }
}

impl PushNumbers {
    /// Waits for the origin's turn. `boot`: 16 random bytes for an origin without a remembered number.
    pub(crate) async fn turn(&self, origin: &Origin, boot: Boot) -> OwnedMutexGuard<NextNumber> {
        let next = {
            let mut next = self.next.lock();
            if next.len() >= ORIGINS_MAX && !next.contains_key(origin) {
                next.retain(|_, number| Arc::strong_count(number) > 1);
            }
            let new = || Arc::new(tokio::sync::Mutex::new(NextNumber { boot, seq: 0 }));
            Arc::clone(next.entry(origin.clone()).or_insert_with(new))
        };
        next.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_only_if_its_batch_was_rejected() {
        let numbers = PushNumbers::default();
        let origin = Origin::of_push(None).unwrap();
        let boot = Boot([1; 16]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut turn = numbers.turn(&origin, boot).await;
            assert_eq!((turn.take(), turn.take()), ((boot, 0), (boot, 1)));
            turn.give_back((boot, 0));
            assert_eq!(turn.take(), (boot, 2), "number 1 may be on its way");
            turn.give_back((boot, 2));
            turn.give_back((Boot([9; 16]), 1));
            drop(turn);
            let mut turn = numbers.turn(&origin, Boot([2; 16])).await;
            assert_eq!(turn.take(), (boot, 2));
        });
    }
}
