//! Maintenance every minute and every hour: repeated log messages, contested devices, silent jobs, expired data,
//! unused memory.

use crate::app::App;
use crate::common::tasks::stopped;
use crate::ingest::device_conflicts::contested;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval of the maintenance, and of the log's counts of repeated messages.
const MINUTE: Duration = Duration::from_secs(60);
/// Interval between two deletions of expired data, in minutes.
const MINUTES_OF_HOUR: u64 = 60;
/// Logs repeated messages and contested devices, stores token use, and ends silent jobs, every minute.
pub(crate) async fn every_minute(app: Arc<App>) {
    let mut stopping = app.stopping.clone();
    for minute in 0_u64.. {
        if minute % MINUTES_OF_HOUR == 0 {
            forget(&app).await;
        }
        tokio::select! {
            () = tokio::time::sleep(MINUTE) => {}
            () = stopped(&mut stopping) => return,
        }
        config::log::report_repeated();
        note_tokens(&app).await;
        crate::background::silent_jobs::end(&app).await;
        if app.had_large_answers.swap(false, Ordering::Relaxed) {
            // Otherwise the memory of large answers remains with the process for hours.
            tokio::task::spawn_blocking(kernel::heap::give_back).await.ok();
        }
        for (nodes, claim) in contested(&*app.store) {
            let (nodes, example) = (Vec::from_iter(nodes).join(", "), claim.example);
            log::warn!(
                "several nodes send series of one device: {nodes} (such as {} of {}); give each node its \
                 own --device",
                example.metric,
                example.device
            );
        }
    }
}

/// Deletes expired data: members of accounts without a recent job, and old on-demand requests to nodes.
async fn forget(app: &Arc<App>) {
    let member_us = i64::try_from(app.live().access.member_for.as_micros()).unwrap_or(i64::MAX);
    let forgot = app.with_registry(move |app| {
        let now = app.now();
        let left = app.registry.leave_accounts(now.plus(member_us.saturating_neg()))?;
        if left > 0 {
            log::info!("{left} members were removed from accounts in which they had no recent job");
        }
        app.on_demand.demand().forget_old(now)
    });
    if let Ok(Err(error)) = forgot.await {
        log::warn!("cannot delete expired entries; the server tries again in 1 h: {error}");
    }
}

/// Stores in the registry when tokens were last used.
async fn note_tokens(app: &Arc<App>) {
    let noted = app.with_registry(|app| app.user_tokens.note(&app.registry)).await;
    if let Ok(Err(error)) = noted {
        log::warn!("cannot store when tokens were last used: {error}");
    }
}
