//! How the state of scheduler pollers is reported.

use super::{Site, until};
use crate::Limits;

const ADMIN: &str = "Host: localhost\r\nAuthorization: Bearer token-of-admins\r\n";
const USER: &str = "Host: localhost\r\nAuthorization: Bearer token-of-1234\r\n";

#[test]
fn one_that_does_not_answer_is_said_with_why_to_who_may_read_everything() {
    let database = "host=/no/such/folder user=oar_ro dbname=oar2";
    let flags = [("schedulers.oar.database", database), ("schedulers.oar.cluster", "site-oar")];
    let site = Site::with(Limits::default(), &flags);
    let failed = "jobmeter_scheduler_rounds_total{cluster=\"site-oar\",outcome=\"failed\"}";
    until("a round has failed", || site.metric(failed) >= 1.0);
    let list = |headers| site.ask("GET /api/v1/schedulers", headers, b"").json()[0].clone();
    let told = list(ADMIN);
    assert_eq!((&told["kind"], &told["interface"]), (&"oar".into(), &"database".into()), "{told}");
    assert_eq!((&told["state"], &told["polls"]), (&"failing".into(), &0.into()), "{told}");
    assert_eq!(told["last_success"], serde_json::Value::Null);
    let trouble = told["last_error"].as_str().unwrap();
    let whom = "OAR's database (oar2 at /no/such/folder): ";
    assert!(trouble.starts_with(whom) && trouble.contains("No such file"), "{trouble}");
    assert_eq!(list(USER)["last_error"], serde_json::Value::Null);
    let page = site.get("/metrics");
    assert!(!page.text().contains("jobmeter_scheduler_age_seconds{"), "there was no good round");
}

#[test]
fn without_one_there_is_nothing_to_tell() {
    let site = Site::start();
    assert_eq!(site.get("/api/v1/schedulers").text(), "[]");
    assert!(!site.get("/metrics").text().contains("jobmeter_scheduler_"));
}
