//! Ends promotions and changes by their time, lets promotions follow the jobs, and does what rules bring about.

use crate::app::App;
use crate::background::rule_actions;
use crate::common::tasks::stopped;
use std::sync::Arc;
use std::time::Duration;

/// How often is looked for what has ended, what jobs want, and what somebody wrote into the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks without news, and promotions follow the jobs all the same.
const LOOKS_MAX: u32 = 30;
/// Ends what has ended, lets promotions follow the jobs, and does what rules bring about, until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.stopping.clone();
    let remembered = app.with_registry(rule_actions::remember).await;
    if let Ok(Err(error)) = remembered {
        log::warn!("when rules fired before is not known: {error}");
    }
    let (mut followed, mut looks) = (None, 0);
    loop {
        let (changes, rules) = (app.told_jobs.changes(), Arc::clone(&app.live().rules));
        looks += 1;
        let seen = (changes, Arc::as_ptr(&rules).cast::<()>() as usize);
        let follows = followed != Some(seen) || looks >= LOOKS_MAX;
        let looked = app.with_registry(move |app| {
            let now = app.now();
            // First, so that whatever fails after it is not brought about again.
            rule_actions::keep_latches(app, now);
            app.on_demand.expire(now)?;
            if follows {
                app.on_demand.follow(&app.registry, &rules, now)?;
            }
            rule_actions::act(app, now)
        });
        match looked.await {
            Ok(Ok(())) if follows => (followed, looks) = (Some(seen), 0),
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::error!("what is asked of agents stays as it was: {error}"),
            // It is told already, and the server may be stopping.
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = app.watching.due.notified() => {}
            () = stopped(&mut stopping) => break,
        }
    }
    // What was back within the last second.
    if app.with_registry(|app| rule_actions::keep_latches(app, app.now())).await.is_err() {
        log::warn!("which rules have fired is not all known after a restart");
    }
}
