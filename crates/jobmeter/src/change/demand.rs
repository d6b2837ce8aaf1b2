//! `jobmeter set`, `flush` and `promote`: change the settings of nodes and polled devices for a time.

use crate::change::demand_options::{FlushArgs, PromoteArgs, SetArgs, csv_needs_list, time, words};
use crate::change::receipts::{NOTHING, feed_receipt, polled_receipt, receipt};
use crate::change::{change_list, nothing_matches};
use crate::client::http_client::{Client, escape};
use crate::client::plain::note;
use crate::output::check_names::{
    check_may_burst, check_may_flush, check_perf_events, check_source_or_protocol,
};
use crate::output::csv_rows;
use crate::output::show::Table;
use crate::output::times::{Times, machine_value};
use anyhow::{Context, bail};
use api::{ChangeReceipt, FlushOn, Promote, Promoted, Set, SetBurst};
use model::setting::{Kind, SettingValue};
use sources::Every;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Default of the nodes' `remote.time_max`. The server does not know the setting of each node.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// `jobmeter set`.
pub(crate) fn set(client: &Client, args: &SetArgs) -> anyhow::Result<ExitCode> {
    csv_needs_list(args.format, args.list)?;
    let (mut out, json) = (BufWriter::new(io::stdout().lock()), args.format.json);
    let mut code = ExitCode::SUCCESS;
    if args.list {
        change_list::list(client, args.format, &mut out)?;
    } else if let Some(number) = args.undo {
        let polled = sources_of_polls(client, number);
        let undone: ChangeReceipt = client.delete(&format!("/api/v1/settings/{number}"))?;
        match polled {
            None => receipt(json, &mut out, &undone, ("change", "is undone"))?,
            Some(sources) => polled_receipt(json, &mut out, &undone, ("is undone", &sources))?,
        };
    } else {
        let set = wanted(args)?;
        let made: ChangeReceipt = client.post("/api/v1/settings", &set)?;
        code = match polled_sources(&set) {
            None => receipt(json, &mut out, &made, ("change", "is active"))?,
            Some(sources) => polled_receipt(json, &mut out, &made, ("is active", &sources))?,
        };
        out.flush()?;
        if polled_sources(&set).is_none() {
            code = with_unknown(client, &set.nodes, &made, ("change", "is active"), code)?;
        }
        if made.nodes_reporting > 0 && !json {
            note(
                "after two periods, `jobmeter set --list` shows which nodes apply it or reject a part of it",
            )?;
        }
        if let Some(line) = may_end_earlier(set.for_seconds) {
            note(&line)?;
        }
    }
    out.flush()?;
    Ok(code)
}

/// The sources of pollers whose period a change sets; `None`: it concerns agents only.
fn polled_sources(set: &Set) -> Option<String> {
    of_polls(set.sources.iter().map(|(name, one)| (&**name, one.period_seconds)))
}

/// The same of an active change.
fn sources_of_polls(client: &Client, number: u64) -> Option<String> {
    let changes: Vec<api::SetChange> = client.get("/api/v1/settings").ok()?;
    let change = changes.iter().find(|change| u64::try_from(change.id) == Ok(number))?;
    of_polls(change.settings.iter().map(|one| (&*one.source, one.period_seconds)))
}

fn of_polls<'a>(changed: impl Iterator<Item = (&'a str, Option<f64>)>) -> Option<String> {
    let is_polled =
        |one: &(&str, Option<f64>)| one.1.is_some() && config::POLLED_SOURCES.contains(&one.0);
    let names: Vec<&str> = changed.filter(is_polled).map(|(name, _)| name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The change that the options describe.
fn wanted(args: &SetArgs) -> anyhow::Result<Set> {
    let lasts = time("for", args.time.as_deref())?
        .context("--for is missing: the duration of the change, such as 30m")?;
    let mut set = Set {
        nodes: args.nodes.clone().context("--nodes is missing")?,
        for_seconds: lasts.as_secs_f64(),
        ..Set::default()
    };
    let named = words(args.source.as_deref());
    named.iter().try_for_each(|name| check_source_or_protocol(name))?;
    named.iter().try_for_each(|name| check_has_no_program(name))?;
    let period = within("period", args.period.as_deref(), config::source_setting("period"))?;
    let enabled = args.enabled;
    let burst = within("burst", args.burst.as_deref(), config::burst_setting("period"))?;
    if period.is_some() || enabled.is_some() {
        let all = named.is_empty();
        if all && enabled.is_some() {
            bail!("--enabled needs --source");
        }
        if let Some(name) = named.iter().find(|name| config::is_only_polled(name))
            && enabled.is_some()
        {
            bail!("--enabled: the source {name} of pollers has the option --period only");
        }
        for name in if all { read_at_each_tick() } else { named.clone() } {
            let source = set.sources.entry(name).or_default();
            (source.period_seconds, source.enabled) = (period, enabled);
        }
    }
    let events = words(args.perf.as_deref());
    if !events.is_empty() {
        let spec = check_perf_events(&events)?;
        let perf = set.sources.entry(spec.name.to_owned()).or_default();
        (perf.enabled, perf.events) = (Some(true), Some(events));
        perf.period_seconds = period;
    }
    if let Some(burst) = burst {
        if named.is_empty() {
            bail!("--burst needs --source");
        }
        named.iter().try_for_each(|name| check_may_burst("--burst", name))?;
        let keep = within("keep", args.keep.as_deref(), config::burst_setting("keep"))?
            .context("--burst needs --keep, the length of the burst")?;
        let on = words(args.flush_on.as_deref());
        let on = on.iter().map(|word| match word.as_str() {
            "job_start" => Ok(FlushOn::JobStart),
            "job_end" => Ok(FlushOn::JobEnd),
            other => bail!("--flush-on {other}: it is job_start, job_end, or both"),
        });
        let burst = SetBurst {
            period_seconds: burst,
            keep_seconds: keep,
            flush_on: on.collect::<Result<_, _>>()?,
        };
        set.bursts = named.into_iter().map(|name| (name, burst.clone())).collect();
    }
    if set.sources.is_empty() && set.bursts.is_empty() {
        bail!("nothing to change: add --period, --enabled, --perf or --burst");
    }
    Ok(set)
}

/// The message for a change that nodes with the default limit end before its time.
fn may_end_earlier(for_seconds: f64) -> Option<String> {
    let is_longer = for_seconds > TIME_MAX.as_secs_f64();
    is_longer.then(|| {
        format!(
            "each node ends it after its own `remote.time_max` at the latest, which is {} by default; `jobmeter set \
             --list` shows the nodes that shorten it",
            model::setting::show_duration(TIME_MAX)
        )
    })
}

/// The seconds in the value of an option, within the limits of its setting.
fn within(option: &str, value: Option<&str>, kind: Option<Kind>) -> anyhow::Result<Option<f64>> {
    let Some(duration) = time(option, value)? else { return Ok(None) };
    let setting = SettingValue::Duration(duration);
    if let Some(Err(want)) = kind.map(|kind| kind.accepts(&setting)) {
        bail!("--{option} {}: it must be {want}", value.unwrap_or_default());
    }
    Ok(Some(duration.as_secs_f64()))
}

/// Default sources of a change: those that agents read at each tick, without running a program.
fn read_at_each_tick() -> Vec<String> {
    let ticking = sources::SOURCES.iter().filter(|spec| matches!(spec.every, Every::Tick));
    ticking.filter(|spec| !runs_program(spec)).map(|spec| spec.name.to_owned()).collect()
}

fn runs_program(spec: &sources::SourceSpec) -> bool {
    spec.options.iter().any(|option| matches!(option.kind, Kind::Command(_)))
}

/// Rejects a source that every node rejects in a change.
fn check_has_no_program(name: &str) -> anyhow::Result<()> {
    if sources::list::find(name).is_some_and(runs_program) {
        bail!("--source {name}: the source runs a program; only the node's own file may change it");
    }
    Ok(())
}

/// `jobmeter flush`.
pub(crate) fn flush(client: &Client, args: &FlushArgs) -> anyhow::Result<ExitCode> {
    let (nodes, source) = (&args.nodes, &args.source);
    let is_of_feeds = source == config::FED_SOURCE;
    if !is_of_feeds {
        check_may_flush(source)?;
    }
    let now = api::FlushNow { nodes: nodes.clone(), source: source.clone() };
    let made: ChangeReceipt = client.post("/api/v1/flushes", &now)?;
    let mut out = io::stdout().lock();
    if is_of_feeds {
        return feed_receipt(args.format.json, &mut out, &made);
    }
    let mut code = receipt(args.format.json, &mut out, &made, ("flush", "is requested"))?;
    let (rejected, is_accepted) = nothing_matches::rejected_bursts(client, nodes, source);
    if !rejected.is_empty() && !is_accepted {
        note(&format!("none of these nodes has a burst of {source} to send"))?;
        code = ExitCode::from(NOTHING);
    }
    rejected.iter().try_for_each(|line| note(line))?;
    code = with_unknown(client, nodes, &made, ("flush", "is requested"), code)?;
    if made.nodes_known > 0 && !nothing_matches::has_burst(client, nodes, source) {
        note(&format!(
            "no active change sets a burst of {source} on these nodes: only nodes with a burst in \
             their own file send samples (to set one: `jobmeter set --source {source} --burst \
             100ms --keep 60s --nodes ... --for ...`)"
        ))?;
        if !nothing_matches::may_have_own_burst(client, nodes, source) {
            note(&format!("none of these nodes has a burst of {source} to send"))?;
            code = ExitCode::from(NOTHING);
        }
    }
    Ok(code)
}

/// `jobmeter promote`.
pub(crate) fn promote(client: &Client, args: &PromoteArgs) -> anyhow::Result<ExitCode> {
    const PATH: &str = "/api/v1/promotions";
    let (json, is_list) = (args.format.json, args.list);
    csv_needs_list(args.format, is_list)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if let Some(number) = args.undo {
        let ended: ChangeReceipt =
            client.delete(&format!("{PATH}/{}", escape(&number.to_string())))?;
        receipt(json, &mut out, &ended, ("promotion", "is ended"))?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let promoted: Vec<Promoted> = if is_list {
        client.get(PATH)?
    } else {
        let metric = args
            .metric
            .clone()
            .context("name metrics by a regular expression: jobmeter promote 'perf_.*'")?;
        let lasts = time("for", args.time.as_deref())?.map(|time| time.as_secs_f64());
        let (nodes, job) = (args.nodes.clone(), args.job.clone());
        client.post(PATH, &Promote { metric, nodes, job, for_seconds: lasts })?
    };
    if csv_rows::written(
        args.format.csv,
        &api::columns::<Promoted>(),
        || Ok(serde_json::to_string(&promoted)?),
        &mut out,
    )? {
        return Ok(ExitCode::SUCCESS);
    }
    if json {
        writeln!(out, "{}", machine_value(serde_json::to_value(&promoted)?))?;
    } else {
        write_promoted(&promoted, &Times::of(client)?, &mut out)?;
    }
    out.flush()?;
    let lines = match is_list {
        true => Vec::new(),
        false => nothing_matches::of_promotions(client, &promoted)?,
    };
    lines.iter().try_for_each(|line| note(line))?;
    Ok(ExitCode::from(if lines.is_empty() { 0 } else { NOTHING }))
}

fn write_promoted(promoted: &[Promoted], times: &Times, out: &mut impl Write) -> io::Result<()> {
    let mut table = Table::new(&["ID", "nodes", "metric", "until", "by", "for"]);
    for one in promoted {
        table.row(vec![
            one.id.to_string(),
            one.nodes.clone(),
            one.metric.clone(),
            one.until.map_or_else(|| "-".to_owned(), |until| times.show(until)),
            format!("{} ({})", one.created_by, one.origin),
            one.job.clone().unwrap_or_default(),
        ]);
    }
    if table.is_empty() {
        writeln!(out, "no metric is promoted")?;
    } else {
        table.write(out)?;
    }
    for one in promoted {
        if let Some(error) = &one.error {
            writeln!(out, "{}: promotes nothing: {error}", one.id)?;
        }
        for rejected in &one.rejected {
            writeln!(out, "{}: {} rejects: {}", one.id, rejected.device, rejected.reason)?;
        }
        for shorter in &one.shortened {
            writeln!(out, "{}: {}", one.id, change_list::shortened(shorter, times))?;
        }
    }
    Ok(())
}

/// Names the nodes of a list that never reported, if others did; then the exit code is [`NOTHING`].
fn with_unknown(
    client: &Client,
    list: &str,
    made: &ChangeReceipt,
    (kind, state): (&str, &str),
    code: ExitCode,
) -> anyhow::Result<ExitCode> {
    if made.nodes_known == 0 {
        return Ok(code);
    }
    let made = format!("{kind} {} {state}", made.id);
    let unknown = nothing_matches::unknown_nodes(client, list, &made);
    unknown.iter().try_for_each(|line| note(line))?;
    Ok(if unknown.is_empty() { code } else { ExitCode::from(NOTHING) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::options::ListFormat;
    use clap::{Args as _, FromArgMatches as _};

    fn parse(words: &str) -> anyhow::Result<Set> {
        let command = SetArgs::augment_args(clap::Command::new("set").no_binary_name(true));
        let matches = command.try_get_matches_from(words.split_whitespace())?;
        wanted(&SetArgs::from_arg_matches(&matches)?)
    }

    #[test]
    fn a_change_by_its_flags() {
        let set = parse(
            "--nodes dahu-[1-32] --period 1s --for 30m --source cpu --perf cache_ll,emulation_faults",
        );
        let set = set.unwrap();
        assert_eq!((&*set.nodes, set.for_seconds), ("dahu-[1-32]", 1800.0));
        assert_eq!(set.sources.len(), 2);
        assert_eq!(
            (set.sources["cpu"].period_seconds, set.sources["cpu"].enabled),
            (Some(1.0), None)
        );
        let perf = &set.sources["perf"];
        assert_eq!((perf.enabled, perf.period_seconds), (Some(true), Some(1.0)));
        assert_eq!(perf.events.as_deref().unwrap(), ["cache_ll", "emulation_faults"]);
        let set =
            parse("--nodes n1 --for 1m --source cpu --burst 100ms --keep 60s --flush-on job_end");
        let burst = &set.unwrap().bursts["cpu"];
        assert_eq!((burst.period_seconds, burst.keep_seconds), (0.1, 60.0));
        assert_eq!(burst.flush_on, [FlushOn::JobEnd]);
    }

    #[test]
    fn sources_of_pollers_have_a_period_only() {
        let set = parse("--nodes pdu-[1-8] --source snmp,ipmi --period 1s --for 30m").unwrap();
        assert_eq!(set.sources["snmp"].period_seconds, Some(1.0));
        assert_eq!(polled_sources(&set).as_deref(), Some("ipmi, snmp"));
        let set = parse("--nodes n1 --source ipmi --enabled false --for 30m").unwrap();
        assert_eq!(polled_sources(&set), None);
        let error = |words: &str| parse(words).unwrap_err().to_string();
        let switched = error("--nodes pdu-1 --for 1m --source snmp --enabled false");
        assert!(switched.contains("snmp of pollers has the option --period only"), "{switched}");
        let burst = error("--nodes pdu-1 --for 1m --source snmp --burst 1s --keep 5s");
        assert!(burst.starts_with("--burst: the source `snmp` cannot have a burst"), "{burst}");
        let near = error("--nodes pdu-1 --for 1m --source snpm --period 1s");
        assert!(near.contains("did you mean `snmp`?"), "{near}");
    }

    #[test]
    fn an_unknown_source_is_rejected_with_the_near_name() {
        let error = |words: &str| parse(words).unwrap_err().to_string();
        let change_error = error("--nodes n1 --for 1m --period 1s --source cpu,memry");
        assert!(
            change_error.contains("memry: unknown source; did you mean `memory`?"),
            "{change_error}"
        );
        let change_error = error("--nodes n1 --for 1m --period 1s --source cpu,exec");
        assert!(
            change_error
                .starts_with("--source exec: the source runs a program; only the node's own"),
            "{change_error}"
        );
        let change_error = error("--nodes n1 --for 1m --burst 1s --keep 5s --source taskstats");
        assert!(
            change_error.starts_with("--burst: the source `taskstats` cannot have a burst"),
            "{change_error}"
        );
        let change_error = error("--nodes n1 --for 1m --burst 1s --keep 5s --source nosuch");
        assert!(change_error.contains("nosuch: unknown source"), "{change_error}");
        assert!(parse("--nodes n1 --for 1m --period 20s --source agent").is_ok());
    }

    #[test]
    fn a_change_longer_than_the_default_limit_of_nodes_is_noted() {
        assert_eq!(may_end_earlier(TIME_MAX.as_secs_f64()), None);
        let line = may_end_earlier(TIME_MAX.as_secs_f64() + 1.0).unwrap();
        assert!(line.contains("`remote.time_max` at the latest, which is 1d by"), "{line}");
    }

    #[test]
    fn only_a_list_is_csv() {
        let works = |csv, list| csv_needs_list(ListFormat { json: false, csv }, list).is_ok();
        assert!(works(true, true) && works(false, false) && !works(true, false));
    }

    #[test]
    fn a_period_alone_is_for_what_is_read_at_each_tick() {
        let set = parse("--nodes * --for 1m --period 1s").unwrap();
        assert!(set.sources.contains_key("load") && !set.sources.contains_key("exec"), "{set:?}");
    }

    #[test]
    fn a_change_of_nothing_or_without_an_end_is_rejected() {
        for words in [
            "--nodes n1 --for 1m",
            "--nodes n1 --period 1s",
            "--for 1m --period 1s",
            "--nodes n1 --for x --period 1s",
            "--nodes n1 --for 1m --enabled true",
            "--nodes n1 --for 1m --period 1s --source cpuu",
            "--nodes n1 --for 1m --period 1s --keep 5s",
            "--list --nodes n1 --for 1m --period 1s",
            "--undo 3 --nodes n1 --for 1m --period 1s",
            "--nodes n1 --for 1m --burst 1s --source cpu",
            "--nodes n1 --for 1m --burst 1s --keep 5s --source cpu --flush-on never",
            "--nodes n1 --for 1m --burst 1h --keep 5s --source cpu",
            "--nodes n1 --for 1m --period 2d",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
