//! A user who races root for the source port of a loopback connection gets no request executed with root's
//! rights.

use crate::common::programs::{self, output, program};
use crate::repository::layers::repository;
use serde_json::Value;
use std::process::Command;

/// Number of attempts in `make test`; `RACES` sets more.
const TRIES: &str = "200";

#[test]
fn a_user_who_races_for_roots_port_gets_none_of_roots_rights() {
    let test = "a_user_who_races_for_roots_port_gets_none_of_roots_rights";
    if !programs::root(test) {
        return;
    }
    let (code, _, why) = output(Command::new("unshare").args(["--net", "true"]));
    if code != 0 {
        println!("{test} needs a network namespace of its own and did not run: {why}");
        return;
    }
    let tries = std::env::var("RACES").unwrap_or_else(|_| TRIES.to_owned());
    let dir = tempfile::tempdir().unwrap();
    let script = repository().join("tests/attacks/stolen_port.py");
    let mut race = Command::new("unshare");
    race.args(["--net", "python3", "-B"]).arg(script).arg(program("jobmeter-server"));
    let (code, out, errors) = output(race.arg(dir.path()).arg(&tries));
    assert_eq!(code, 0, "{out}{errors}");
    println!("{}", out.trim());
    let reported: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let number = |name: &str| reported[name].as_f64().unwrap();
    // Only root may send the request that the test races with.
    assert_eq!((number("user"), number("root")), (403.0, 200.0));
    assert_eq!(number("tries").to_string(), tries);
    assert_eq!(number("as_root"), 0.0, "{out}{errors}");
    // Meanwhile the server recognizes and serves root.
    assert_eq!(number("root_not_known"), 0.0, "{out}");
    // The race took place: connections closed before the server had identified their caller.
    assert!(number("gone") > 0.0, "{out}");
}
