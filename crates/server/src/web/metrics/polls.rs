//! Metrics of pollers and of the devices that they read.

use super::Page;
use crate::app::App;
use api::DeviceState;
use model::{Cause, Timestamp};
use query::PollSummary;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

/// Time in which a summary is used again: it may read blocks.
const FRESH_US: i64 = 10 * Timestamp::SECOND;
/// Pollers with a line of their own, the longest silent ones first.
const POLLERS_MAX: usize = 100;
/// Protocols with lines of their own. Only a program that is no poller of ours sends others.
const PROTOCOLS_MAX: usize = 16;

/// States of polled devices.
const STATES: [DeviceState; 4] =
    [DeviceState::Alive, DeviceState::Failing, DeviceState::Unknown, DeviceState::Ended];

/// Writes the metrics of pollers, if there is one.
pub(super) fn polls(app: &App, page: &mut Page) {
    let starts = app.counts.poller_starts.load(Ordering::Relaxed);
    if starts > 0 {
        let help = "Starts of the programs that the server runs (`poll.metrics_dir`, `inputs.colmet.listen`).";
        page.counter("jobmeter_poll_process_starts_total", help, starts);
    }
    let now = app.now();
    match app.poll_summary.get(now, FRESH_US, || app.engine.poll_summary(now)) {
        Ok(summary) if summary.pollers.is_empty() && summary.entry_errors.is_empty() => {}
        Ok(summary) => write(&summary, page),
        Err(error) => log::warn!("cannot count the polled devices: {error}"),
    }
}

fn write(summary: &PollSummary, page: &mut Page) {
    let name = "jobmeter_poll_devices";
    let help = "Polled devices by protocol and state, one for each target: `unknown` if the poller is silent or no longer polls the device, `ended` if the poller was stopped.";
    page.head(name, "gauge", help);
    let protocols: BTreeSet<&str> =
        summary.devices.keys().map(|(protocol, _)| &**protocol).collect();
    for protocol in protocols.into_iter().take(PROTOCOLS_MAX) {
        for state in STATES {
            let count = summary.devices.get(&(protocol.to_owned(), state.word()));
            let labels =
                format!("{{protocol=\"{}\",state=\"{}\"}}", escaped(protocol), state.word());
            page.sample(name, &labels, count.copied().unwrap_or(0));
        }
    }
    let causes = || Cause::ALL.map(Cause::words).into_iter();
    let name = "jobmeter_poll_failing";
    let help = "Failing devices by the cause of their latest gap.";
    page.head(name, "gauge", help);
    for cause in causes().chain(["unknown"]) {
        if let Some(count) = summary.failing.get(cause) {
            page.sample(name, &format!("{{cause=\"{cause}\"}}"), count);
        }
    }
    let name = "jobmeter_poll_gaps";
    page.head(name, "gauge", "Gaps of pollers that touch the last hour, by cause.");
    for cause in causes() {
        let count = summary.gaps.get(cause).copied().unwrap_or(0);
        page.sample(name, &format!("{{cause=\"{cause}\"}}"), count);
    }
    let silent = summary.pollers.iter().filter(|poller| poller.is_silent).count();
    let ended = summary.pollers.iter().filter(|poller| poller.is_ended).count();
    let name = "jobmeter_poll_pollers";
    let help = "Pollers and feeds that sent a batch within 7 days, by state.";
    page.head(name, "gauge", help);
    page.sample(name, "{state=\"alive\"}", summary.pollers.len() - silent - ended);
    page.sample(name, "{state=\"silent\"}", silent);
    page.sample(name, "{state=\"ended\"}", ended);
    let name = "jobmeter_poll_entry_errors";
    let help = "Errors in the description files of pollers that report some: the entries, or files, are not polled.";
    page.head(name, "gauge", help);
    for (poller, count) in summary.entry_errors.iter().take(POLLERS_MAX) {
        page.sample(name, &format!("{{poller=\"{}\"}}", escaped(poller)), count);
    }
    let name = "jobmeter_poll_last_batch_age_seconds";
    let help =
        "Time since the latest batch of a poller or feed that did not end: the 100 longest times.";
    page.head(name, "gauge", help);
    let running = summary.pollers.iter().filter(|poller| !poller.is_ended);
    for poller in running.take(POLLERS_MAX) {
        let labels = format!("{{poller=\"{}\"}}", escaped(&poller.name));
        page.sample(name, &labels, poller.age_seconds);
    }
}

/// The value of a label, as the text format writes it.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '\\' | '"' => write!(out, "\\{letter}").ok(),
            '\n' => write!(out, "\\n").ok(),
            _ => write!(out, "{letter}").ok(),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use query::PollerAge;

    fn summary(pollers: usize, protocols: usize) -> PollSummary {
        let poller = |number: usize| PollerAge {
            name: format!("a\"b\\{number}"),
            age_seconds: 2.5,
            is_silent: number == 0,
            is_ended: number == 2,
        };
        let protocol = |number: usize| ((format!("p{number}"), "failing"), 2);
        PollSummary {
            devices: (0..protocols).map(protocol).collect(),
            failing: [("source timed out", 1), ("unknown", 1)].into(),
            gaps: [("missed ticks", 7)].into(),
            pollers: (0..pollers).map(poller).collect(),
            entry_errors: (0..pollers).map(|number| (format!("e{number}"), 3)).collect(),
        }
    }

    #[test]
    fn every_state_and_cause_has_a_line() {
        let mut page = Page::default();
        write(&summary(3, 1), &mut page);
        for line in [
            "jobmeter_poll_devices{protocol=\"p0\",state=\"failing\"} 2",
            "jobmeter_poll_devices{protocol=\"p0\",state=\"alive\"} 0",
            "jobmeter_poll_failing{cause=\"source timed out\"} 1",
            "jobmeter_poll_failing{cause=\"unknown\"} 1",
            "jobmeter_poll_gaps{cause=\"missed ticks\"} 7",
            "jobmeter_poll_gaps{cause=\"poller down\"} 0",
            "jobmeter_poll_pollers{state=\"alive\"} 1",
            "jobmeter_poll_pollers{state=\"silent\"} 1",
            "jobmeter_poll_pollers{state=\"ended\"} 1",
            "jobmeter_poll_entry_errors{poller=\"e1\"} 3",
            "jobmeter_poll_last_batch_age_seconds{poller=\"a\\\"b\\\\1\"} 2.5",
        ] {
            assert!(page.text.lines().any(|one| one == line), "{line}\n{}", page.text);
        }
        assert!(!page.text.contains("b\\\\2"), "an ended one has no age: {}", page.text);
    }

    #[test]
    fn the_number_of_lines_is_bounded() {
        let mut page = Page::default();
        write(&summary(5000, 500), &mut page);
        let lines = page.text.lines().filter(|line| !line.starts_with('#')).count();
        let causes = Cause::ALL.len();
        assert!(
            lines <= 2 * POLLERS_MAX + STATES.len() * PROTOCOLS_MAX + 2 * causes + 4,
            "{lines}"
        );
    }
}
