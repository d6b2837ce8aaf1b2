//! `jobmeter devices`: devices that are no nodes, with their state; and what is known of a device without a series.

use crate::client::http_client::{Client, escape, path};
use crate::client::name_suggestions;
use crate::client::plain::note;
use crate::look::entry_errors;
use crate::output::csv_rows;
use crate::output::options::ListFormat;
use crate::output::show::{self, Table};
use crate::output::times::{machine, machine_value};
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Exit code for a device that fails or has an unknown state.
const NOT_WELL: u8 = 1;
/// Default number of devices per page.
const LISTED: usize = 1000;
/// Path of the list.
const DEVICES: &str = "/api/v1/devices";
/// Shortest time for which a rejection of samples counts as the present state.
const REJECTED_SECONDS: f64 = 600.0;
/// A metric of each port of a wattmeter.
const METER_SAMPLES: &str = "wattmetre_samples_total";
/// Part of a period by which the distance of samples may differ from it.
const SAME_PERIOD: f64 = 0.01;
/// Maximum nodes of a device in a row.
const NODES_SHOWN: usize = 4;

/// Lists polled and other devices that are no nodes; exit code 1 if one fails or its poller is silent
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter devices --failing")]
pub(crate) struct DevicesArgs {
    /// Only devices that fail, and those of a poller that is silent
    #[arg(long)]
    failing: bool,
    /// Only devices with this text in their name, their address or the name of a node that they feed
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only devices that feed this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Only this device; several, separated by commas
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Maximum number of devices [default: 1000]
    #[arg(long, value_name = "N")]
    limit: Option<String>,
    /// Start of the next page: the last device of a full page
    #[arg(long, value_name = "DEVICE")]
    after: Option<String>,
    /// Remove the devices of an ended or silent poller or feed until it sends again; for administrators
    #[arg(
        long, value_name = "POLLER",
        conflicts_with_all = ["csv", "failing", "search", "node", "device", "limit", "after"]
    )]
    forget_poller: Option<String>,
    #[command(flatten)]
    format: ListFormat,
}

/// `jobmeter devices`.
pub(crate) fn devices(client: &Client, args: &DevicesArgs) -> anyhow::Result<ExitCode> {
    if let Some(poller) = &args.forget_poller {
        return forget(client, poller, args.format.json);
    }
    let limit = args.limit.clone().unwrap_or_else(|| LISTED.to_string());
    let device = crate::output::check_names::devices(args.device.as_deref())?;
    let parameters = [
        ("failing", args.failing.then(|| "true".to_owned())),
        ("search", args.search.clone()),
        ("node", args.node.clone()),
        ("device", device.clone()),
        ("after", args.after.clone()),
        ("limit", Some(limit.clone())),
    ];
    let path = path(DEVICES, &parameters);
    let body = client.text(&path, "application/json")?;
    let devices: Vec<api::Device> = client.understood(&path, &body)?;
    let code = match devices.iter().any(needs_attention) {
        true => ExitCode::from(NOT_WELL),
        false => ExitCode::SUCCESS,
    };
    let names: BTreeSet<&str> = devices.iter().map(|one| &*one.device).collect();
    let is_full = limit.parse().is_ok_and(|limit: usize| names.len() >= limit);
    let next = devices.last().filter(|_| is_full).map(|last| last.device.clone());
    let mut out = BufWriter::new(io::stdout().lock());
    let columns = api::columns::<api::Device>();
    if csv_rows::written(args.format.csv, &columns, || Ok(body.clone()), &mut out)? {
        // Without a device, the output is the header only.
    } else if args.format.json {
        writeln!(out, "{}", machine(&body))?;
    } else if devices.is_empty() {
        let is_narrowed = parameters.iter().rev().skip(1).any(|(_, value)| value.is_some());
        writeln!(out, "{}", nothing(is_narrowed))?;
    } else {
        let health: api::Health = client.get("/api/v1/health")?;
        write(&devices, health.now, &mut out)?;
    }
    out.flush()?;
    if devices.is_empty() {
        name_suggestions::names(client, device, None)?.iter().try_for_each(|line| note(line))?;
    }
    entry_errors::note_unread_files(client)?;
    if let Some(last) = next {
        note(&format!("there may be more devices; raise --limit, or add --after {last}"))?;
    }
    Ok(code)
}

/// `jobmeter devices --forget-poller`.
fn forget(client: &Client, poller: &str, json: bool) -> anyhow::Result<ExitCode> {
    let path = format!("/api/v1/pollers/{}", escape(poller));
    let forgotten: api::ForgottenPoller = client.delete(&path)?;
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", machine_value(serde_json::to_value(&forgotten)?))?;
    } else {
        let name = forgotten.poller;
        writeln!(out, "the devices of {name} are forgotten; retention deletes their samples")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn needs_attention(device: &api::Device) -> bool {
    matches!(device.state, api::DeviceState::Failing | api::DeviceState::Unknown)
}

/// The message for an empty list.
fn nothing(is_narrowed: bool) -> &'static str {
    match is_narrowed {
        true => "no device that is visible to you matches these options",
        false => {
            "no device besides the nodes; to poll some: jobmeter poll DIR, with the description files in DIR"
        }
    }
}

fn write(devices: &[api::Device], now: f64, out: &mut impl Write) -> io::Result<()> {
    let header =
        ["device", "state", "poller", "address", "every", "last good value", "feeds", "reason"];
    let mut table = Table::new(&header);
    for one in devices {
        table.row(vec![
            one.device.clone(),
            one.state.word().to_owned(),
            one.poller.clone().unwrap_or_default(),
            address(one),
            one.period_seconds.map_or_else(String::new, show::seconds),
            ago(one.last_good, now),
            feeds(&one.aliases),
            one.reason.clone().unwrap_or_default(),
        ]);
    }
    table.write(out)
}

/// The address of a target; it begins with the protocol, except for JSON.
fn address(device: &api::Device) -> String {
    device.address.clone().or_else(|| device.protocol.clone()).unwrap_or_default()
}

fn ago(time: Option<f64>, now: f64) -> String {
    time.map_or_else(String::new, |time| format!("{} ago", show::seconds((now - time).max(0.0))))
}

fn feeds(aliases: &[String]) -> String {
    let (shown, more) = aliases.split_at(aliases.len().min(NODES_SHOWN));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", shown.join(","))
}

/// One line about the devices that a list of nodes omits, if there are any. A server of an earlier version has no list.
pub(crate) fn count_line(client: &Client) -> Option<String> {
    let all = [("limit", Some(api::DEVICES_MAX.to_string()))];
    let devices: Vec<api::Device> = client.get(&path(DEVICES, &all)).ok()?;
    let count = |is_counted: fn(&api::Device) -> bool| {
        let counted = devices.iter().filter(|one| is_counted(one));
        counted.map(|one| &*one.device).collect::<BTreeSet<_>>().len()
    };
    let (all, failing) = (count(|_| true), count(needs_attention));
    let state = match failing {
        0 => "all of them well".to_owned(),
        failing => format!("{failing} of them failing or of a silent poller"),
    };
    let devices = if all == 1 { "device" } else { "devices" };
    (all > 0).then(|| format!("{all} {devices} besides the nodes, {state}: jobmeter devices"))
}

/// The lines of an explanation about the polls of a device. `observed` is the usual distance of the latest samples of the
/// series.
pub(crate) fn poll_lines(
    polls: &[api::Device],
    observed: Option<f64>,
    now: f64,
) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for poll in polls {
        let poller = poll.poller.as_deref().unwrap_or("unknown");
        let every = poll.period_seconds.map_or_else(String::new, |period| {
            // Another entry of the device may have this period, the shortest one. Instants are those of the period's start.
            let is_of_series =
                observed.is_some_and(|observed| (observed - period).abs() <= period * SAME_PERIOD);
            let what = match is_of_series {
                true => "requested every",
                false => "the shortest period of the device is",
            };
            format!(", {what} {}", show::seconds(period))
        });
        let source = match is_fed(poll) {
            true => format!("a wattmeter, read by the feed {poller}"),
            false => format!("{}, read by the poller {poller}{every}", address(poll)),
        };
        lines.push(("source", source));
        lines.push(("state", state(poll, now)));
    }
    lines
}

fn is_fed(poll: &api::Device) -> bool {
    poll.protocol.as_deref() == Some(api::FED_PROTOCOL)
}

fn state(poll: &api::Device, now: f64) -> String {
    let reason = poll.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let last = match (poll.state, poll.last_good) {
        (api::DeviceState::Alive, _) | (_, None) => String::new(),
        (_, last) => format!("; last good value {}", ago(last, now)),
    };
    format!("{}{reason}{last}", poll.state.word())
}

/// The devices that feed a node, as far as the user sees them. A server of an earlier version has no list.
pub(crate) fn feeders(client: &Client, node: &str) -> Vec<String> {
    let parameters = [("node", Some(node.to_owned()))];
    let found: Vec<api::Device> = client.get(&path(DEVICES, &parameters)).unwrap_or_default();
    let names: BTreeSet<String> = found.into_iter().map(|one| one.device).collect();
    names.into_iter().collect()
}

/// Why polled devices have no series of a metric, as far as the server knows: a line for each target.
pub(crate) fn why_not(
    client: &Client,
    devices: &str,
    (metric, now): (&str, f64),
) -> anyhow::Result<Vec<String>> {
    let parameters = [("device", Some(devices.to_owned()))];
    // A server of an earlier version has no list of devices.
    let found: Vec<api::Device> = client.get(&path(DEVICES, &parameters)).unwrap_or_default();
    let errors = entry_errors::of(client, (Some(devices), metric));
    let mut lines: Vec<String> = errors.iter().map(entry_errors::line).collect();
    let has_error = |device: &str| {
        errors.iter().any(|error| error.device.as_deref() == Some(device) && error.metric.is_some())
    };
    let is_polled = |one: &&api::Device| {
        one.state != api::DeviceState::Unpolled && one.protocol.is_some() && !has_error(&one.device)
    };
    for poll in found.iter().filter(is_polled) {
        let device = &poll.device;
        if poll.state != api::DeviceState::Alive {
            lines.push(format!("{device}: {}", state(poll, now)));
            continue;
        }
        let gaps = path("/api/v1/gaps", &[("device", Some(device.clone()))]);
        let gaps: Vec<api::Gap> = client.get(&gaps)?;
        let rejected = rejected_samples(client, poll, &gaps, (metric, now));
        lines.push(rejected.unwrap_or_else(|| no_value(poll, &gaps, (metric, now))));
    }
    // The server may reject the poller's own metrics, too: the device is then in no list.
    for device in name_suggestions::words(Some(devices)) {
        if found.iter().all(|one| one.device != device) {
            let gaps = path("/api/v1/gaps", &[("device", Some(device.to_owned()))]);
            let gaps: Vec<api::Gap> = client.get(&gaps)?;
            lines.extend(rejected_samples(client, &unlisted(device), &gaps, (metric, now)));
        }
    }
    Ok(lines)
}

/// A device of which only the name is known.
fn unlisted(device: &str) -> api::Device {
    api::Device {
        device: device.to_owned(),
        poller: None,
        protocol: None,
        address: None,
        period_seconds: None,
        state: api::DeviceState::Unknown,
        reason: None,
        last_good: None,
        aliases: Vec::new(),
    }
}

/// The rejection of samples of a device that may be those of a metric, with their number.
fn rejected_samples(
    client: &Client,
    poll: &api::Device,
    gaps: &[api::Gap],
    (metric, now): (&str, f64),
) -> Option<String> {
    let gap = rejection_of(poll, gaps, (metric, now))?;
    let (device, at) = (&poll.device, ago(Some(gap.to), now));
    if poll.protocol.as_deref() == Some(&gap.source) {
        return Some(format!("{device}: the poller dropped values, {at}: {}", gap.detail));
    }
    let any = ["poll_success", METER_SAMPLES].join(",");
    let parameters = [("metric", Some(any)), ("device", Some(device.clone()))];
    let of_device: Vec<api::Explanation> =
        client.get(&path("/api/v1/explain", &parameters)).unwrap_or_default();
    let mut senders = of_device.iter().flat_map(|one| &one.senders);
    let sender = senders.find(|one| one.origin == gap.origin);
    let count = sender.map_or_else(String::new, |one| {
        let count = show::count(one.samples_rejected as f64);
        format!("; of {} it rejected {count} samples up to now", gap.origin)
    });
    let which =
        if gap.source.is_empty() { "values" } else { &*format!("`{}_*` values", gap.source) };
    Some(format!("{device}: the server rejected {which}, {at}: {}{count}", gap.detail))
}

/// The latest gap because of rejected samples. The server's gaps name the first word of the metric, those of the poller's
/// limit of an exporter the protocol.
fn rejection_of<'a>(
    poll: &api::Device,
    gaps: &'a [api::Gap],
    (metric, now): (&str, f64),
) -> Option<&'a api::Gap> {
    let word = metric.split('_').next().unwrap_or_default();
    // While samples are rejected, each batch makes the gap longer.
    let least = now - REJECTED_SECONDS.max(3.0 * poll.period_seconds.unwrap_or(0.0));
    let rejected = gaps.iter().filter(|gap| {
        gap.cause == model::Cause::SeriesRejected.words()
            && gap.to >= least
            && (gap.source.is_empty()
                || *gap.source == *word
                || poll.protocol.as_deref() == Some(&*gap.source))
    });
    rejected.max_by(|a, b| a.to.total_cmp(&b.to))
}

/// Why a device that answers has no values of a metric, by its gaps.
fn no_value(poll: &api::Device, gaps: &[api::Gap], (metric, now): (&str, f64)) -> String {
    let (device, poller) = (&poll.device, poll.poller.as_deref().unwrap_or_default());
    if is_fed(poll) {
        return format!("{device}: the feed {poller} sends metrics of wattmeters only");
    }
    let is_of_value =
        |gap: &&api::Gap| gap.source.split_once('/').is_some_and(|(_, entry)| entry == metric);
    match gaps.iter().rfind(is_of_value) {
        Some(gap) => format!(
            "{device}: {} answers, but without this value, {}: {}: {}",
            address(poll),
            ago(Some(gap.to), now),
            gap.cause,
            gap.detail
        ),
        None => format!(
            "{device}: {} answers, but the poller {poller} does not request {metric}: no entry of its \
             description files names it, or it is optional and not promoted",
            address(poll)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(state: api::DeviceState, reason: Option<&str>) -> api::Device {
        api::Device {
            device: "pdu-1".to_owned(),
            poller: Some("one".to_owned()),
            protocol: Some("snmp".to_owned()),
            address: Some("snmp://pdu-1:161".to_owned()),
            period_seconds: Some(5.0),
            state,
            reason: reason.map(str::to_owned),
            last_good: Some(100.0),
            aliases: ["n1", "n2", "n3", "n4", "n5"].map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn a_device_is_a_row() {
        let failing = device(api::DeviceState::Failing, Some("source timed out: no answer"));
        let mut out = Vec::new();
        write(&[failing], 160.0, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = text.lines().nth(1).unwrap();
        for part in ["pdu-1 ", "failing", "snmp://pdu-1:161", "1 min 0 s ago", "n4 and 1 more"] {
            assert!(row.contains(part), "{part}: {row}");
        }
        assert!(row.trim_end().ends_with("source timed out: no answer"), "{row}");
    }

    #[test]
    fn an_explanation_has_the_request_and_the_state() {
        let lines = |state, reason, observed| {
            let lines = poll_lines(&[device(state, reason)], observed, 160.0);
            lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>()
        };
        let text = |state, reason| lines(state, reason, Some(5.0));
        let source = "snmp://pdu-1:161, read by the poller one, requested every 5.000 s";
        assert_eq!(text(api::DeviceState::Alive, None), [source, "alive"]);
        let port = api::Device {
            protocol: Some(api::FED_PROTOCOL.to_owned()),
            address: None,
            ..device(api::DeviceState::Ended, Some("the feed has ended"))
        };
        let of_port: Vec<String> =
            poll_lines(&[port], None, 160.0).into_iter().map(|one| one.1).collect();
        let ended = "ended: the feed has ended; last good value 1 min 0 s ago";
        assert_eq!(of_port, ["a wattmeter, read by the feed one", ended]);
        let silent = "unknown: the poller is silent; last good value 1 min 0 s ago";
        let unknown = api::DeviceState::Unknown;
        assert_eq!(text(unknown, Some("the poller is silent")), [source, silent]);
        // The period of another entry of the device.
        let other = "snmp://pdu-1:161, read by the poller one, the shortest period of the device is 5.000 s";
        for observed in [Some(60.0), Some(5.2), None] {
            assert_eq!(lines(api::DeviceState::Alive, None, observed), [other, "alive"]);
        }
    }

    #[test]
    fn rejected_samples_are_no_missing_entry() {
        let poll = device(api::DeviceState::Alive, None);
        let gap = |source: &str, cause: &str, to: f64| -> api::Gap {
            let gap = serde_json::json!({"origin": "poller-one/group-0", "device": "pdu-1", "source": source,
                "from": 90.0, "to": to, "cause": cause, "detail": "a limit"});
            serde_json::from_value(gap).unwrap()
        };
        let rejected = "series rejected";
        let gaps = [gap("snmp", "source timed out", 120.0), gap("other", rejected, 119.0)];
        assert_eq!(rejection_of(&poll, &gaps, ("power_watts", 160.0)), None);
        let why = no_value(&poll, &gaps, ("power_watts", 160.0));
        assert!(why.contains("does not request power_watts"), "{why}");
        for source in ["power", "snmp", ""] {
            let gaps = [gap("snmp", "source timed out", 120.0), gap(source, rejected, 119.0)];
            assert_eq!(
                rejection_of(&poll, &gaps, ("power_watts", 160.0)),
                Some(&gaps[1]),
                "{source}"
            );
            assert_eq!(rejection_of(&poll, &gaps, ("power_watts", 1000.0)), None, "it is over");
        }
    }
}
