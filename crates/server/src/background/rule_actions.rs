//! Actions of rules about values: flushes and promotions, in the rule's name, within limits, and with audit entries.

use crate::app::App;
use crate::auth::audit::Actor;
use crate::common::counts;
use control::{Decision, DemandError, Fired, Mark, MarkKind, NewPromotion, ValueRule};
use model::{DeviceId, NodeList, Timestamp};
use std::collections::BTreeSet;

/// Most nodes of one flush or promotion: a list of names has at most 16 KiB, and a name at most 253 bytes.
const NODES_IN_ONE: usize = 60;
/// Most marks that startup reads to find when rules fired last. The latest marks are read.
const REMEMBERED_MAX: usize = 100_000;
/// Longest pause of a rule between two firings.
const DAY_US: i64 = 86_400 * Timestamp::SECOND;

/// Stores which rules have fired on which series, and which series have returned to normal since.
pub(crate) fn keep_latches(app: &App, now: Timestamp) {
    let news = app.rule_evaluator.news();
    if news.is_empty() {
        return;
    }
    if let Err(error) = app.registry.note_latches(&news, now) {
        log::error!("cannot store which rules have fired; the server tries again: {error}");
        app.rule_evaluator.not_kept(news);
    }
}

/// Executes the actions of rules that have fired.
///
/// An action that exceeds a limit is logged and counted. It is not repeated before the rule fires again.
pub(crate) fn act(app: &App, now: Timestamp) -> Result<(), DemandError> {
    let fired = app.rule_evaluator.take();
    if fired.is_empty() {
        return Ok(());
    }
    for Fired { when, devices } in fired {
        for nodes in lists(&devices) {
            if let Err(error) = bring_about(app, &when, &nodes, now) {
                app.counts.rules.add(counts::Rule::Rejected, 1);
                log::warn!("{} fired on {nodes}, but its action was rejected: {error}", when.by());
            }
        }
    }
    app.on_demand.refresh(now)
}

fn bring_about(
    app: &App,
    when: &ValueRule,
    nodes: &NodeList,
    now: Timestamp,
) -> Result<(), DemandError> {
    let (demand, by) = (app.on_demand.demand(), when.by());
    if let Some(source) = &when.flush {
        let number = demand.flush_by_rule(nodes, source, &by, now)?;
        log::info!("flush {number} of {source} on {nodes} by {by}");
        let more = serde_json::json!({"number": number, "nodes": nodes.as_str(), "source": source});
        app.audit.wrote(&actor(&by, "flush"), now, &more);
    }
    if let Some(metric) = &when.promote {
        let until = now.plus(when.promote_us);
        let (nodes, metric) = (nodes.clone(), metric.clone());
        let new =
            NewPromotion { nodes, metric, until, by: by.clone().into(), uid: None, job: None };
        let number = demand.promote_by_rule(&new, now)?;
        let NewPromotion { nodes, metric, .. } = new;
        log::info!("promotion {number} of {metric} on {nodes} by {by} until {until}");
        let more = serde_json::json!({"number": number, "nodes": nodes.as_str(), "metric": metric});
        app.audit.wrote(&actor(&by, "promote"), now, &more);
    }
    Ok(())
}

fn actor(by: &str, what: &str) -> Actor {
    Actor { who: by.into(), uid: None, from: "server".into(), what: what.into() }
}

/// Groups nodes into lists. A node whose name parses as a list of several nodes is left out.
fn lists(devices: &BTreeSet<DeviceId>) -> Vec<NodeList> {
    let is_plain = |node: &&str| {
        NodeList::new(node).is_ok_and(|list| list.plain().is_some_and(|it| it == [*node]))
    };
    let names: Vec<&str> = devices.iter().map(DeviceId::as_str).filter(is_plain).collect();
    names.chunks(NODES_IN_ONE).filter_map(|names| NodeList::new(&names.join(",")).ok()).collect()
}

/// Reads when rules fired within the last day, so that they do not fire again after a restart.
pub(crate) fn remember(app: &App) -> Result<(), DemandError> {
    let now = app.now();
    let of_rule = |mark: &Mark| {
        let began = matches!(mark.kind, MarkKind::Flushed | MarkKind::Promoted);
        let by_rule = mark.by.as_ref().is_some_and(|by| by.starts_with("rule "));
        if began && by_rule && mark.job.is_none() { Decision::Take } else { Decision::Pass }
    };
    let span = (now.plus(-DAY_US), now);
    let (marks, _) = app.on_demand.demand().marks(span, REMEMBERED_MAX, of_rule)?;
    for mark in marks {
        let name = mark.by.as_deref().and_then(|by| by.strip_prefix("rule "));
        if let Some(name) = name {
            app.rule_evaluator.fired_before(name, &mark.nodes, mark.at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_are_several_lists() {
        let names = |count: usize| (0..count).map(|n| DeviceId::new(&format!("n{n}")).unwrap());
        let mut devices: BTreeSet<_> = names(NODES_IN_ONE + 1).collect();
        devices.insert(DeviceId::new("x[1-2]").unwrap());
        let lists = lists(&devices);
        let count_of_nodes: usize = lists.iter().map(|list| list.plain().unwrap().len()).sum();
        assert_eq!((lists.len(), count_of_nodes), (2, NODES_IN_ONE + 1));
    }
}
