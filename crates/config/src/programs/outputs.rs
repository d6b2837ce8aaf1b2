//! The outputs of a server: what each delivers, and to which receiver. A table `[outputs.NAME]` in the file is one output.

use crate::settings::file::WrongKey;
use crate::settings::load::{ConfigError, Values};
use crate::settings::pattern::MetricPattern;
use crate::settings::setting::{Kind, Setting};
use crate::settings::text::Raw;
use model::setting::{OptionSpec, words};
use model::{ClusterId, JobKey, NodeList, Timestamp, nearest};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// Most outputs of a server; a store has a follower for each.
pub const OUTPUTS_MAX: usize = 16;
/// Longest name of an output.
const NAME_BYTES_MAX: usize = 64;
/// Most expressions for metrics, and most entries of a list of jobs.
const ENTRIES_MAX: usize = 100;
/// The table of all outputs.
const TABLE: &str = "outputs";
/// What is written instead of it by mistake.
const SINGULAR: &str = "output";
/// The keys of every output, with their help.
const EVERY: Kind =
    Kind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(86_400) };
const COMMON: &[(&str, Kind, &str, &str, &str)] = &[
    ("kind", Kind::Text("KIND"), "", "the name of the table", "The receiver's kind."),
    (
        "metrics",
        Kind::List("PATTERN"),
        "",
        "every metric",
        "Only metrics with a name that one of these expressions matches as a whole.",
    ),
    (
        "devices",
        Kind::TextOf("NODES", is_node_list),
        "",
        "every device",
        "Only these devices: `dahu-[1-32],pdu-*`.",
    ),
    (
        "jobs",
        Kind::TextOf("JOBS", is_job_choice),
        "",
        "samples with and without a job",
        "Only samples of these jobs, `oar:1000-2000,slurm:*`; `any`: of any job; `none`: only samples without a job.",
    ),
    (
        "every",
        EVERY,
        "",
        "every sample",
        "Of each series, only the last sample in each of these windows. A sample that arrives after its window was sent \
         is sent too.",
    ),
    (
        "from",
        Kind::TextOf("now|all|TIME", is_start),
        "now",
        "",
        "Where a new output begins: with samples stored from now on, with `all` stored samples, or with samples of \
         this time and later. It has no effect once the output has begun.",
    ),
];

/// A kind of output, as the configuration sees it. The crate `outputs` passes these in.
#[derive(Clone, Copy, Debug)]
pub struct OutputKind {
    /// Its name: the value of `kind`.
    pub name: &'static str,
    /// One sentence for the manual.
    pub help: &'static str,
    /// Its own options.
    pub options: &'static [OptionSpec],
}

/// The samples without a job, those of any job, or those of some jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobChoice {
    /// With and without a job.
    All,
    /// Without a job.
    None,
    /// Of any job.
    Any,
    /// Of these jobs.
    Of(Vec<JobRange>),
}

/// Jobs of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRange {
    cluster: ClusterId,
    ids: RangeInclusive<i64>,
}

impl JobChoice {
    /// Whether it includes the samples of a job, or those without a job.
    pub fn has(&self, job: Option<&JobKey>) -> bool {
        match (self, job) {
            (Self::All, _) | (Self::None, None) | (Self::Any, Some(_)) => true,
            (Self::Of(ranges), Some(job)) => ranges
                .iter()
                .any(|one| one.cluster == job.cluster && one.ids.contains(&job.id.get())),
            _ => false,
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" => return Ok(Self::All),
            "none" => return Ok(Self::None),
            "any" => return Ok(Self::Any),
            _ => {}
        }
        let ranges: Vec<JobRange> = words(text).map(JobRange::parse).collect::<Result<_, _>>()?;
        if ranges.is_empty() || ranges.len() > ENTRIES_MAX {
            return Err(format!("a list of jobs has 1 to {ENTRIES_MAX} entries"));
        }
        Ok(Self::Of(ranges))
    }
}

impl JobRange {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is neither `none`, `any` nor jobs such as oar:1000-2000, slurm:7 or oar:*"
            )
        };
        let (cluster, ids) = text.split_once(':').ok_or_else(wrong)?;
        let cluster = ClusterId::new(cluster).map_err(|error| error.to_string())?;
        let number = |text: &str| text.parse().ok().filter(|id| *id > 0);
        let ids = match ids.split_once('-') {
            _ if ids == "*" => Some((1, i64::MAX)),
            Some((first, last)) => number(first).zip(number(last)),
            None => number(ids).map(|id| (id, id)),
        };
        let (first, last) = ids.filter(|(first, last)| first <= last).ok_or_else(wrong)?;
        Ok(Self { cluster, ids: first..=last })
    }
}

/// Where a new output begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStart {
    /// With samples stored from now on.
    Now,
    /// With all stored samples.
    All,
    /// With samples of this time and later.
    Time(Timestamp),
}

impl OutputStart {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "now" => Ok(Self::Now),
            "all" => Ok(Self::All),
            _ => Timestamp::parse(text)
                .map(Self::Time)
                .map_err(|error| format!("neither `now` nor `all`, and no time: {error}")),
        }
    }
}

fn is_node_list(text: &str) -> Result<(), String> {
    NodeList::new(text).map(drop).map_err(|error| error.to_string())
}

fn is_job_choice(text: &str) -> Result<(), String> {
    JobChoice::parse(text).map(drop)
}

fn is_start(text: &str) -> Result<(), String> {
    OutputStart::parse(text).map(drop)
}

/// An output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputConfig {
    /// Its name: that of the table.
    pub name: Box<str>,
    /// Its kind.
    pub kind: &'static str,
    /// Its metrics; empty: all.
    pub metrics: Vec<MetricPattern>,
    /// Its devices; `None`: all.
    pub devices: Option<NodeList>,
    /// Its jobs.
    pub jobs: JobChoice,
    /// The window of which it gets one sample of each series; `None`: every sample.
    pub every: Option<Duration>,
    /// Where it begins when it is new.
    pub from: OutputStart,
    /// The options of its kind, as checked texts; a list as one text, separated by commas.
    pub options: BTreeMap<&'static str, String>,
}

/// The settings of the outputs in a file, in its order of names, and its keys that are no output.
pub(crate) fn settings_of(text: &str, kinds: &[OutputKind]) -> (Vec<Setting>, Vec<WrongKey>) {
    let (file, _) = DeTable::parse_recoverable(text);
    let mut wrong = Vec::new();
    let mut add = |key: String, what: String| wrong.push(WrongKey { key, what });
    if file.get_ref().contains_key(SINGULAR) {
        add(SINGULAR.to_owned(), format!("an output is a table `[{TABLE}.NAME]`"));
    }
    let outputs = match file.get_ref().get(TABLE).map(|value| value.get_ref()) {
        Some(DeValue::Table(outputs)) => outputs,
        Some(_) => {
            let what = format!("`{TABLE}` has a table `[{TABLE}.NAME]` for each output");
            add(TABLE.to_owned(), what);
            return (Vec::new(), wrong);
        }
        None => return (Vec::new(), wrong),
    };
    let mut tables = Vec::new();
    for (name, value) in outputs {
        let name = name.get_ref();
        match value.get_ref() {
            DeValue::Table(table) if !name.contains('.') => tables.push((name, table)),
            DeValue::Table(_) => add(format!("{TABLE}.{name}"), wrong_name(name)),
            _ => {
                let what = format!("an output is a table: write `[{TABLE}.{name}]`");
                add(format!("{TABLE}.{name}"), what);
            }
        }
    }
    let each = tables.into_iter().flat_map(|(name, table)| {
        let kind = table.get("kind").and_then(|kind| kind.get_ref().as_str());
        let kind = kind.unwrap_or(name);
        let known = kinds.iter().find(|known| known.name == kind);
        // Beside a wrong kind, the keys of no kind are errors.
        let of_kinds = known.map_or(kinds, std::slice::from_ref);
        settings_of_output(name, of_kinds)
    });
    (each.collect(), wrong)
}

fn wrong_name(name: &str) -> String {
    format!("`{name}` is no name of an output: use 1 to {NAME_BYTES_MAX} of a-z, 0-9, - and _")
}

/// The settings of one output of one of these kinds.
pub fn settings_of_output(name: &str, kinds: &[OutputKind]) -> Vec<Setting> {
    let setting = |key: &str, kind, default: &'static str, unset, help: &'static str| Setting {
        key: format!("{TABLE}.{name}.{key}").into(),
        kind,
        default: default.into(),
        unset,
        help: help.into(),
        topic: format!("Output `{name}`").into(),
        in_file_only: true,
    };
    let common = COMMON
        .iter()
        .map(|(key, kind, default, unset, help)| setting(key, *kind, default, unset, help));
    let options = kinds.iter().flat_map(|kind| kind.options);
    let own = options
        .map(|option| setting(option.name, option.kind, option.default, "nothing", option.help));
    let mut seen = BTreeSet::new();
    common.chain(own).filter(|setting| seen.insert(setting.key.clone())).collect()
}

/// The outputs of a file. Adds all errors to `errors`.
pub(crate) fn outputs_of(
    values: &Values,
    kinds: &[OutputKind],
    errors: &mut Vec<ConfigError>,
) -> Option<Vec<OutputConfig>> {
    let keys = values.settings().iter().filter_map(|setting| {
        let rest = setting.key.strip_prefix(TABLE)?.strip_prefix('.')?;
        rest.strip_suffix(".kind").map(str::to_owned)
    });
    let names: Vec<String> = keys.collect();
    if names.len() > OUTPUTS_MAX {
        let key = format!("{TABLE}.{}.kind", names.last().map_or("", String::as_str));
        errors.push(values.error(&key, &format!("there are more than {OUTPUTS_MAX} outputs")));
    }
    let mut all = Some(Vec::new());
    for name in names.into_iter().take(OUTPUTS_MAX) {
        match (output(&name, values, kinds, errors), &mut all) {
            (Some(output), Some(all)) => all.push(output),
            _ => all = None,
        }
    }
    all
}

fn output(
    name: &str,
    values: &Values,
    kinds: &[OutputKind],
    errors: &mut Vec<ConfigError>,
) -> Option<OutputConfig> {
    let key = |key: &str| format!("{TABLE}.{name}.{key}");
    let is_letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_letter) {
        errors.push(values.error(&key("kind"), &wrong_name(name)));
        return None;
    }
    let written: String = values.get(&key("kind"), errors)?;
    let wanted = if written.is_empty() { name } else { &written };
    let Some(kind) = kinds.iter().find(|kind| kind.name == wanted) else {
        errors.push(values.error(&key("kind"), &unknown_kind(name, &written, kinds)));
        return None;
    };
    let metrics = patterns(&key("metrics"), values, errors);
    let text = |name: &str, errors: &mut _| values.get_or_default::<String>(&key(name), errors);
    let devices = text("devices", errors)?;
    // The kinds of these settings have checked them.
    let devices = if devices.is_empty() { None } else { Some(NodeList::new(&devices).ok()?) };
    let jobs = JobChoice::parse(&text("jobs", errors)?).ok()?;
    let from = OutputStart::parse(&text("from", errors)?).ok()?;
    let every = values.get_or_default(&key("every"), errors)?;
    let mut options = BTreeMap::new();
    for option in kind.options {
        let value = match values.raw(&key(option.name)).map(|(raw, _)| raw)? {
            raw if option.kind.is_list() => raw.list().join(","),
            Raw::One(text) => text.clone(),
            Raw::Many(_) => return None,
        };
        options.insert(option.name, value);
    }
    Some(OutputConfig {
        name: name.into(),
        kind: kind.name,
        metrics: metrics?,
        devices,
        jobs,
        every,
        from,
        options,
    })
}

fn unknown_kind(name: &str, written: &str, kinds: &[OutputKind]) -> String {
    let names = || kinds.iter().map(|kind| kind.name);
    let all = names().collect::<Vec<_>>().join(", ");
    if written.is_empty() {
        return format!("`{TABLE}.{name}` needs `kind`: one of {all}");
    }
    let near = nearest(written, names());
    let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    format!("`{TABLE}.{name}.kind` is `{written}`; it must be one of {all}{near}")
}

fn patterns(
    key: &str,
    values: &Values,
    errors: &mut Vec<ConfigError>,
) -> Option<Vec<MetricPattern>> {
    let words: Vec<String> = values.get(key, errors)?;
    let mut wrong = |what: String| errors.push(values.error(key, &format!("`{key}`: {what}")));
    if words.len() > ENTRIES_MAX {
        wrong(format!("more than {ENTRIES_MAX} expressions"));
        return None;
    }
    let each = words.iter().map(|word| MetricPattern::new(word).map_err(&mut wrong).ok());
    // All of them first, so that one run finds every error.
    each.collect::<Vec<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigFile, ConfigInputs, read_server};
    use model::JobId;

    const KINDS: &[OutputKind] = &[
        OutputKind {
            name: "file",
            help: "A file.",
            options: &[OptionSpec {
                name: "path",
                kind: Kind::Text("FILE|-"),
                default: "",
                help: "Its path.",
            }],
        },
        OutputKind { name: "graphite", help: "Carbon.", options: &[] },
    ];

    fn read(text: &str) -> (Option<Vec<OutputConfig>>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s.toml");
        std::fs::write(&file, text).unwrap();
        let file = ConfigFile::Given(file);
        let inputs = ConfigInputs { file, environment: &|_| None, flags: Vec::new() };
        let read = read_server(&inputs, KINDS);
        let shorten =
            |error: &ConfigError| error.to_string().replace(&*dir.path().to_string_lossy(), "");
        let errors = read.errors.iter().map(shorten).collect();
        (read.loaded.map(|loaded| loaded.config.outputs), errors)
    }

    #[test]
    fn the_kind_is_the_name_of_the_table_unless_it_is_written() {
        let (outputs, errors) = read(
            "[outputs.graphite]\nmetrics = [\"cpu_.*\", \"load_1m\"]\ndevices = \"dahu-[1-32]\"\n\
             jobs = \"oar:1000-2000, slurm:*\"\nevery = \"10s\"\nfrom = \"all\"\n\
             [outputs.copy]\nkind = \"file\"\npath = \"a.json\"\n",
        );
        assert_eq!(errors, [""; 0]);
        let outputs = outputs.unwrap();
        let [copy, graphite] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(
            (&*copy.name, copy.kind, copy.options["path"].ends_with("/a.json")),
            ("copy", "file", true)
        );
        assert_eq!(
            (copy.jobs.clone(), copy.from, copy.every),
            (JobChoice::All, OutputStart::Now, None)
        );
        assert_eq!((graphite.kind, graphite.metrics.len()), ("graphite", 2));
        assert_eq!(
            (graphite.from, graphite.every),
            (OutputStart::All, Some(Duration::from_secs(10)))
        );
        assert!(graphite.devices.as_ref().unwrap().has("dahu-7"));
        let job = |cluster, id| JobKey {
            cluster: ClusterId::new(cluster).unwrap(),
            id: JobId::new(id).unwrap(),
        };
        let has =
            [("oar", 999), ("oar", 1000), ("oar", 2000), ("oar", 2001), ("slurm", 5), ("x", 5)];
        let has = has.map(|(cluster, id)| graphite.jobs.has(Some(&job(cluster, id))));
        assert_eq!(
            (has, graphite.jobs.has(None)),
            ([false, true, true, false, true, false], false)
        );
    }

    #[test]
    fn jobs_of_none_and_of_any() {
        let job = JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(1).unwrap() };
        for (text, with, without) in [("", true, true), ("any", true, false), ("none", false, true)]
        {
            let choice = JobChoice::parse(text).unwrap();
            assert_eq!((choice.has(Some(&job)), choice.has(None)), (with, without), "{text}");
        }
        for text in ["7", "oar:", "oar:0", "oar:9-8", "oar:-3", "oar:a", ":3", ","] {
            assert!(JobChoice::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_error_is_found_and_names_its_place() {
        let (outputs, errors) = read(
            "[outputs.grafite]\n[outputs.a]\nkind = \"fiel\"\npath = \"x\"\n[outputs.B]\nkind = \"file\"\n\
             [outputs.graphite]\nmetric = \"x\"\nmetrics = [\"(\", \"[\"]\njobs = \"7\"\ndevices = \"a[\"\nfrom = \"soon\"\nevery = \"1ms\"\n",
        );
        assert_eq!(outputs, None);
        for part in [
            "`outputs.grafite` needs `kind`: one of file, graphite",
            "/s.toml:3:8: `outputs.a.kind` is `fiel`; it must be one of file, graphite; did you mean `file`?",
            "`B` is no name of an output",
            "/s.toml:8:1: unknown key `outputs.graphite.metric`; did you mean `outputs.graphite.metrics`?",
            "`outputs.graphite.metrics`: `(` is not",
            "`outputs.graphite.metrics`: `[` is not",
            "`outputs.graphite.jobs`: `7` is neither",
            "`outputs.graphite.devices`: `a[` is not",
            "`outputs.graphite.from`: neither",
            "`outputs.graphite.every` is `1ms`",
        ] {
            assert!(errors.iter().any(|error| error.contains(part)), "{part}: {errors:#?}");
        }
    }

    #[test]
    fn other_forms_of_tables_have_one_error_that_shows_the_form() {
        for (text, place, part) in [
            ("[[outputs]]\nname = \"a\"\n", "1:3", "`outputs` has a table `[outputs.NAME]`"),
            ("[output.file]\npath = \"a\"\n", "1:2", "an output is a table `[outputs.NAME]`"),
            ("[outputs.\"a.b\"]\nkind = \"file\"\n", "1:10", "`a.b` is no name of an output"),
            ("[outputs]\nfile = \"/x\"\n", "2:1", "write `[outputs.file]`"),
        ] {
            let (_, errors) = read(text);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].contains(part) && errors[0].contains(place), "{place}: {errors:?}");
        }
    }

    #[test]
    fn outputs_need_followers_and_are_few() {
        let text =
            "store = \"postgres\"\n[postgres]\ndatabase = \"host=/x dbname=y\"\n[outputs.file]\n";
        let (_, errors) = read(text);
        assert!(
            errors.iter().any(|error| error.contains("outputs need the embedded store")),
            "{errors:?}"
        );
        let many: String = (0..17).map(|i| format!("[outputs.n{i}]\nkind = \"file\"\n")).collect();
        assert!(read(&many).1.iter().any(|error| error.contains("more than 16 outputs")));
    }
}
