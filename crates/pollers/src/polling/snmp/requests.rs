//! Variables in several requests, and what to do when an agent rejects one.

use super::AgentState;
use super::client::{Rejected, RequestError, SnmpClient, UPTIME};
use super::rows::of_row;
use super::values::number;
use super::wraps::Reading;
use crate::descriptions::Description;
use crate::polling::poller::Exchange;
use crate::polling::reading::Failure;
use async_snmp::{Oid, Value, VarBind};
use model::Timestamp;
use std::collections::{HashMap, HashSet};

/// Variables of one request.
const VARIABLES_MAX: usize = 50;

/// A variable that a description requests.
pub(super) struct Variable {
    /// The description's place among those due.
    pub(super) place: usize,
    pub(super) oid: Oid,
    /// The text that proves that it belongs to the right row.
    pub(super) row: Option<RowText>,
    /// Whether its value is stored as a counter.
    pub(super) is_counter: bool,
}

/// The text of a row, and where it is.
pub(super) struct RowText {
    pub(super) oid: Oid,
    pub(super) text: String,
    pub(super) column: Oid,
}

impl Variable {
    pub(super) const fn of(oid: Oid) -> Self {
        Self { place: 0, oid, row: None, is_counter: false }
    }

    fn has(&self, oid: &Oid) -> bool {
        self.oid == *oid || self.row.as_ref().is_some_and(|row| row.oid == *oid)
    }
}

/// Reads the variables, and adds their values and failures to the exchange.
///
/// # Errors
/// The agent fails; values that arrived before are added.
pub(super) async fn read(
    client: &SnmpClient,
    variables: Vec<Variable>,
    due: &[&Description],
    exchange: &mut Exchange,
    state: &mut AgentState,
) -> Result<(), Failure> {
    let uptime = Oid::from_slice(&UPTIME);
    // The text of a row and its value travel in one request.
    let mut requests: Vec<Vec<Variable>> = Vec::new();
    let mut size = VARIABLES_MAX;
    for variable in variables {
        let needs = 1 + usize::from(variable.row.is_some());
        if size + needs > VARIABLES_MAX {
            requests.push(Vec::new());
            size = 0;
        }
        size += needs;
        if let Some(last) = requests.last_mut() {
            last.push(variable);
        }
    }
    // The last one is sent first.
    requests.reverse();
    while let Some(mut request) = requests.pop() {
        let mut oids = oids(&request);
        if !state.lacks_uptime && request.iter().any(|one| one.is_counter) {
            oids.push(uptime.clone());
        }
        match client.get(&oids).await {
            Ok(found) => add(&request, found, due, exchange, state),
            Err(RequestError::Failed(failure)) => return Err(failure),
            Err(RequestError::Rejected(Rejected::Variable(index), why)) => {
                // Version 1 names the variable; the rest is requested again.
                let Some(bad) = index.checked_sub(1).and_then(|index| oids.get(index)) else {
                    return Err(Failure::broken(format!("the agent reports {why} of no variable")));
                };
                let has_bad = request.iter().any(|one| one.has(bad));
                if *bad == uptime && !has_bad {
                    state.lacks_uptime = true;
                }
                request.retain(|one| {
                    let is_bad = one.has(bad);
                    if is_bad {
                        if let Some(row) = &one.row {
                            state.rows.forget(&row.column);
                        }
                        exchange
                            .fail(one.place, Failure::broken(format!("the agent reports {why}")));
                    }
                    !is_bad
                });
                if !request.is_empty() {
                    requests.push(request);
                }
            }
            Err(RequestError::Rejected(Rejected::Size, why)) => {
                if request.len() <= 1 {
                    for one in request {
                        exchange
                            .fail(one.place, Failure::broken(format!("the agent reports {why}")));
                    }
                    continue;
                }
                let rest = request.split_off(request.len() / 2);
                requests.extend([rest, request]);
            }
        }
    }
    Ok(())
}

/// The OIDs of a request, each once.
fn oids(request: &[Variable]) -> Vec<Oid> {
    let mut known = HashSet::new();
    let all = request.iter().flat_map(|one| [Some(&one.oid), one.row.as_ref().map(|row| &row.oid)]);
    all.flatten().filter(|oid| known.insert(*oid)).cloned().collect()
}

fn add(
    request: &[Variable],
    found: Vec<VarBind>,
    due: &[&Description],
    exchange: &mut Exchange,
    state: &mut AgentState,
) {
    let found: HashMap<Oid, Value> = found.into_iter().map(|one| (one.oid, one.value)).collect();
    let beyond = wrapped(request, &found, exchange.at, state);
    for Variable { place, oid, row, is_counter } in request {
        if let Some(RowText { oid, text, column }) = row
            && found.get(oid).and_then(of_row).as_ref() != Some(text)
        {
            state.rows.forget(column);
            let what = format!("the row of `{}` has moved", text.escape_debug());
            exchange.fail(*place, Failure::broken(what));
            continue;
        }
        let Some(description) = due.get(*place) else { continue };
        let value = found.get(oid).ok_or("the response does not contain it");
        match value.and_then(|value| number(value, &description.labels)) {
            Ok((value, labels)) => match beyond.get(oid).filter(|_| *is_counter) {
                Some(beyond) => exchange.wrapped_value(*place, due, labels, (*beyond, value)),
                None => exchange.value(*place, due, labels, value),
            },
            Err(what) => exchange.fail(*place, Failure::broken(what)),
        }
    }
}

/// The counters of a response that have wrapped since they were read before, with the value beyond the wrap.
fn wrapped(
    request: &[Variable],
    found: &HashMap<Oid, Value>,
    at: Timestamp,
    state: &mut AgentState,
) -> HashMap<Oid, f64> {
    let Some(Value::TimeTicks(uptime)) = found.get(&Oid::from_slice(&UPTIME)) else {
        return HashMap::new();
    };
    let counters: HashSet<&Oid> =
        request.iter().filter(|one| one.is_counter).map(|one| &one.oid).collect();
    let beyond = |oid: &Oid| {
        let Some(Value::Counter32(value)) = found.get(oid) else { return None };
        let reading = Reading { value: *value, uptime: *uptime, at };
        Some((oid.clone(), state.wraps.beyond_wrap(oid, reading)?))
    };
    counters.into_iter().filter_map(beyond).collect()
}
