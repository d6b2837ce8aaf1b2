//! Metrics of PostgreSQL's protocol.

use super::Page;
use crate::common::counts::Arrival;
use crate::common::pg_counts::{PgLimit, PgStatement};
use crate::http::pg_sessions::PgSessions;

pub(super) fn pg(sessions: &PgSessions, page: &mut Page) {
    let counts = &sessions.counts;
    let help = "Open connections of PostgreSQL's protocol.";
    page.gauge("jobmeter_pg_connections", help, sessions.seats.taken());
    let name = "jobmeter_pg_connections_total";
    page.head(name, "counter", "Incoming connections of PostgreSQL's protocol, by outcome.");
    for arrival in Arrival::ALL {
        let labels = format!("{{outcome=\"{}\"}}", arrival.word());
        page.sample(name, &labels, counts.arrivals.get(arrival));
    }
    let name = "jobmeter_pg_statements_total";
    page.head(name, "counter", "Statements of PostgreSQL's protocol, by outcome.");
    for outcome in PgStatement::ALL {
        let labels = format!("{{outcome=\"{}\"}}", outcome.word());
        page.sample(name, &labels, counts.statements.get(outcome));
    }
    let name = "jobmeter_pg_limits_total";
    page.head(name, "counter", "Messages and sessions of PostgreSQL's protocol at a limit.");
    for limit in PgLimit::ALL {
        let labels = format!("{{limit=\"{}\"}}", limit.word());
        page.sample(name, &labels, counts.limits.get(limit));
    }
    let counters = [
        ("malformed", "Connections that broke PostgreSQL's protocol.", &counts.malformed),
        ("unidentified", "Sessions that were not authenticated.", &counts.unidentified),
        ("wrong_keys", "Requests to cancel with the key of no session.", &counts.wrong_keys),
    ];
    for (what, help, counter) in counters {
        page.counter(&format!("jobmeter_pg_{what}_total"), help, counter.get());
    }
}
