//! `jobmeter devices`: devices that are no nodes, with their state; and what is known of a device without a series.

use crate::client::http_client::{Client, path};
use crate::client::name_suggestions;
use crate::client::plain::note;
use crate::output::csv_rows;
use crate::output::options::ListFormat;
use crate::output::show::{self, Table};
use crate::output::times::machine;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Exit code for a device that fails or has an unknown state.
const NOT_WELL: u8 = 1;
/// Default number of devices per page.
const LISTED: usize = 1000;
/// Path of the list.
const DEVICES: &str = "/api/v1/devices";
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
    #[command(flatten)]
    format: ListFormat,
}

/// `jobmeter devices`.
pub(crate) fn devices(client: &Client, args: &DevicesArgs) -> anyhow::Result<ExitCode> {
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
    if let Some(last) = next {
        note(&format!("there may be more devices; raise --limit, or add --after {last}"))?;
    }
    Ok(code)
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

/// The lines of an explanation about the polls of a device.
pub(crate) fn poll_lines(polls: &[api::Device], now: f64) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for poll in polls {
        let poller = poll.poller.as_deref().unwrap_or("unknown");
        let every = poll.period_seconds.map_or_else(String::new, |period| {
            format!(", requested every {}", show::seconds(period))
        });
        lines.push(("source", format!("{}, read by the poller {poller}{every}", address(poll))));
        lines.push(("state", state(poll, now)));
    }
    lines
}

fn state(poll: &api::Device, now: f64) -> String {
    let reason = poll.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let last = match (poll.state, poll.last_good) {
        (api::DeviceState::Alive, _) | (_, None) => String::new(),
        (_, last) => format!("; last good value {}", ago(last, now)),
    };
    format!("{}{reason}{last}", poll.state.word())
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
    let mut lines = Vec::new();
    for poll in found.iter().filter(|one| one.state != api::DeviceState::Unpolled) {
        let device = &poll.device;
        if poll.state != api::DeviceState::Alive {
            lines.push(format!("{device}: {}", state(poll, now)));
            continue;
        }
        let gaps = path("/api/v1/gaps", &[("device", Some(device.clone()))]);
        let gaps: Vec<api::Gap> = client.get(&gaps)?;
        let is_of_value =
            |gap: &&api::Gap| gap.source.split_once('/').is_some_and(|(_, entry)| entry == metric);
        let poller = poll.poller.as_deref().unwrap_or_default();
        lines.push(match gaps.iter().rfind(is_of_value) {
            Some(gap) => format!(
                "{device}: {} answers, but without this value, {}: {}: {}",
                address(poll),
                ago(Some(gap.to), now),
                gap.cause,
                gap.detail
            ),
            None => format!(
                "{device}: {} answers, but the poller {poller} does not request {metric}: no entry of its \
                 description files names it, the entry has an error (`jobmeter check DIR` there prints the line), or \
                 it is optional and not promoted",
                address(poll)
            ),
        });
    }
    Ok(lines)
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
        let text = |state, reason| {
            let lines = poll_lines(&[device(state, reason)], 160.0);
            lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>()
        };
        let source = "snmp://pdu-1:161, read by the poller one, requested every 5.000 s";
        assert_eq!(text(api::DeviceState::Alive, None), [source, "alive"]);
        let silent = "unknown: the poller is silent; last good value 1 min 0 s ago";
        let unknown = api::DeviceState::Unknown;
        assert_eq!(text(unknown, Some("the poller is silent")), [source, silent]);
    }
}
