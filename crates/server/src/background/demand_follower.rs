//! Ends expired promotions and changes, makes promotions follow jobs, and executes the actions of rules.

use crate::app::App;
use crate::background::rule_actions;
use crate::common::tasks::stopped;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two checks for expired entries, jobs' requests, and edits of the database by hand.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After this many checks without a change, promotions are matched with the jobs again all the same.
const LOOKS_MAX: u32 = 30;
/// Ends expired entries, makes promotions follow jobs, and executes the actions of rules until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.stopping.clone();
    let remembered = app.with_registry(rule_actions::remember).await;
    if let Ok(Err(error)) = remembered {
        log::warn!("cannot read which rules have fired: {error}");
    }
    let (mut followed, mut looks) = (None, 0);
    loop {
        let (changes, rules) = (app.node_jobs.changes(), Arc::clone(&app.live().rules));
        looks += 1;
        let seen = (changes, Arc::as_ptr(&rules).cast::<()>() as usize);
        let follows = followed != Some(seen) || looks >= LOOKS_MAX;
        let looked = app.with_registry(move |app| {
            let now = app.now();
            // Latches first: if a later step fails, a restart must not repeat the actions.
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
            Ok(Err(error)) => log::error!(
                "cannot update promotions and settings of agents; the \
                                           previous ones stay active: {error}"
            ),
            // The panic is logged already, or the server is stopping.
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = app.rule_evaluator.due.notified() => {}
            () = stopped(&mut stopping) => break,
        }
    }
    // Latches that were set or released within the last second.
    if app.with_registry(|app| rule_actions::keep_latches(app, app.now())).await.is_err() {
        log::warn!(
            "cannot store all rules that have fired; a restart of the server loses some of \
                    them"
        );
    }
}
