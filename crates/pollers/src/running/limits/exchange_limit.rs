//! How many exchanges run at the same time.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The exchanges of all targets. Those that wait for targets that do not answer delay no others.
#[derive(Debug)]
pub(in crate::running) struct ExchangeLimit {
    answering: Arc<Semaphore>,
    /// Of targets whose latest exchange returned nothing: they last until their timeout.
    unanswered: Arc<Semaphore>,
}

impl ExchangeLimit {
    /// At most `most` exchanges, a quarter of them with targets that do not answer.
    pub(in crate::running) fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS);
        let most = most.min(Semaphore::MAX_PERMITS);
        let answering = Arc::new(Semaphore::new(most - most / 4));
        let unanswered = match most / 4 {
            0 => Arc::clone(&answering),
            part => Arc::new(Semaphore::new(part)),
        };
        Self { answering, unanswered }
    }

    /// Waits until an exchange may begin. It ends with the returned value.
    pub(in crate::running) async fn begin(
        &self,
        is_unanswered: bool,
    ) -> Option<OwnedSemaphorePermit> {
        let part = if is_unanswered { &self.unanswered } else { &self.answering };
        // The semaphores are never closed.
        Arc::clone(part).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn targets_that_do_not_answer_delay_no_others() {
        let limit = ExchangeLimit::new(8);
        let waits = async |is_unanswered| {
            let begun = limit.begin(is_unanswered);
            tokio::time::timeout(Duration::from_millis(10), begun).await.ok().flatten()
        };
        let silent = [waits(true).await, waits(true).await];
        assert!(silent.iter().all(Option::is_some) && waits(true).await.is_none());
        let mut answering = Vec::new();
        for _ in 0..6 {
            answering.push(waits(false).await.unwrap());
        }
        assert!(waits(false).await.is_none());
        answering.pop();
        assert!(waits(false).await.is_some());
        drop(silent);
        assert!(waits(true).await.is_some());
        // A limit without a quarter is one for all.
        let limit = ExchangeLimit::new(1);
        let one = limit.begin(true).await;
        assert!(one.is_some() && limit.answering.available_permits() == 0);
    }
}
