//! Two servers with the same batches and requests, on the embedded store and on PostgreSQL, answer each caller with the same bytes:
//! every operation of the HTTP API, every table, statements of SQL over HTTP and by PostgreSQL's protocol.

mod changes;
mod masks;
mod pair;
mod requests;
mod row_requests;
mod samples;
mod statements;

use api::Operation;
use pair::{ADMIN, ALICE, BOB, Difference, GUEST, NOBODY, PUSHER, Pair, READERS, STAFF, Token};
use requests::Request;
use samples::Times;
use std::time::{SystemTime, UNIX_EPOCH};

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

/// The differences of the answers to requests, for each caller.
fn differences(pair: &Pair, readers: &[Token], requests: &[Request]) -> Vec<Difference> {
    let of = |token: &Token| {
        requests.iter().filter_map(|request| pair.difference(token, request)).collect::<Vec<_>>()
    };
    readers.iter().flat_map(of).collect()
}

/// The differences of what psql prints for statements, for each caller.
fn psql_differences(pair: &Pair, readers: &[Token], statements: &[String]) -> Vec<Difference> {
    readers.iter().filter_map(|token| pair.psql_difference(token, statements)).collect()
}

/// The requests of every operation that change nothing: all of them, and the first two of each operation.
fn reading(times: Times) -> [Vec<Request>; 2] {
    let of = Operation::ALL.iter().map(|operation| requests::of(*operation, times));
    let all: Vec<Vec<Request>> = of.collect();
    let brief = all.iter().flat_map(|of| of.iter().take(2).cloned()).collect();
    [all.into_iter().flatten().collect(), brief]
}

fn assert_none(differences: &[Difference]) {
    let texts: Vec<&str> = differences.iter().take(20).map(|one| &*one.0).collect();
    assert!(texts.is_empty(), "{} answers differ:\n{}", differences.len(), texts.join("\n\n"));
}

#[test]
fn every_operation_and_table_is_compared() {
    let times = Times::of(now());
    let changes = changes::all(times);
    for operation in Operation::ALL.iter().copied() {
        let reading = requests::of(operation, times).len();
        let changing = changes.iter().filter(|request| request.operation == operation).count();
        assert!(reading + changing > 0, "{operation:?} is not requested");
    }
    let compared: Vec<&str> = statements::TABLES.iter().map(|table| table.name).collect();
    let mut tables = api::TABLES.to_vec();
    tables.retain(|table| !compared.contains(table));
    assert!(tables.is_empty(), "no statement reads {tables:?}");
}

#[test]
fn both_stores_answer_every_caller_with_the_same_bytes() {
    let mut pair = Pair::start(now(), &["--access-anonymous", "jobs"]);
    let [all, brief] = reading(pair.times);
    let (of_tables, others) = (statements::of_tables(pair.times), statements::others(pair.times));
    let mut found = differences(&pair, &[ALICE, STAFF], &all);
    found.extend(differences(&pair, &READERS, &brief));
    found.extend(differences(&pair, &READERS, &statements::posted(&of_tables)));
    found.extend(differences(&pair, &[STAFF], &statements::posted(&others)));
    found.extend(differences(&pair, &READERS, &changes::all(pair.times)));
    found.extend(psql_differences(&pair, &[NOBODY, GUEST, ALICE, STAFF, PUSHER], &of_tables));
    found.extend(psql_differences(&pair, &[BOB], &others));
    // The servers start again, with other rules for what users see.
    pair.restart(&["--access-nodes", "own", "--block-every", "1s"]);
    found.extend(differences(&pair, &[BOB], &all));
    found.extend(differences(&pair, &[NOBODY, GUEST, ALICE, STAFF, PUSHER], &brief));
    found.extend(psql_differences(&pair, &[ALICE, BOB], &of_tables));
    found.extend(differences(&pair, &[ADMIN], &[changes::row_of_now()]));
    assert_none(&found);
    let unused = masks::unused();
    assert!(unused.is_empty(), "masks that mask nothing: {unused:?}");
}

/// The requests that a flaw changes the answer to.
fn changed_by(pair: &Pair, flaw: &str, requests: &[Request]) -> Vec<String> {
    assert_none(&differences(pair, &[STAFF], requests));
    assert_eq!(pair.database(&format!("{flaw} RETURNING 'changed'")).trim(), "changed");
    let changed = requests.iter().filter(|request| pair.difference(STAFF, request).is_some());
    changed.map(|request| format!("{:?}", request.operation)).collect()
}

#[test]
fn a_missing_sample_and_a_changed_alias_are_found() {
    let pair = Pair::start(now(), &[]);
    let (at, past) = (pair.times.past + 600, pair.times.past);
    let range = format!("start_time={past}&end_time={}", past + 1500);
    let get = |more: &str| Request::of(Operation::GetMetrics, &format!("?{more}&{range}"));
    let power = "SELECT sum(value) FROM metrics_by_device WHERE device_id = 'n1' AND metric_id = 'wattmetre_power_watt'";
    let power = statements::posted(&[power.to_owned()]);
    let bounds = format!("?device=n2&metric=load_1m&start={past}&end={}", past + 3600);
    let requests = [
        get("nodes=n2&metrics=load_1m"),
        Request::of(Operation::Range, &format!("{bounds}&step=300")),
        get("nodes=n1&metrics=wattmetre_power_watt"),
        power[0].clone(),
    ];
    let of_row =
        |device: &str| format!("device_id = '{device}' AND timestamp = to_timestamp({at})");
    let flaw = format!("DELETE FROM metrics WHERE {}", of_row("n2"));
    assert_eq!(changed_by(&pair, &flaw, &requests), ["GetMetrics", "Range"]);
    let flaw = format!(
        "UPDATE metrics SET labels = '{{\"_device_alias\": \"n2\"}}' WHERE {}",
        of_row("pdu-1")
    );
    assert_eq!(changed_by(&pair, &flaw, &requests[2..]), ["GetMetrics", "Sql"]);
    // What psql prints of the same table.
    let text = "SELECT count(*) FROM metrics WHERE metric_id = 'load_1m'".to_owned();
    assert!(pair.psql_difference(STAFF, &[text]).is_some());
}
