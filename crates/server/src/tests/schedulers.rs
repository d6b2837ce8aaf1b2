//! How the state of scheduler pollers is reported.

use super::{Site, until};
use crate::Limits;

const ADMIN: &str = "Host: localhost\r\nAuthorization: Bearer token-of-admins\r\n";
const USER: &str = "Host: localhost\r\nAuthorization: Bearer token-of-1234\r\n";

#[test]
fn an_unreachable_scheduler_is_shown_with_the_reason_to_readers_of_everything() {
    let database = "host=/no/such/folder user=oar_ro dbname=oar2";
    let flags = [("schedulers.oar.database", database), ("schedulers.oar.cluster", "site-oar")];
    let site = Site::with(Limits::default(), &flags);
    let failed = "jobmeter_scheduler_rounds_total{cluster=\"site-oar\",outcome=\"failed\"}";
    until("a round has failed", || site.metric(failed) >= 1.0);
    let list = |headers| site.send("GET /api/v1/schedulers", headers, b"").json()[0].clone();
    let got = list(ADMIN);
    assert_eq!((&got["kind"], &got["interface"]), (&"oar".into(), &"database".into()), "{got}");
    assert_eq!((&got["state"], &got["polls"]), (&"failing".into(), &0.into()), "{got}");
    assert_eq!(got["last_success"], serde_json::Value::Null);
    let last_failure = got["last_error"].as_str().unwrap();
    let whom = "OAR's database (oar2 at /no/such/folder): ";
    assert!(
        last_failure.starts_with(whom) && last_failure.contains("No such file"),
        "{last_failure}"
    );
    assert_eq!(list(USER)["last_error"], serde_json::Value::Null);
    let page = site.get("/metrics");
    assert!(!page.text().contains("jobmeter_scheduler_age_seconds{"), "there was no good round");
}

#[test]
fn without_a_scheduler_the_list_is_empty() {
    let site = Site::start();
    assert_eq!(site.get("/api/v1/schedulers").text(), "[]");
    assert!(!site.get("/metrics").text().contains("jobmeter_scheduler_"));
}
