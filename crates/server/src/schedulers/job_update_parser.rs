//! Checks updates of scheduler jobs that an administrator or `schedulers.file` reports.

use api::JobUpdate;
use jobs::{NodeShare, RecordUpdate, Step};
use model::{
    ClusterId, DeviceId, JobId, JobKey, JobState, NodeList, Resources, Timestamp, expand_hosts,
};

/// Maximum time by which administrators and schedulers may report in advance: a day.
const TRUSTED_AHEAD: i64 = 24 * 3600 * Timestamp::SECOND;
/// The same for everybody else: clocks differ.
const AHEAD: i64 = 60 * Timestamp::SECOND;
/// Longest list of devices, in bytes.
const LIST_BYTES_MAX: usize = 16 * 1024;
/// Most devices of one job.
const NODES_MAX: usize = 65_536;
/// Bytes of the lists of cores and accelerators of all devices of a job.
const SHARES_BYTES_MAX: usize = 4 << 20;

/// The latest time that a caller may report. `is_trusted`: an administrator, or a file.
pub(crate) const fn latest(is_trusted: bool, now: Timestamp) -> Timestamp {
    now.plus(if is_trusted { TRUSTED_AHEAD } else { AHEAD })
}

/// Checks an update, from a line or a request body; its times are at most `latest`. The error names the invalid field.
pub(crate) fn record_update(update: JobUpdate, latest: Timestamp) -> Result<RecordUpdate, String> {
    let cluster = ClusterId::new(&update.cluster).map_err(|error| error.to_string())?;
    if cluster.reads_as_local() {
        return Err("`cluster` must be a scheduler's cluster; omit it to register a `local` \
                    job"
        .to_owned());
    }
    let id =
        JobId::new(update.id).ok_or_else(|| "`id` must be a whole number above 0".to_owned())?;
    // In lists `local:1` is a job of another cluster.
    if update.display_id.as_ref().is_some_and(|shown| shown.contains(':')) {
        return Err("`display_id` is an ID without its cluster, and has no `:`".to_owned());
    }
    let time = |what: &str, seconds: Option<f64>| {
        seconds.map(|seconds| instant(what, seconds, latest)).transpose()
    };
    let facts = update.facts();
    let nodes = update.nodes.map(shares).transpose()?;
    let steps = update.steps.map(|steps| steps.into_iter().map(|s| step(s, latest)).collect());
    check_durations("requested", &facts.requested)?;
    check_durations("used", &facts.used)?;
    Ok(RecordUpdate {
        submit: time("submit", update.submit)?,
        display_id: update.display_id.map(Box::from),
        state: update.state.map(|word| state(&word)).transpose()?,
        start: time("start", update.start)?,
        stop: time("stop", update.stop)?,
        facts,
        nodes,
        steps: steps.transpose()?,
        ..RecordUpdate::new(JobKey { cluster, id })
    })
}

fn state(word: &str) -> Result<JobState, String> {
    let states = JobState::ALL.map(JobState::word).join(", ");
    JobState::from_word(word).ok_or_else(|| format!("`state` is one of {states}"))
}

/// Expands the devices of a job. Each device of a list (`n[1-3]`) gets the share of the list.
fn shares(update: Vec<api::NodeShare>) -> Result<Vec<NodeShare>, String> {
    let mut shares = Vec::with_capacity(update.len().min(NODES_MAX));
    let mut bytes_left = SHARES_BYTES_MAX;
    let mut take = |one: &api::NodeShare, devices: usize| {
        let bytes = devices.saturating_mul(one.cpu_list.len() + one.gpu_list.len());
        bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| {
            format!("`nodes`: `cpu_list` and `gpu_list` of all devices have {SHARES_BYTES_MAX} bytes at most")
        })?;
        Ok::<_, String>(())
    };
    for one in update {
        if NodeList::is_name(&one.device) {
            take(&one, 1)?;
            shares.push(share(one)?);
            continue;
        }
        if one.device.len() > LIST_BYTES_MAX {
            return Err(format!("`nodes`: a list has {LIST_BYTES_MAX} bytes at most"));
        }
        let names = expand_hosts(&one.device, NODES_MAX.saturating_sub(shares.len()));
        let names = names.map_err(|error| format!("`nodes`: {error}"))?;
        if names.is_empty() {
            return Err("`nodes`: a device has a name".to_owned());
        }
        take(&one, names.len())?;
        for device in names {
            shares.push(share(api::NodeShare { device, ..one.clone() })?);
        }
    }
    Ok(shares)
}

fn share(share: api::NodeShare) -> Result<NodeShare, String> {
    let host = share.device.split_once('.').map(|(host, _)| host);
    let host = host.filter(|host| !host.is_empty()).unwrap_or(&share.device);
    if !NodeList::is_name(host) {
        let shown: String = host.chars().take(100).collect();
        return Err(format!("`nodes`: `{shown}` is no name of one device"));
    }
    Ok(NodeShare {
        device: DeviceId::new(host).map_err(|error| format!("`nodes`: {error}"))?,
        cpus: share.cpus,
        cpu_list: share.cpu_list.into(),
        gpus: share.gpus,
        gpu_list: share.gpu_list.into(),
        memory_bytes: share.memory_bytes,
    })
}

fn step(step: api::Step, latest: Timestamp) -> Result<Step, String> {
    let time =
        |seconds: Option<f64>| seconds.map(|seconds| instant("steps", seconds, latest)).transpose();
    let (start, stop) = (time(step.start)?, time(step.stop)?);
    Ok(Step {
        id: step.id.into(),
        name: step.name.into(),
        state_word: step.state_word.into(),
        start,
        stop,
        exit_code: step.exit_code,
    })
}

fn check_durations(what: &str, of: &Resources) -> Result<(), String> {
    let mut times = [of.wall_seconds, of.cpu_seconds].into_iter().flatten();
    if times.any(|seconds| !seconds.is_finite() || seconds < 0.0) {
        return Err(format!("`{what}`: a duration must not be negative"));
    }
    Ok(())
}

/// Converts seconds since 1970 to an instant that a job may begin or end at: from 2000 to `latest`.
pub(crate) fn instant(what: &str, seconds: f64, latest: Timestamp) -> Result<Timestamp, String> {
    if !(Timestamp::YEAR_2000.seconds()..=latest.seconds()).contains(&seconds) {
        return Err(format!(
            "`{what}` must be seconds since 1970, between the year 2000 and {latest}"
        ));
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the lines above")]
    Ok(Timestamp((seconds * 1e6).round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_767_706_500_000_000);

    fn parsed(text: &str) -> Result<RecordUpdate, String> {
        let update: JobUpdate = serde_json::from_str(text).map_err(|error| error.to_string())?;
        record_update(update, NOW)
    }

    #[test]
    fn instants_of_jobs() {
        let latest = NOW.plus(AHEAD);
        assert_eq!(instant("start", 1_767_706_500.25, latest).unwrap().0, 1_767_706_500_250_000);
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1_767_706_561.0] {
            assert!(instant("start", seconds, latest).is_err(), "{seconds}");
        }
    }

    /// A list of 65 536 devices multiplies the lists of cores.
    #[test]
    fn the_cores_of_all_devices_are_bounded() {
        let update = |devices: &str, bytes: usize| {
            let cores = "1".repeat(bytes);
            parsed(&format!(
                r#"{{"cluster":"site","id":7,"nodes":[{{"device":"{devices}","cpu_list":"{cores}"}}]}}"#
            ))
        };
        assert_eq!(update("n[1-9000]", 400).unwrap().nodes.unwrap().len(), 9000);
        for (devices, bytes) in [("n[1-65536]", 65), ("n[1-9000]", 900_000), ("n1", 5 << 20)] {
            let error = update(devices, bytes).unwrap_err();
            assert!(error.contains("4194304 bytes at most"), "{error}");
        }
    }

    #[test]
    fn the_fields_of_a_line() {
        let line = r#"{"cluster":"site","id":7,"user":"alice","start":1767706400.5,
            "nodes":[{"device":"n1.site.example","cpus":2},{"device":"pdu-1"}],
            "requested":{"wall_seconds":60}}"#;
        let update = parsed(line).unwrap();
        assert_eq!(
            (update.key.to_string(), update.facts.user.as_deref()),
            ("site:7".into(), Some("alice"))
        );
        assert_eq!((update.start, update.stop), (Some(Timestamp(1_767_706_400_500_000)), None));
        let nodes = update.nodes.unwrap();
        assert_eq!((nodes[0].device.as_str(), nodes[0].cpus), ("n1", Some(2)));
        assert_eq!(update.facts.requested.wall_seconds, Some(60.0));
    }

    #[test]
    fn a_list_of_nodes_is_each_of_them() {
        let line = r#"{"cluster":"site","id":7,
            "nodes":[{"device":"n[1-2].site.example,u1","cpus":2},{"device":"gpu-[08,10]"}]}"#;
        let nodes = parsed(line).unwrap().nodes.unwrap();
        let update: Vec<_> = nodes.iter().map(|node| (node.device.as_str(), node.cpus)).collect();
        let two = Some(2);
        assert_eq!(
            update,
            [("n1", two), ("n2", two), ("u1", two), ("gpu-08", None), ("gpu-10", None)]
        );
    }

    #[test]
    fn errors_are_reported() {
        for (line, word) in [
            (r#"{"cluster":"local","id":7}"#, "local"),
            (r#"{"cluster":"LOCAL","id":7}"#, "local"),
            (r#"{"cluster":"Local","id":7}"#, "local"),
            (r#"{"cluster":"slurm","id":7,"display_id":"local:1"}"#, "`display_id`"),
            (r#"{"cluster":"a b","id":7}"#, "a b"),
            (r#"{"cluster":"site","id":0}"#, "`id`"),
            (r#"{"cluster":"site","id":7,"state":"sleeping"}"#, "`state`"),
            (r#"{"cluster":"site","id":7,"start":5}"#, "`start`"),
            (r#"{"cluster":"site","id":7,"strat":5}"#, "strat"),
            (r#"{"cluster":"site","id":7,"nodes":[{"device":""}]}"#, "`nodes`"),
            (r#"{"cluster":"site","id":7,"nodes":[{"device":"n*"}]}"#, "`n*`"),
            (r#"{"cluster":"site","id":7,"nodes":[{"device":"n[1-"}]}"#, "bracket"),
            (r#"{"cluster":"site","id":7,"nodes":[{"device":"n[1-99999]"}]}"#, "65536"),
            (r#"{"cluster":"site"}"#, "id"),
            ("{", "EOF"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
