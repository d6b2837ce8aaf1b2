//! What a user may send: the samples of his own jobs, as `jobmeter run` counts them where no agent does.

use crate::app::App;
use crate::declared_metrics::check_of_run;
use crate::problem::Refusal;
use jobs::Window;
use model::{ClusterId, JobKey};
use std::sync::Arc;
use wire::Decoded;

/// Whether a user may send a batch; else why not. It must come from the origin `DEVICE/run-ID` of a local
/// job that the server registered for him on that device, and hold nothing but samples of that job there
/// and gaps of that device.
pub(crate) async fn may_send(
    app: &Arc<App>,
    uid: u32,
    batch: &Decoded,
) -> Result<Result<(), String>, Refusal> {
    let Some((device, id)) = batch.origin.as_run() else {
        return Ok(Err(format!(
            "a user sends only what was counted for his own jobs, and {} is no origin of `jobmeter run`",
            batch.origin
        )));
    };
    let key = JobKey { cluster: ClusterId::local(), id };
    let window = Window { job: Some(key.clone()), uid: Some(uid), ..Window::default() };
    let stays = app.with_registry(move |app| app.registry.intervals(&window)).await?;
    let stays = stays.map_err(|error| Refusal::fault(&error))?;
    if !stays.iter().any(|stay| stay.device.as_str() == device) {
        return Ok(Err(format!("user {uid} has no job {key} on {device}")));
    }
    let table = match batch.table() {
        Ok(table) => table,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let own = |entry: &model::SeriesEntry| {
        entry.device.as_str() == device && entry.job.as_ref() == Some(&key)
    };
    if let Some(other) = table.entries.iter().find(|entry| !own(entry)) {
        let name = &other.metric.name;
        return Ok(Err(format!("{name} of {} is not counted for job {key}", other.device)));
    }
    if let Some(why) = table.entries.iter().find_map(|entry| check_of_run(entry).err()) {
        return Ok(Err(why));
    }
    if !batch.jobs.is_empty() || batch.gaps.iter().any(|gap| gap.device.as_str() != device) {
        return Ok(Err("a user tells of no jobs, and of gaps of his job's device only".to_owned()));
    }
    Ok(Ok(()))
}
