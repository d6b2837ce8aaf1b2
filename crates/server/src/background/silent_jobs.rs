//! Ends local jobs that show no more sign of life.

use crate::app::App;
use std::sync::Arc;

/// Ends local jobs without a sign of life for as long as the settings specify.
pub(crate) async fn end(app: &Arc<App>) {
    let silent_us = i64::try_from(app.local_silent_max.as_micros()).unwrap_or(i64::MAX);
    let ended = app.with_registry(move |app| {
        let ended = app.engine.end_silent_jobs(silent_us, app.now())?;
        if !ended.is_empty() {
            app.node_jobs.changed();
        }
        Ok::<_, query::QueryError>(ended)
    });
    match ended.await {
        Ok(Ok(ended)) => {
            for (key, last) in ended {
                log::info!("job {key} was last seen at {last}; the server ended it at that time");
            }
        }
        Ok(Err(error)) => log::warn!("local jobs without a sign of life cannot be ended: {error}"),
        // The server stops.
        Err(_) => {}
    }
}
