//! Metrics of outputs.

use super::Page;
use super::polls::escaped;
use crate::app::App;
use outputs::{OutputState, OutputStatus};

/// Writes the metrics of outputs, if there are any.
pub(super) fn outputs(app: &App, page: &mut Page) {
    let all = app.outputs.status();
    if all.is_empty() {
        return;
    }
    let mut each =
        |name: &str, kind: &str, help: &str, value: &dyn Fn(&OutputStatus) -> Option<u64>| {
            page.head(name, kind, help);
            for status in &all {
                if let Some(value) = value(status) {
                    page.sample(name, &format!("{{output=\"{}\"}}", escaped(&status.name)), value);
                }
            }
        };
    let waits = |status: &OutputStatus| Some(u64::from(status.state != OutputState::Working));
    each("jobmeter_output_waiting", "gauge", "1 while an output waits for its receiver.", &waits);
    let help = "Stored samples that an output has not delivered yet.";
    each("jobmeter_output_behind_samples", "gauge", help, &|status| status.behind);
    let help = "Samples that an output delivered.";
    each("jobmeter_output_samples_total", "counter", help, &|status| Some(status.samples));
    let help = "Failed writes of an output; each is repeated.";
    each("jobmeter_output_failures_total", "counter", help, &|status| Some(status.failures));
    let help = "Samples that an output's format leaves out: of jobs of other clusters, beyond its limit of memory, and values that the receiver cannot take.";
    each("jobmeter_output_left_out_samples_total", "counter", help, &|one| Some(one.left_out));
    let help = "Samples that were deleted or damaged before an output read them.";
    each("jobmeter_output_lost_samples_total", "counter", help, &|one| Some(one.samples_lost));
}
