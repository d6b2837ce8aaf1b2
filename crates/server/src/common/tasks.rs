//! The server's background tasks: named, counted and joined.

use parking_lot::Mutex;
use std::future::Future;
use std::time::Duration;
use tokio::task::JoinSet;

/// Named tasks that the server joins when it stops.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: Mutex<JoinSet<&'static str>>,
}

impl Tasks {
    /// Starts a task.
    pub(crate) fn start<F>(&self, name: &'static str, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = self.running.lock();
        running.spawn(async move {
            work.await;
            name
        });
        while let Some(ended) = running.try_join_next() {
            log_end(ended);
        }
    }

    /// Waits until every task has ended, aborts the rest after `within`, and returns their number.
    pub(crate) async fn join(&self, within: Duration) -> usize {
        let mut running = std::mem::take(&mut *self.running.lock());
        let all = async {
            while let Some(ended) = running.join_next().await {
                log_end(ended);
            }
        };
        // The code below counts and aborts the remaining tasks.
        tokio::time::timeout(within, all).await.ok();
        let late = running.len();
        running.shutdown().await;
        late
    }
}

fn log_end(ended: Result<&'static str, tokio::task::JoinError>) {
    match ended {
        Ok(name) => log::trace!("task {name} ended"),
        Err(error) if error.is_cancelled() => log::trace!("a task was stopped"),
        Err(error) => log::error!("a task panicked: {error}"),
    }
}

/// Waits until the server stops.
pub(crate) async fn stopped(stopping: &mut tokio::sync::watch::Receiver<bool>) {
    // An error means that the server is gone.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn tasks_are_waited_for_and_the_late_ones_aborted() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (tasks, done) = (Tasks::default(), Arc::new(AtomicU32::new(0)));
            for ms in [1, 5, 60_000] {
                let done = Arc::clone(&done);
                let work = async move {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    done.fetch_add(1, Ordering::Relaxed);
                };
                tasks.start("test", work);
            }
            assert_eq!(tasks.join(Duration::from_millis(300)).await, 1);
            assert_eq!(done.load(Ordering::Relaxed), 2);
        });
    }
}
