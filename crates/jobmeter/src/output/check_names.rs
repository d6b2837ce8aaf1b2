//! Validates names in options before a command sends a request.

use anyhow::{Context, bail};
use model::DeviceId;
use model::setting::Kind;
use sources::SourceSpec;

/// The comma-separated devices of `--device`; each must be a valid device name.
pub(crate) fn devices(list: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(list) = list else { return Ok(None) };
    for name in list.split(',').map(str::trim) {
        DeviceId::new(name).with_context(|| format!("--device {list}"))?;
    }
    Ok(Some(list.to_owned()))
}

/// The job of `--job`, as `[CLUSTER:]ID`; lists and patterns are rejected.
pub(crate) fn one_job(job: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(job) = job else { return Ok(None) };
    let id = job.rsplit(':').next().unwrap_or_default();
    if !id.chars().any(|c| c.is_ascii_digit()) || id.contains([',', '*', '?', ' ']) {
        bail!("--job {job}: write one job, such as 7 or slurm:1234; `jobmeter jobs` lists them");
    }
    Ok(Some(job.to_owned()))
}

/// Rejects a source that neither agents nor pollers of this version have.
pub(crate) fn check_source_or_protocol(name: &str) -> anyhow::Result<()> {
    if name == config::FED_SOURCE {
        bail!(
            "--source {name}: the feed of a wattmeter has no setting to change; `jobmeter promote \
             wattmetre_power_watt --nodes PORT --for 10m` stores each sample of a port for a time, and `jobmeter flush \
             --nodes PORT --source {name}` those of the last 60 s"
        );
    }
    let names = agent::sources().map(|spec| spec.name).chain(config::POLLED_SOURCES);
    check_among(name, &names.collect::<Vec<_>>()).map_err(|error| {
        let protocols = config::POLLED_SOURCES.join(", ");
        anyhow::anyhow!("{error}; the protocols of pollers are {protocols}")
    })
}

/// Rejects a source of which no program keeps samples for a flush.
pub(crate) fn check_may_flush(name: &str) -> anyhow::Result<()> {
    if config::is_only_polled(name) {
        bail!(
            "--source {name}: pollers keep no samples, so there is nothing to flush; agents keep the samples of a \
             burst (`jobmeter set --burst`), and feeds of wattmeters those of the last 60 s (--source {})",
            config::FED_SOURCE
        );
    }
    let names = agent::sources().map(|spec| spec.name).chain(config::POLLED_SOURCES);
    check_among(name, &names.chain([config::FED_SOURCE]).collect::<Vec<_>>())?;
    check_may_burst("--source", name)
}

fn check_among(name: &str, known: &[&'static str]) -> anyhow::Result<()> {
    if known.contains(&name) {
        return Ok(());
    }
    let is_it = |one: &&&str| one.eq_ignore_ascii_case(name);
    let same = known.iter().find(is_it).copied();
    let meant = same.or_else(|| config::nearest(name, known.iter().copied()));
    let meant = meant.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    bail!("--source {name}: unknown source{meant} (`jobmeter sources` lists the sources)")
}

/// Rejects a source that cannot record bursts.
pub(crate) fn check_may_burst(option: &str, name: &str) -> anyhow::Result<()> {
    if agent::may_burst(name) && !config::is_only_polled(name) {
        return Ok(());
    }
    bail!(
        "{option}: the source `{name}` cannot have a burst: it reports some things once only, or \
         another program or computer reads it"
    )
}

/// Returns the source of `--perf`, the only one with the option `events`. Rejects events that it would reject.
pub(crate) fn check_perf_events(events: &[String]) -> anyhow::Result<&'static SourceSpec> {
    let of = |spec: &'static SourceSpec| {
        let option = spec.options.iter().find(|option| option.name == "events")?;
        Some((spec, option.kind))
    };
    let found = sources::SOURCES.iter().find_map(|spec| of(spec));
    let (spec, kind) = found.context("agents of this version have no source with `events`")?;
    if let Kind::ListOf(_, check) = kind {
        check(&events.join(",")).map_err(|why| anyhow::anyhow!("--perf: {why}"))?;
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_names() {
        let of = |list: &str| devices(Some(list)).map_err(|error| format!("{error:#}"));
        assert_eq!(of("n1, n2"), Ok(Some("n1, n2".to_owned())));
        for list in ["n1,,n2", "n1/x\u{1b}", ","] {
            assert!(of(list).unwrap_err().starts_with(&format!("--device {list}: ")), "{list}");
        }
    }

    #[test]
    fn agents_and_pollers_share_the_sources_that_settings_name() {
        let read: Vec<&str> = agent::sources().map(|spec| spec.name).collect();
        let both = config::POLLED_SOURCES.into_iter().filter(|name| read.contains(name));
        assert_eq!(both.collect::<Vec<_>>(), config::POLLED_AND_READ_SOURCES);
        assert!(check_source_or_protocol("snmp").is_ok() && !read.contains(&"snmp"));
    }

    #[test]
    fn messages_about_sources_of_pollers_name_the_protocols_and_what_can_be_done() {
        let of = |checked: anyhow::Result<()>| checked.unwrap_err().to_string();
        let unknown = of(check_source_or_protocol("SNMP"));
        assert!(unknown.contains("did you mean `snmp`?"), "{unknown}");
        let unknown = of(check_source_or_protocol("qqqqqqqq"));
        assert!(unknown.contains("snmp, ipmi, prometheus, json, modbus"), "{unknown}");
        let fed = of(check_source_or_protocol("wattmetre"));
        assert!(fed.contains("jobmeter promote wattmetre_power_watt"), "{fed}");
        let polled = of(check_may_flush("snmp"));
        assert!(polled.contains("nothing to flush") && polled.contains("wattmetre"), "{polled}");
        assert!(check_may_flush("cpu").is_ok());
        for (name, near) in
            [("SNMP", "snmp"), ("snpm", "snmp"), ("Wattmetre", "wattmetre"), ("cpuu", "cpu")]
        {
            let unknown = of(check_may_flush(name));
            assert!(unknown.contains(&format!("did you mean `{near}`?")), "{unknown}");
        }
    }

    #[test]
    fn one_job_is_wanted() {
        let of = |job: &str| one_job(Some(job)).map_err(|error| error.to_string());
        for job in ["7", "slurm:1234", "slurm:123_4"] {
            assert_eq!(of(job), Ok(Some(job.to_owned())));
        }
        for job in ["1,2", "local:*", "local:", "x"] {
            let error = of(job).unwrap_err();
            assert!(error.starts_with(&format!("--job {job}: write one job")), "{error}");
        }
    }

    #[test]
    fn events_are_those_of_the_agent() {
        let check = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|&word| word.to_owned()).collect();
            check_perf_events(&list).map(|spec| spec.name).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["cache_ll", "emulation_faults"]), Ok("perf"));
        let error = check(&["cach_ll"]).unwrap_err();
        assert!(error.starts_with("--perf: ") && error.contains("cach_ll"), "{error}");
    }
}
