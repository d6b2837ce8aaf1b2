//! `jobmeter compare`: whether two systems have the same samples of the same time.
//!
//! - `side`: the syntax of a side. `read`: the rows of each kind of side. `columns`: names of Colmet and FrUCToSA.
//! - `rows`: rows in jobmeter's terms, and the series that both sides can have. `series`: the samples of a side.
//! - `windows`: two series, window by window. `report`: what differs, known differences, and output.

mod columns;
mod read;
mod report;
mod rows;
mod series;
mod side;
mod windows;

use crate::output::check_names;
use crate::output::options::TimeRange;
use crate::output::times::{Times, duration};
use anyhow::{Context as _, bail, ensure};
use config::ClientSettings;
use jiff::tz::TimeZone;
use model::Timestamp;
use read::Request;
use report::Report;
use rows::{Common, Sink};
use series::Samples;
use side::{Kind, Side};
use std::path::PathBuf;
use std::process::ExitCode;
use windows::{Tolerance, Windows};

/// Most windows of a comparison.
const WINDOWS_MAX: i64 = 100_000;

/// Compares the samples of two systems; exit code 1 if they differ
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter compare /var/lib/colmet/hdf5/data http://server:8790 --from 2026-11-01 --to 2026-11-02"
)]
#[command(
    mut_arg("since", |arg| arg.help("From this time on").visible_alias("from")),
    mut_arg("until", |arg| arg.help("Up to this time [default: now]").visible_alias("to")),
    mut_arg("last", |arg| arg.help("This time before now"))
)]
#[command(group = clap::ArgGroup::new("begin").args(["since", "last"]).required(true))]
pub(crate) struct CompareArgs {
    /// Colmet's HDF5 files by their prefix, or a server: http://, colmet+http:// (its values from Colmet),
    /// elasticsearch+http://HOST#PREFIX, graphite+http://HOST#PREFIX, fructosa+http://HOST#PREFIX, kwollect+http://
    #[arg(value_name = "LEFT")]
    left: String,
    /// The other side, in the same form
    #[arg(value_name = "RIGHT")]
    right: String,
    #[command(flatten)]
    range: TimeRange,
    /// Length of the windows in which counters grow and gauges have a mean
    #[arg(long, value_name = "TIME", default_value = "60s")]
    window: String,
    /// Largest difference that counts as equal, in percent of the larger value
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent)]
    tolerance: f64,
    /// Largest difference that counts as equal, in the metric's unit
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = floor)]
    floor: f64,
    /// Only this device; several, separated by commas
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only samples of this job
    #[arg(long, value_name = "[CLUSTER:]ID")]
    job: Option<String>,
    /// Only this metric, by jobmeter's name; several, separated by commas
    #[arg(long, value_name = "NAME", visible_alias = "metrics")]
    metric: Option<String>,
    /// File with the secret of the left side: a token of jobmeter, or `user:password`
    #[arg(long, value_name = "FILE")]
    left_auth: Option<PathBuf>,
    /// The same of the right side
    #[arg(long, value_name = "FILE")]
    right_auth: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    let number = number.filter(|percent| (0.0..=100.0).contains(percent));
    number.map(|percent| percent / 100.0).ok_or_else(|| "expected 0% to 100%, such as 0.5%".into())
}

fn floor(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number from 0 on".into())
}

/// `jobmeter compare`. `server` is the URL that other commands query.
pub(crate) fn compare(
    args: &CompareArgs,
    settings: &ClientSettings,
    server: &str,
) -> anyhow::Result<ExitCode> {
    // Exit code 1 means a difference, so that a server's "not found" is an error as others.
    let report = compared(args, settings, server).map_err(|error| anyhow::anyhow!("{error:#}"))?;
    report.write(args.json)?;
    Ok(ExitCode::from(u8::from(report.differs())))
}

fn compared(args: &CompareArgs, settings: &ClientSettings, server: &str) -> anyhow::Result<Report> {
    let sides = [Side::parse(&args.left)?, Side::parse(&args.right)?];
    let times = Times::at(crate::clock(), TimeZone::system());
    let windows = windows(args, &times)?;
    let common = common(args, &sides)?;
    let auth = [(&args.left_auth, "--left-auth"), (&args.right_auth, "--right-auth")];
    for (side, (file, option)) in sides.iter().zip(auth) {
        ensure!(
            file.is_none() || side.kind().is_some(),
            "{option}: files need no secret; it is for servers"
        );
    }
    let texts = [&args.left, &args.right];
    let mut read = Vec::new();
    for ((side, (file, auth_option)), text) in sides.iter().zip(auth).zip(texts) {
        let request = Request {
            // Growth in the first and the last window also depends on samples beside them.
            from: windows.from.saturating_sub(windows.gap()),
            to: windows.to.saturating_add(windows.gap()),
            devices: common.devices.as_deref(),
            job: args.job.as_deref(),
            auth: file.as_deref(),
            auth_option,
            settings,
            server,
        };
        let mut sink = Sink::new(&common, Samples::default());
        read::read(side, &request, &mut sink).with_context(|| text.clone())?;
        if let Some(key) = sink.samples.of_two_clusters().filter(|_| !common.has_clusters) {
            bail!(
                "{text}: two clusters have a job {}, and the other side has numbers only: select one with --job CLUSTER:ID",
                key.job.as_deref().unwrap_or_default()
            );
        }
        let left_out = sink.left_out;
        read.push((sink.samples.finish(), left_out));
    }
    let [left, right]: [_; 2] = read.try_into().map_err(|_| anyhow::anyhow!("two sides"))?;
    let tolerance = Tolerance { ratio: args.tolerance, floor: args.floor };
    let are_colmet = [sides[0].is_colmet(), sides[1].is_colmet()];
    Report::of(texts.map(Clone::clone), [left, right], are_colmet, windows, tolerance)
}

/// The windows of the options.
fn windows(args: &CompareArgs, times: &Times) -> anyhow::Result<Windows> {
    let length = duration("window", &args.window)?;
    let length = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    ensure!(length >= Timestamp::SECOND, "--window {}: write 1s or more", args.window);
    ensure!(length <= 366 * 86_400 * Timestamp::SECOND, "--window {}: too long", args.window);
    let span = times.span_of(&args.range)?;
    let from = span.from.context("--from is needed, or --last")?.0;
    let to = span.to.unwrap_or_else(|| times.instant_now()).0;
    ensure!(from < to, "the time from --from to --to is empty");
    let windows = Windows { from, to, length };
    ensure!(
        windows.count() <= WINDOWS_MAX,
        "the time has more than {WINDOWS_MAX} windows: write a longer --window"
    );
    Ok(windows)
}

/// What both sides can have, and what the user selected.
fn common(args: &CompareArgs, sides: &[Side; 2]) -> anyhow::Result<Common> {
    let list = |text: &str| text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
    let job = check_names::one_job(args.job.as_deref())?;
    let id = job.as_deref().and_then(|job| job.rsplit(':').next()).map(str::to_owned);
    let is = |kind: Kind| sides.iter().any(|side| side.kind() == Some(kind));
    let columns = sides.iter().filter_map(|side| match side.kind() {
        _ if side.is_colmet() => Some(columns::colmet()),
        Some(Kind::Fructosa) => Some(columns::fructosa()),
        _ => None,
    });
    let has_no_jobs = is(Kind::Kwollect);
    Ok(Common {
        columns: columns.collect(),
        are_paths: is(Kind::Graphite),
        has_no_jobs,
        has_clusters: sides.iter().all(|side| side.kind() == Some(Kind::Server)),
        only_jobs: job.is_some() && !has_no_jobs && !is(Kind::Fructosa),
        devices: check_names::devices(args.device.as_deref())?.as_deref().map(list),
        metrics: args.metric.as_deref().map(|text| list(text).into_iter().collect()),
        job: id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_and_floors() {
        assert_eq!(percent("1%"), Ok(0.01));
        assert_eq!(percent("50"), Ok(0.5));
        for text in ["-1%", "101", "x", "", "nan"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!(floor("0.5"), Ok(0.5));
        assert!(floor("-1").is_err() && floor("inf").is_err());
    }
}
