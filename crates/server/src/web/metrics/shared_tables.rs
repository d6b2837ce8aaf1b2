//! Metrics of the tables that the server shares in the database of the store.

use super::Page;
use crate::common::counts::{SharedTable, SharedTableCounts};
use std::sync::atomic::Ordering;

pub(super) fn shared_tables(counts: &SharedTableCounts, page: &mut Page) {
    let help = "Runs of jobs copied to the database.";
    page.counter("jobmeter_runs_copied_total", help, counts.runs_copied.get());
    let name = "jobmeter_shared_tables_failed_total";
    page.head(name, "counter", "Failed exchanges with a table of the database.");
    for table in SharedTable::ALL {
        let labels = format!("{{table=\"{}\"}}", table.word());
        page.sample(name, &labels, counts.failed.get(table));
    }
    let name = "jobmeter_promotions_without_row";
    let help = "Promotions of devices without a row in promoted_metrics: other programs may reject the \
                expression, or a limit is reached.";
    page.gauge(name, help, counts.promotions_left_out.load(Ordering::Relaxed));
    let name = "jobmeter_promoted_rows_skipped";
    let help = "Rows of others in promoted_metrics that are not promotions.";
    page.gauge(name, help, counts.rows_skipped.load(Ordering::Relaxed));
}
