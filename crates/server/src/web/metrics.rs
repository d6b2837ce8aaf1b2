//! `GET /metrics`: the server's own state in the Prometheus text format 0.0.4.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::counts::{
    Arrival, Break, Frame, JwtRejection, LabelValue, Limit, RecordOutcome, Route, Rule,
};
use crate::common::http_error::{HttpError, Why};
use crate::ingest::device_conflicts::contested;
use crate::queries::node_routes::BUILD;
use crate::schedulers::scheduler_poller::PollStatus;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use jobs::Reader;
use kernel::Root;
use kernel::process::{process_stat, process_status};
use std::fmt::Display;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use storage::Stats;

mod outputs;
mod pg;
mod polls;
mod shared_tables;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Returns the metrics. Metrics of jobs are limited to callers with access to every job, metrics of nodes to every
/// node.
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, HttpError> {
    let reader = caller.reader();
    let every_job = reader.is_some_and(Reader::sees_every_job);
    let every_node = reader.is_some_and(Reader::sees_every_node);
    // A thread that may block reads the store's state and /proc.
    let text = tokio::task::spawn_blocking(move || {
        let mut page = Page::default();
        about(&app, &mut page);
        if every_node {
            ingest(&app, &mut page);
            store(&app.store.stats(), contested(&*app.store).len(), &mut page);
            polls::polls(&app, &mut page);
        }
        if every_job {
            jobs(&app, &mut page);
            demand(&app, &mut page);
            schedulers(&app.schedulers, &mut page);
            outputs::outputs(&app, &mut page);
        }
        json_web_tokens(&app, &mut page);
        requests(&app, &mut page);
        pg::pg(&app.pg, &mut page);
        statements(&app.sql.load(), &mut page);
        process(&mut page);
        page.text
    });
    let text = text.await.map_err(|error| HttpError::fault(&error))?;
    Ok(([(header::CONTENT_TYPE, TEXT)], text).into_response())
}

/// A page of metrics.
#[derive(Debug, Default)]
struct Page {
    text: String,
}

impl Page {
    /// Writes the `HELP` and `TYPE` lines of a metric. Writing to a string cannot fail.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        writeln!(self.text, "{name}{labels} {value}").ok();
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        self.sample(name, "", value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.sample(name, "", value);
    }

    /// Writes how often an operation ran, and the sum of its seconds.
    fn timing(&mut self, name: &str, labels: &str, (count, seconds): (u64, f64)) {
        self.sample(&format!("{name}_sum"), labels, seconds);
        self.sample(&format!("{name}_count"), labels, count);
    }
}

fn demand(app: &App, page: &mut Page) {
    let held = &app.on_demand.active().held;
    let name = "jobmeter_demand_changes";
    page.gauge(name, "Active changes of agents' settings.", held.changes.len());
    let name = "jobmeter_demand_promotions";
    page.gauge(name, "Active promotions of metrics.", held.promotions.len());
    let name = "jobmeter_demand_flushes";
    page.gauge(name, "Flushes of bursts that the server sends to agents.", held.flushes.len());
}

fn about(app: &App, page: &mut Page) {
    let labels = format!("{{version=\"{}\",build=\"{BUILD}\"}}", env!("CARGO_PKG_VERSION"));
    page.head("jobmeter_build_info", "gauge", "Always 1; the labels identify the program.");
    page.sample("jobmeter_build_info", &labels, 1);
    let up = app.started.elapsed().as_secs_f64();
    page.gauge("jobmeter_uptime_seconds", "Time since the server's startup.", up);
    let (good, bad) = (&app.counts.reloads, &app.counts.reloads_failed);
    let name = "jobmeter_config_reloads_total";
    page.head(name, "counter", "Reloads of the configuration, by outcome.");
    page.sample(name, "{outcome=\"taken\"}", good.get());
    page.sample(name, "{outcome=\"rejected\"}", bad.get());
    let name = "jobmeter_audit_limited_total";
    let help = "Changes by users beyond the hourly limit; the audit log counts them without \
                entries.";
    page.counter(name, help, app.audit.limited.get());
    let name = "jobmeter_audit_lost_total";
    page.counter(name, "Entries of the audit log that could not be written.", app.audit.lost.get());
}

fn json_web_tokens(app: &App, page: &mut Page) {
    let name = "jobmeter_jwt_rejected_total";
    page.head(name, "counter", "Rejected JSON Web Tokens, by reason.");
    for why in JwtRejection::ALL {
        let labels = format!("{{reason=\"{}\"}}", why.word());
        page.sample(name, &labels, app.counts.jwt_rejected.get(why));
    }
}

fn ingest(app: &App, page: &mut Page) {
    let counts = &app.counts;
    let name = "jobmeter_ingest_frames_total";
    page.head(name, "counter", "Frames received, by outcome.");
    for frame in Frame::ALL {
        let labels = format!("{{outcome=\"{}\"}}", frame.word());
        page.sample(name, &labels, counts.frames.get(frame));
    }
    let each = [
        ("jobmeter_ingest_samples_total", "Samples stored.", &counts.samples),
        (
            "jobmeter_ingest_samples_rejected_total",
            "Rejected samples of stored batches.",
            &counts.samples_rejected,
        ),
        ("jobmeter_ingest_bytes_total", "Size of the request bodies with frames.", &counts.bytes),
    ];
    for (name, help, counter) in each {
        page.counter(name, help, counter.get());
    }
    let name = "jobmeter_agents_evicted_total";
    let help = "Silent agents that the server dropped from memory for others.";
    page.counter(name, help, app.agents.evicted.get());
    let name = "jobmeter_agents_not_remembered_total";
    let help = "Requests of agents that the server could not track, because all tracked agents are active.";
    page.counter(name, help, app.agents.not_remembered.get());
    let name = "jobmeter_pollers_not_remembered_total";
    let help = "Reports of pollers about changes that the server could not track, because all tracked pollers report.";
    page.counter(name, help, app.pollers.not_remembered.get());
    let name = "jobmeter_agent_addresses_not_remembered_total";
    let help =
        "Requests of agents from addresses beyond the limit: their addresses identify no node.";
    page.counter(name, help, app.agent_addresses.not_remembered.get());
    let name = "jobmeter_agent_status_malformed_total";
    let help = "Status headers of agents that could not be decoded; their batches are accepted.";
    page.counter(name, help, app.agents.malformed.get());
    let name = "jobmeter_agent_status_cut_total";
    let help =
        "Rejections, source errors and unread sources that did not fit into a status header.";
    page.counter(name, help, app.agents.cut.get());
    let name = "jobmeter_ingest_seconds";
    page.head(name, "summary", "Time from the last byte of a request with frames to its acks.");
    page.timing(name, "", counts.ingest.get());
}

fn jobs(app: &App, page: &mut Page) {
    let counts = &app.counts;
    let name = "jobmeter_ingest_job_events_total";
    let help = "Job events of nodes that the registry stored.";
    page.counter(name, help, counts.job_events.get());
    let name = "jobmeter_ingest_job_events_rejected_total";
    let help = "Job events of nodes that the server rejected as impossible.";
    page.counter(name, help, counts.job_events_rejected.get());
    let name = "jobmeter_job_records_total";
    page.head(name, "counter", "Updates of schedulers' jobs, by outcome.");
    for fate in RecordOutcome::ALL {
        let labels = format!("{{outcome=\"{}\"}}", fate.word());
        page.sample(name, &labels, counts.records.get(fate));
    }
    let name = "jobmeter_job_records_cut_total";
    let help = "Updates of schedulers' jobs that were truncated because a text or a list was too \
                long.";
    page.counter(name, help, counts.records_cut.get());
    if app.store.shared_tables().is_some() {
        shared_tables::shared_tables(&counts.shared_tables, page);
    }
    let name = "jobmeter_rules_total";
    page.head(name, "counter", "Values that matched a rule of `[[when]]`, by outcome.");
    for rule in Rule::ALL {
        let labels = format!("{{outcome=\"{}\"}}", rule.word());
        page.sample(name, &labels, counts.rules.get(rule));
    }
    let name = "jobmeter_jobs_without_uid";
    let help = "Jobs whose owner has an unknown user ID; these owners cannot see them.";
    match app.registry.jobs_without_id() {
        Ok(count) => page.gauge(name, help, count),
        Err(error) => log::warn!("cannot count jobs without a user ID: {error}"),
    }
    let name = "jobmeter_promotions_cut_total";
    let help = "Promotions left out of a node's configuration because of its limits, each time it \
                was composed.";
    page.counter(name, help, app.on_demand.cut.load(Ordering::Relaxed));
    let name = "jobmeter_settings_cut_total";
    let help = "Settings of changes, by source, and flushes left out of a node's configuration \
                because of its limits, each time it was composed.";
    page.counter(name, help, app.on_demand.settings_cut.load(Ordering::Relaxed));
    let help = "Promotions that running jobs request, dropped because of a limit.";
    let left_out = app.on_demand.left_out.load(Ordering::Relaxed);
    page.gauge("jobmeter_promotions_left_out", help, left_out);
    let name = "jobmeter_job_file_lines_total";
    page.head(name, "counter", "Lines of `schedulers.file`, by outcome.");
    page.sample(name, "{outcome=\"taken\"}", counts.file_lines.get());
    page.sample(name, "{outcome=\"bad\"}", counts.file_lines_bad.get());
}

fn requests(app: &App, page: &mut Page) {
    let counts = &app.counts;
    let (total, seconds) = ("jobmeter_http_requests_total", "jobmeter_http_request_seconds");
    page.head(total, "counter", "Requests answered.");
    for route in Route::ALL {
        let Some(requests) = counts.requests.get(route.place()) else { continue };
        for (class, counter) in (1..).zip(&requests.statuses) {
            if counter.get() > 0 {
                let labels = format!("{{route=\"{}\",status=\"{class}xx\"}}", route.word());
                page.sample(total, &labels, counter.get());
            }
        }
    }
    page.head(seconds, "summary", "Time from a request's header to the header of its response.");
    for route in Route::ALL {
        let Some(requests) = counts.requests.get(route.place()) else { continue };
        page.timing(seconds, &format!("{{route=\"{}\"}}", route.word()), requests.timing.get());
    }
    let name = "jobmeter_refusals_total";
    page.head(name, "counter", "Rejected requests, by reason.");
    for why in Why::ALL {
        let labels = format!("{{reason=\"{}\"}}", why.word());
        page.sample(name, &labels, counts.http_errors.get(why));
    }
    let name = "jobmeter_bodies_rejected_total";
    let help =
        "Request bodies rejected because of a memory limit: that of one sender, or that of all.";
    page.head(name, "counter", help);
    for (budget, bodies) in app.bodies.all() {
        for limit in Limit::ALL {
            let labels = format!("{{budget=\"{budget}\",limit=\"{}\"}}", limit.word());
            page.sample(name, &labels, bodies.rejected(limit));
        }
    }
    let name = "jobmeter_slow_queries_total";
    page.counter(name, "Queries that took longer than `query.slow`.", counts.slow_queries.get());
    let under_way = counts.under_way.load(Ordering::Relaxed);
    let name = "jobmeter_http_requests_under_way";
    page.gauge(name, "Requests in progress, including this one.", under_way);
    page.gauge("jobmeter_connections", "Open connections.", app.seats.taken());
    let name = "jobmeter_connections_total";
    page.head(name, "counter", "Incoming connections, by outcome.");
    for arrival in Arrival::ALL {
        let labels = format!("{{outcome=\"{}\"}}", arrival.word());
        page.sample(name, &labels, counts.arrivals.get(arrival));
    }
    let name = "jobmeter_connections_broken_total";
    page.head(name, "counter", "Connections that broke off, by reason.");
    for kind in Break::ALL {
        let labels = format!("{{reason=\"{}\"}}", kind.word());
        page.sample(name, &labels, counts.breaks.get(kind));
    }
}

fn schedulers(statuses: &[Arc<PollStatus>], page: &mut Page) {
    if statuses.is_empty() {
        return;
    }
    let labels = |status: &PollStatus| format!("{{cluster=\"{}\"}}", status.cluster);
    let name = "jobmeter_scheduler_rounds_total";
    page.head(name, "counter", "Polls of a scheduler, by outcome.");
    for status in statuses {
        for (outcome, rounds) in [("good", &status.good), ("failed", &status.failed)] {
            let labels = format!("{{cluster=\"{}\",outcome=\"{outcome}\"}}", status.cluster);
            page.sample(name, &labels, rounds.get());
        }
    }
    let name = "jobmeter_scheduler_calls_total";
    page.head(name, "counter", "Calls, statements or program runs of successful polls.");
    for status in statuses {
        page.sample(name, &labels(status), status.calls.get());
    }
    let name = "jobmeter_scheduler_records_total";
    page.head(name, "counter", "Job records read from the scheduler, by outcome.");
    for status in statuses {
        for (outcome, records) in [
            ("new", &status.new),
            ("changed", &status.changed),
            ("known", &status.known),
            ("rejected", &status.rejected),
        ] {
            let labels = format!("{{cluster=\"{}\",outcome=\"{outcome}\"}}", status.cluster);
            page.sample(name, &labels, records.get());
        }
    }
    let name = "jobmeter_scheduler_records_cut_total";
    page.head(
        name,
        "counter",
        "Job records that were truncated because a text or a list was too long.",
    );
    for status in statuses {
        page.sample(name, &labels(status), status.cut.get());
    }
    let name = "jobmeter_scheduler_round_seconds";
    page.head(
        name,
        "summary",
        "Duration of polls, from the first call until the registry has stored all records.",
    );
    for status in statuses {
        page.timing(name, &labels(status), status.timing.get());
    }
    let name = "jobmeter_scheduler_age_seconds";
    page.head(name, "gauge", "Time since the last successful poll; no sample before the first.");
    for status in statuses {
        if let Some((_, at)) = status.now().last_success {
            page.sample(name, &labels(status), at.elapsed().as_secs_f64());
        }
    }
}

fn statements(load: &sql::Load, page: &mut Page) {
    let (running, waiting) = (load.running, load.waiting);
    page.gauge("jobmeter_sql_statements", "Running SQL statements.", running);
    page.gauge("jobmeter_sql_statements_waiting", "Waiting SQL statements.", waiting);
    let help = "Memory reserved by running SQL statements, out of `query.memory_bytes_max`.";
    page.gauge("jobmeter_sql_memory_bytes", help, load.memory_bytes);
    let name = "jobmeter_sql_limits_total";
    page.head(name, "counter", "SQL statements that a limit ended, by limit.");
    for (limit, count) in &load.ended {
        page.sample(name, &format!("{{limit=\"{}\"}}", limit.word()), count);
    }
    let name = "jobmeter_sql_worker_deaths_total";
    page.head(name, "counter", "SQL worker processes that died during a statement.");
    page.sample(name, "", load.deaths);
}

fn store(stats: &Stats, claims: usize, page: &mut Page) {
    let gauges = [
        ("series", "Active series in memory.", stats.series),
        ("metrics", "Metrics in the catalogue.", stats.metrics),
        ("head_samples", "Samples in memory that are not in a block yet.", stats.head_samples),
        ("head_bytes", "Memory of these samples.", stats.head_bytes),
        ("log_segments", "Segments of the log.", stats.log_segments),
        ("log_bytes", "Size of the log on disk.", stats.log_bytes),
        ("blocks", "Blocks, including those in the archive.", stats.blocks),
        ("block_bytes", "Size of the blocks on disk.", stats.block_bytes),
        ("block_samples", "Samples in the blocks.", stats.block_samples),
        ("archived_blocks", "Blocks in the archive.", stats.archived_blocks),
        ("archived_bytes", "Size of the blocks in the archive.", stats.archived_bytes),
        ("rollups", "Rollup files.", stats.rollups),
        ("rollup_bytes", "Size of the rollup files on disk.", stats.rollup_bytes),
        ("queue_batches", "Batches that wait for the write to the log.", stats.queue_batches),
        ("queue_bytes", "Size of these batches.", stats.queue_bytes),
        ("gaps", "Stored gaps.", stats.gaps),
        (
            "rows_hidden",
            "Rows of other programs in the database that no answer can show: their names, labels or times are \
             beyond the limits.",
            stats.rows_hidden,
        ),
        ("read_connections_kept", "Unused database sessions.", stats.read_connections_kept),
        (
            "claimed_devices",
            "Devices that several nodes claim.",
            u64::try_from(claims).unwrap_or(0),
        ),
        (
            "failing",
            "1 while the last attempt to write the log or a block, or to merge blocks, failed; the \
             server's log has the cause.",
            u64::from(stats.last_failure.is_some()),
        ),
    ];
    for (what, help, value) in gauges {
        page.gauge(&format!("jobmeter_store_{what}"), help, value);
    }
    store_counters(stats, page);
}

fn store_counters(stats: &Stats, page: &mut Page) {
    let counters = [
        ("commits_total", "Group commits of the log.", stats.commits),
        ("log_errors_total", "Appends to the log that failed.", stats.log_errors),
        (
            "flush_errors_total",
            "Failed writes of blocks; the server tries again.",
            stats.flush_errors,
        ),
        ("merges_total", "Merges of neighbouring blocks into one.", stats.merges),
        ("merged_bytes_total", "Size of the merged blocks.", stats.merged_bytes),
        ("merge_errors_total", "Failed merges; the server tries again.", stats.merge_errors),
        (
            "samples_removed_total",
            "Samples deleted by retention: too old, or too many.",
            stats.samples_removed,
        ),
        (
            "retention_errors_total",
            "Failed moves to the archive and failed deletions; the server tries again.",
            stats.retain_errors,
        ),
        ("gaps_forgotten_total", "Gaps deleted because there were too many.", stats.gaps_forgotten),
        ("read_bytes_total", "Bytes that queries read from blocks.", stats.read.bytes),
        ("read_row_groups_total", "Row groups that queries read.", stats.read.row_groups),
        ("read_rows_total", "Rows that queries decoded.", stats.read.rows),
        ("read_connections_total", "Database sessions of queries.", stats.read_connections_opened),
        ("read_waits_total", "Queries that waited for a database session.", stats.read_waits),
    ];
    for (what, help, value) in counters {
        page.counter(&format!("jobmeter_store_{what}"), help, value);
    }
    let name = "jobmeter_store_fsync_seconds_total";
    page.counter(name, "Seconds spent in fdatasync.", stats.fsync_seconds);
    let name = "jobmeter_store_fsync_seconds_max";
    page.gauge(name, "The longest fdatasync since the start.", stats.fsync_seconds_max);
}

/// Writes this process's resource use, by the names that Prometheus's own clients use.
fn process(page: &mut Page) {
    let Ok(root) = Root::live() else { return };
    let mut text = Vec::new();
    if root.read("proc/self/stat", &mut text).is_ok()
        && let Ok(stat) = process_stat(&text)
    {
        let ticks = stat.user_ticks.saturating_add(stat.system_ticks) as f64;
        let seconds = ticks / rustix::param::clock_ticks_per_second() as f64;
        page.counter("process_cpu_seconds_total", "Processor time of this process.", seconds);
    }
    if root.read("proc/self/status", &mut text).is_ok()
        && let Ok(status) = process_status(&text)
        && let Some(resident_kib) = status.vm_rss
    {
        let help = "Memory of this process that is in RAM.";
        page.gauge("process_resident_memory_bytes", help, resident_kib.saturating_mul(1024));
    }
    let mut files = 0_u64;
    if root.list("proc/self/fd", |_| files += 1).is_ok() {
        // The listing's own descriptor is open during the count.
        page.gauge("process_open_fds", "Open files.", files.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_reported_once_with_its_kind() {
        let mut page = Page::default();
        store(&Stats::default(), 1, &mut page);
        process(&mut page);
        let mut names = std::collections::BTreeSet::new();
        let mut kinds = std::collections::BTreeMap::new();
        for line in page.text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name}");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(names.insert(name.to_owned()), "{name}");
            }
        }
        for (name, kind) in &kinds {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        }
        assert!(names.contains("jobmeter_store_claimed_devices"));
        assert!(kinds.contains_key("process_resident_memory_bytes"));
    }
}
