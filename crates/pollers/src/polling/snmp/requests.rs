//! Variables in several requests, and what to do when an agent rejects one.

use super::AgentState;
use super::blocks::{self, Block};
use super::client::{Rejected, RequestError, SnmpClient, TOO_BIG, UPTIME};
use super::limits::{Limits, bytes};
use super::rows::of_row;
use super::values::number;
use super::wraps::Reading;
use crate::descriptions::Description;
use crate::polling::poller::Exchange;
use crate::polling::reading::Failure;
use async_snmp::{Oid, Value, VarBind};
use model::{Cause, Timestamp};
use std::collections::{HashMap, HashSet};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Requests to an agent at once.
const IN_FLIGHT_MAX: usize = 4;

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
        self.oids().any(|own| own == oid)
    }

    /// The OIDs of its value, and of the text of its row.
    fn oids(&self) -> impl Iterator<Item = &Oid> {
        [Some(&self.oid), self.row.as_ref().map(|row| &row.oid)].into_iter().flatten()
    }
}

/// A request.
enum Request {
    Get(Vec<Variable>),
    Bulk(Block),
}

impl Request {
    fn variables(&self) -> &[Variable] {
        match self {
            Self::Get(variables) => variables,
            Self::Bulk(block) => &block.variables,
        }
    }
}

/// A request that was sent, its OIDs, and its response.
type Answered = (Request, Vec<Oid>, Result<Vec<VarBind>, RequestError>);

/// Reads the variables in several requests, some of them at once, and adds their values and failures to the exchange.
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
    state.limits.begin(Instant::now());
    let bulk = if client.has_bulk() { state.limits.bulk } else { 0 };
    let (blocks, rest) = blocks::find(variables, bulk);
    state.limits.is_unanswered = !blocks.is_empty();
    let mut requests = gets(rest, state.limits.get);
    requests.extend(blocks.into_iter().map(Request::Bulk));
    let mut sent = JoinSet::new();
    loop {
        // The last one is sent first.
        while sent.len() < IN_FLIGHT_MAX
            && let Some(request) = requests.pop()
        {
            exchange.send(request.variables().iter().map(|one| one.place));
            sent.spawn(send(client.clone(), request, !state.lacks_uptime));
        }
        let Some(answered) = sent.join_next().await else { return Ok(()) };
        let answered = answered.map_err(|error| Failure::broken(error.to_string()))?;
        requests.extend(take(answered, due, exchange, state)?);
    }
}

/// GET of some variables. The text of a row and its value travel in one request.
fn gets(variables: Vec<Variable>, most: usize) -> Vec<Request> {
    let mut requests: Vec<Vec<Variable>> = Vec::new();
    let mut size = most;
    for variable in variables {
        let needs: usize = variable.oids().map(bytes).sum();
        if size + needs > most {
            requests.push(Vec::new());
            size = 0;
        }
        size += needs;
        if let Some(last) = requests.last_mut() {
            last.push(variable);
        }
    }
    requests.into_iter().rev().map(Request::Get).collect()
}

/// Sends a request, with sysUpTime if it has counters.
async fn send(client: SnmpClient, request: Request, has_uptime: bool) -> Answered {
    let has_counter = |all: &[Variable]| has_uptime && all.iter().any(|one| one.is_counter);
    let uptime = Oid::from_slice(&UPTIME);
    let (oids, response) = match &request {
        Request::Get(variables) => {
            let mut oids = oids(variables);
            if has_counter(variables) && !oids.contains(&uptime) {
                oids.push(uptime);
            }
            let response = client.get(&oids).await;
            (oids, response)
        }
        Request::Bulk(block) => {
            let before = if has_counter(&block.variables) { uptime.parent() } else { None };
            (Vec::new(), client.get_bulk(before, block.starts(), block.rows).await)
        }
    };
    (request, oids, response)
}

/// Takes the response to a request. Returns the requests for what it lacks.
fn take(
    (request, oids, response): Answered,
    due: &[&Description],
    exchange: &mut Exchange,
    state: &mut AgentState,
) -> Result<Vec<Request>, Failure> {
    let variables = match request {
        Request::Get(variables) => variables,
        Request::Bulk(block) => {
            let found = values_of(&block, response, &mut state.limits)?;
            let is_whole = |one: &Variable| one.oids().all(|oid| found.contains_key(oid));
            let (whole, rest): (Vec<_>, _) = block.variables.into_iter().partition(is_whole);
            add(&whole, &found, due, exchange, state);
            return Ok(gets(rest, state.limits.get));
        }
    };
    match response {
        Ok(found) => {
            let found = found.into_iter().map(|one| (one.oid, one.value)).collect();
            add(&variables, &found, due, exchange, state);
            Ok(Vec::new())
        }
        Err(RequestError::Failed(failure)) => Err(failure),
        Err(RequestError::Rejected(rejected, why)) => {
            rejected_get((variables, &oids), (rejected, why), exchange, state)
        }
    }
}

/// The values that a response to GETBULK has.
fn values_of(
    block: &Block,
    response: Result<Vec<VarBind>, RequestError>,
    limits: &mut Limits,
) -> Result<HashMap<Oid, Value>, Failure> {
    match response {
        Ok(found) => {
            limits.is_unanswered = false;
            // An agent returns what fits its longest response, or all until its last value.
            let is_end = found.last().is_some_and(|last| last.value == Value::EndOfMibView);
            if found.len() < block.values() && !is_end {
                limits.lower_bulk(block.bytes() * found.len() / block.values());
            }
            Ok(blocks::values(found))
        }
        Err(RequestError::Rejected(..)) => {
            limits.is_unanswered = false;
            limits.lower_bulk(block.bytes() / 2);
            Ok(HashMap::new())
        }
        // Some agents are silent about GETBULK.
        Err(RequestError::Failed(failure)) if failure.cause == Cause::SourceTimeout => {
            limits.lower_bulk(0);
            Ok(HashMap::new())
        }
        Err(RequestError::Failed(failure)) => Err(failure),
    }
}

/// Returns the requests that replace a rejected GET.
fn rejected_get(
    (mut variables, oids): (Vec<Variable>, &[Oid]),
    (rejected, why): (Rejected, &str),
    exchange: &mut Exchange,
    state: &mut AgentState,
) -> Result<Vec<Request>, Failure> {
    let failure = || Failure::broken(format!("the agent reports {why}"));
    match rejected {
        Rejected::Variable(index) => {
            // Version 1 names the variable; the rest is requested again.
            let Some(bad) = index.checked_sub(1).and_then(|index| oids.get(index)) else {
                return Err(Failure::broken(format!("the agent reports {why} of no variable")));
            };
            if *bad == Oid::from_slice(&UPTIME) && !variables.iter().any(|one| one.has(bad)) {
                state.lacks_uptime = true;
            }
            for one in variables.extract_if(.., |one| one.has(bad)) {
                if let Some(row) = &one.row {
                    state.rows.forget(&row.column);
                }
                exchange.fail(one.place, failure());
            }
            let is_empty = variables.is_empty();
            Ok(if is_empty { Vec::new() } else { vec![Request::Get(variables)] })
        }
        Rejected::Size if variables.len() <= 1 => {
            variables.iter().for_each(|one| exchange.fail(one.place, failure()));
            Ok(Vec::new())
        }
        Rejected::Size => {
            // Any other error may be that of one broken variable.
            if why == TOO_BIG {
                state.limits.lower_get(oids.iter().map(bytes).sum::<usize>() / 2);
            }
            let rest = variables.split_off(variables.len() / 2);
            Ok([rest, variables].map(Request::Get).into())
        }
    }
}

/// The OIDs of a request, each once.
fn oids(request: &[Variable]) -> Vec<Oid> {
    let mut known = HashSet::new();
    request.iter().flat_map(Variable::oids).filter(|oid| known.insert(*oid)).cloned().collect()
}

fn add(
    request: &[Variable],
    found: &HashMap<Oid, Value>,
    due: &[&Description],
    exchange: &mut Exchange,
    state: &mut AgentState,
) {
    let at = request.first().map_or(exchange.at, |one| exchange.instant(one.place));
    let beyond = wrapped(request, found, at, state);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;

    const COLUMN: [u32; 4] = [1, 3, 6, 9];

    fn found(column: [u32; 4], row: u32, value: Value) -> VarBind {
        VarBind::new(Oid::from_slice(&column).child(row), value)
    }

    fn block(rows: u32) -> Block {
        let variable =
            |(row, place)| Variable { place, ..Variable::of(Oid::from_slice(&COLUMN).child(row)) };
        let (mut blocks, rest) = blocks::find((1..=rows).zip(0..).map(variable).collect(), 1300);
        assert!(rest.is_empty());
        blocks.pop().unwrap()
    }

    #[test]
    fn what_getbulk_lacks_is_read_by_get_and_other_oids_are_no_values() {
        let entry = |row: u32| {
            format!("- {{name: v{row}, device_id: sw, url: 'snmp://sw/1.3.6.9.{row}'}}\n")
        };
        let all = entries_of(&(1..=5).map(entry).collect::<String>());
        let due: Vec<&Description> = all.iter().collect();
        let (mut exchange, mut state) = (Exchange::new(Timestamp(0), 5), AgentState::default());
        let response = vec![
            found(COLUMN, 1, Value::Integer(10)),
            // Of another column, of a row that nothing requests, and twice.
            found([1, 3, 6, 8], 2, Value::Integer(20)),
            found(COLUMN, 7, Value::Integer(70)),
            found(COLUMN, 3, Value::Integer(30)),
            found(COLUMN, 3, Value::EndOfMibView),
        ];
        let answered = (Request::Bulk(block(5)), Vec::new(), Ok(response));
        let more = take(answered, &due, &mut exchange, &mut state).unwrap();
        let read: Vec<_> = exchange.readings.iter().map(|one| (&*one.metric, one.value)).collect();
        assert_eq!(read, [("v1", 10.0), ("v3", 30.0)]);
        assert!(exchange.failures.is_empty());
        let [Request::Get(rest)] = &more[..] else { panic!("{}", more.len()) };
        assert_eq!(rest.iter().map(|one| one.place).collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn an_agent_shows_its_limits() {
        let bulk_after = |response| {
            let mut limits = Limits::default();
            limits.is_unanswered = true;
            let result = values_of(&block(10), response, &mut limits);
            (result.map(|found| found.len()).ok(), limits.bulk, limits.is_unanswered)
        };
        let whole =
            |rows: u32| (1..=rows).map(|row| found(COLUMN, row, Value::Integer(1))).collect();
        let (all, bytes) = (Limits::default().bulk, block(10).bytes());
        assert_eq!(bulk_after(Ok(whole(10))), (Some(10), all, false));
        assert_eq!(bulk_after(Ok(whole(5))), (Some(5), bytes / 2, false), "a short response");
        let mut to_the_end: Vec<VarBind> = whole(5);
        to_the_end.push(found(COLUMN, 5, Value::EndOfMibView));
        assert_eq!(bulk_after(Ok(to_the_end)), (Some(5), all, false), "the agent's last value");
        let rejected = RequestError::Rejected(Rejected::Size, "genErr");
        assert_eq!(bulk_after(Err(rejected)), (Some(0), bytes / 2, false));
        let silent = RequestError::Failed(Failure::timeout("no response"));
        assert_eq!(bulk_after(Err(silent)).1, 0);
        let wrong = RequestError::Failed(Failure::denied("wrong key"));
        assert_eq!(bulk_after(Err(wrong)), (None, all, true));
    }
}
