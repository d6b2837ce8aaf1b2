//! Resolves `access.staff` regularly, so that leaving a group of the directory takes effect.

use crate::app::App;
use crate::auth::staff_groups::resolve;
use crate::common::tasks::stopped;
use kernel::Root;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two resolutions of the staff.
const EVERY: Duration = Duration::from_secs(300);
/// Resolves the staff every 5 minutes until the server stops.
///
/// While the name service fails, groups of the directory grant nothing.
pub(crate) async fn run(app: Arc<App>, root: Root, program: &'static str) {
    let mut stopping = app.stopping.clone();
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stopped(&mut stopping) => return,
        }
        let settings = app.live().access_settings.clone();
        if !settings.name_service || settings.staff.is_empty() {
            continue;
        }
        let (root, wanted) = (root.clone(), settings.clone());
        let resolved =
            tokio::task::spawn_blocking(move || resolve(&wanted, &root, program, false)).await;
        match resolved {
            Ok(Ok(access)) => app.replace_access(&settings, access),
            Ok(Err(errors)) => {
                log::warn!("the staff is not resolved again: {}", errors.join("; "));
            }
            Err(_) => {
                log::error!("resolving the staff panicked; the previous staff stays in effect")
            }
        }
    }
}
