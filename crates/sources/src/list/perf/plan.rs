//! Maps configured events to the capabilities of this machine: PMU types and event codes, the processors that
//! count them, and the units of their steps.

use super::event_list::{EventSpec, What};
use super::events::{EVENT, EVENT_BYTES, EVENT_JOULES, EVENT_SECONDS};
use super::known_pmus;
use crate::SourceError;
use crate::source::error::Errors;
use kernel::perf::{Counters, Event, GROUP_MAX, PerfError, RAW, SOFTWARE, Target};
use kernel::pmu::{Field, Term, cpus, terms};
use kernel::{ReadError, Root};
use model::Metric;

const PMUS: &str = "sys/bus/event_source/devices";
/// The permission to open counters of other users' tasks.
pub(super) const GRANT: &str =
    "CAP_PERFMON (before Linux 5.8 CAP_SYS_ADMIN), or set kernel.perf_event_paranoid to 0 or less";

/// An event and its metric.
#[derive(Debug)]
pub(super) struct EventMetric {
    pub(super) metric: &'static Metric,
    /// The event's configured text; a label if the metric is shared.
    pub(super) name: Box<str>,
    pub(super) is_labelled: bool,
    /// Conversion of steps to the metric's unit: multiply, then divide. One of both is always 1;
    /// the division keeps whole steps exact.
    multiply: f64,
    divide: f64,
    /// Whether it uses a hardware counter, so that the kernel may multiplex it.
    pub(super) is_multiplexed: bool,
}

/// Events opened together.
#[derive(Debug)]
pub(super) struct Set {
    /// Index of the event in the plan, and its kernel attributes.
    pub(super) events: Vec<(usize, Event)>,
    /// Processors that count for a group of processors; `None`: each processor counts for itself.
    pub(super) cpus: Option<Vec<u32>>,
    /// Whether it can count for a cgroup or a task.
    pub(super) of_jobs: bool,
}

/// The events that this machine counts.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) metrics: Vec<EventMetric>,
    pub(super) sets: Vec<Set>,
}

/// Metric of an event by the PMU's files, and the unit's value of one step.
type EventMeaning = (&'static Metric, f64);

/// How one PMU counts an event.
#[derive(Debug)]
struct Encoding {
    event: Event,
    cpus: Option<Vec<u32>>,
    of_jobs: bool,
}

impl EventMetric {
    pub(super) fn value(&self, steps: u64) -> f64 {
        steps as f64 * self.multiply / self.divide
    }
}

impl Set {
    /// Kernel attributes of its events.
    pub(super) fn numbers(&self) -> Vec<Event> {
        self.events.iter().map(|(_, event)| *event).collect()
    }
}

impl Plan {
    /// Plans the events that can be counted; also returns why the others cannot.
    ///
    /// # Errors
    /// No event can be counted.
    pub(super) fn of(
        root: &Root,
        wanted: &[Vec<EventSpec>],
        online: &[u32],
    ) -> Result<(Self, Option<SourceError>), SourceError> {
        let mut plan = Self::default();
        let mut software = Vec::new();
        let mut rejected = Errors::default();
        for group in wanted {
            let found = plan.sets_of(root, group).and_then(|(metrics, sets)| {
                sets.iter().try_for_each(|set| probe(root, set, group, online))?;
                Ok((metrics, sets))
            });
            match found {
                Ok((metrics, mut sets)) => {
                    plan.metrics.extend(metrics);
                    // Software events need no hardware counter; opened together, they cost little.
                    let alone = |set: &mut Set| {
                        let [(_, event)] = set.events[..] else { return false };
                        event.kind == SOFTWARE
                    };
                    software.extend(sets.extract_if(.., alone).flat_map(|set| set.events));
                    plan.sets.extend(sets);
                }
                Err(error) => rejected.push(error),
            }
        }
        plan.sets.extend(software.chunks(GROUP_MAX).map(|events| Set {
            events: events.to_vec(),
            cpus: None,
            of_jobs: true,
        }));
        match rejected.into_one() {
            Some(error) if plan.sets.is_empty() => Err(error),
            rejected => Ok((plan, rejected)),
        }
    }

    /// Errors in the event list, as far as this machine's files show them; opens nothing.
    pub(super) fn wrong(root: &Root, wanted: &[Vec<EventSpec>]) -> Vec<String> {
        let plan = Self::default();
        let error = |group: &Vec<EventSpec>| match plan.sets_of(root, group) {
            Err(SourceError::Broken(what)) => Some(what.into_owned()),
            _ => None,
        };
        wanted.iter().filter_map(error).collect()
    }

    /// Metrics of a group's events, and the sets to open for them.
    fn sets_of(
        &self,
        root: &Root,
        group: &[EventSpec],
    ) -> Result<(Vec<EventMetric>, Vec<Set>), SourceError> {
        let mut metrics = Vec::new();
        let mut encodings = Vec::new();
        for wanted in group {
            let (event, its_encodings) = resolve(root, wanted)?;
            metrics.push(event);
            encodings.push(its_encodings);
        }
        let first = self.metrics.len();
        if let [encodings] = &mut encodings[..] {
            let set = |Encoding { event, cpus, of_jobs }| Set {
                events: vec![(first, event)],
                cpus,
                of_jobs,
            };
            return Ok((metrics, std::mem::take(encodings).into_iter().map(set).collect()));
        }
        let mut set = Set { events: Vec::new(), cpus: None, of_jobs: true };
        for (place, (encodings, wanted)) in encodings.into_iter().zip(group).enumerate() {
            let Ok([encoding]) = <[Encoding; 1]>::try_from(encodings) else {
                let why = format!("{} has several PMUs and cannot be in a group", wanted.text);
                return Err(SourceError::broken(why));
            };
            set.events.push((first + place, encoding.event));
            set.of_jobs &= encoding.of_jobs;
            set.cpus = set.cpus.or(encoding.cpus);
        }
        Ok((metrics, vec![set]))
    }
}

/// Tests whether the kernel permits the set at all.
fn probe(root: &Root, set: &Set, group: &[EventSpec], online: &[u32]) -> Result<(), SourceError> {
    let Some(cpu) = set.cpus.as_deref().unwrap_or(online).first() else {
        return Err(SourceError::absent("no online processor can count it"));
    };
    let opened = Counters::open(root, &set.numbers(), Target::Cpu(*cpu));
    opened.map(drop).map_err(|error| {
        let names: Vec<_> = group.iter().map(|wanted| &*wanted.text).collect();
        worded(&names.join(" with "), error)
    })
}

/// Converts an error of the kernel.
pub(super) fn worded(what: &str, error: PerfError) -> SourceError {
    match error {
        PerfError::Absent | PerfError::Gone => SourceError::absent(format!("{what}: {error}")),
        PerfError::Denied => SourceError::denied(format!("perf_event_open of {what}"), GRANT),
        PerfError::Files | PerfError::Rejected | PerfError::Other(_) => {
            SourceError::broken(format!("{what}: {error}"))
        }
    }
}

fn resolve(root: &Root, wanted: &EventSpec) -> Result<(EventMetric, Vec<Encoding>), SourceError> {
    let own = |event: Event| vec![Encoding { event, cpus: None, of_jobs: true }];
    let event = |kind, config| Event { kind, config: [config, 0, 0, 0] };
    let metric_of = |metric, divide, multiply, is_multiplexed| EventMetric {
        metric,
        name: wanted.text.clone(),
        is_labelled: !matches!(wanted.what, What::Named(_)),
        multiply,
        divide,
        is_multiplexed,
    };
    match &wanted.what {
        What::Named(named) => {
            let divide = f64::from(named.metric.divisor);
            let metric = metric_of(&named.metric, divide, 1.0, named.kind != SOFTWARE);
            Ok((metric, own(event(named.kind, named.config))))
        }
        What::Raw(config) => Ok((metric_of(&EVENT, 1.0, 1.0, true), own(event(RAW, *config)))),
        What::OfPmu { pmu, terms } => {
            let mut worth = None;
            let mut encodings = Vec::new();
            for dir in dirs_of(root, pmu)? {
                let (encoding, its_worth) =
                    OfPmu { root, dir: &dir, text: &wanted.text }.encoding(terms)?;
                worth = worth.or(its_worth);
                encodings.push(encoding);
            }
            let (metric, multiply) = worth.unwrap_or((&EVENT, 1.0));
            let is_multiplexed = encodings.iter().any(|encoding| encoding.event.kind != SOFTWARE);
            Ok((metric_of(metric, 1.0, multiply, is_multiplexed), encodings))
        }
    }
}

/// The directories of a PMU's name: its own, or those of its numbered units. A name that no kernel has is a
/// configuration error, not a missing PMU.
fn dirs_of(root: &Root, pmu: &str) -> Result<Vec<String>, SourceError> {
    let mut names = Vec::new();
    match root.list(PMUS, |entry| names.push(entry.name.to_owned())) {
        // A kernel without any PMU: the name may still be a known one.
        Err(ReadError::Absent { .. }) => {}
        listed => listed?,
    }
    names.sort_by_key(|name| (name.len(), name.clone()));
    if names.iter().any(|name| name == pmu) {
        return Ok(vec![format!("{PMUS}/{pmu}")]);
    }
    let is_part = |name: &&String| {
        let number = name.strip_prefix(pmu).and_then(|rest| rest.strip_prefix('_'));
        number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let parts: Vec<_> = names.iter().filter(is_part).map(|name| format!("{PMUS}/{name}")).collect();
    if !parts.is_empty() {
        return Ok(parts);
    }
    if known_pmus::is_known(pmu) {
        return Err(SourceError::absent(format!("this machine has no PMU `{pmu}`")));
    }
    let near = names.iter().map(String::as_str).chain(known_pmus::PMUS.iter().copied());
    let hint = suggestion(pmu, near);
    let why = format!("this machine has no PMU `{pmu}`, and no PMU of this name is known{hint}");
    Err(SourceError::broken(why))
}

fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = model::nearest(name, known);
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// Reads a PMU's files for one event.
struct OfPmu<'a> {
    root: &'a Root,
    dir: &'a str,
    /// The event's configured text.
    text: &'a str,
}

impl OfPmu<'_> {
    /// How this PMU counts the event, and the unit of its steps if its files contain one.
    fn encoding(&self, written: &str) -> Result<(Encoding, Option<EventMeaning>), SourceError> {
        let Self { dir, .. } = self;
        let kind = self.text_of(&format!("{dir}/type"))?.unwrap_or_default();
        let kind =
            kind.parse().map_err(|_| self.broken(&format!("/{dir}/type is not a number")))?;
        let mut event = Event { kind, ..Event::default() };
        let mut worth = None;
        // The check of the option has parsed them before.
        for term in terms(written).unwrap_or_default() {
            match term.value {
                None if self.text_of(&format!("{dir}/events/{}", term.name))?.is_some() => {
                    self.put_event(term.name, &mut event)?;
                    worth = worth.or(self.worth(term.name)?);
                }
                value => self.put_field(&term, value.unwrap_or(1), &mut event)?,
            }
        }
        // An uncore PMU counts on one processor for all that share it.
        let mask = self.text_of(&format!("{dir}/cpumask"))?.filter(|mask| !mask.is_empty());
        let of_jobs = mask.is_none();
        let mask = match mask {
            None => self.text_of(&format!("{dir}/cpus"))?,
            mask => mask,
        };
        let list = |mask: String| {
            cpus(&mask).ok_or_else(|| self.broken(&format!("/{dir}/cpumask is not a list")))
        };
        Ok((Encoding { event, cpus: mask.map(list).transpose()?, of_jobs }, worth))
    }

    fn put_event(&self, name: &str, event: &mut Event) -> Result<(), SourceError> {
        let text = self.text_of(&format!("{}/events/{name}", self.dir))?.unwrap_or_default();
        let wrong = |term| self.broken(&format!("its term `{term}` needs an explicit value"));
        for term in terms(&text).map_err(wrong)? {
            self.put_field(&term, term.value.unwrap_or(1), event)?;
        }
        Ok(())
    }

    fn put_field(&self, term: &Term<'_>, value: u64, event: &mut Event) -> Result<(), SourceError> {
        let format = self.text_of(&format!("{}/format/{}", self.dir, term.name))?;
        let field = match &format {
            Some(format) => Field::parse(format)
                .ok_or_else(|| self.broken(&format!("{format}: unknown format")))?,
            None => Field::whole(term.name).ok_or_else(|| self.no_term(term.name))?,
        };
        if !field.put(value, event) {
            let why = format!("{value:#x} has more bits than the field `{}`", term.name);
            return Err(self.broken(&why));
        }
        Ok(())
    }

    fn no_term(&self, name: &str) -> SourceError {
        let mut names = Vec::new();
        for folder in ["events", "format"] {
            // A PMU without named events lacks the folder.
            self.root
                .list(&format!("{}/{folder}", self.dir), |entry| names.push(entry.name.to_owned()))
                .ok();
        }
        let own = names.iter().map(String::as_str).filter(|name| !name.contains('.'));
        let hint = suggestion(name, own);
        self.broken(&format!("the PMU has no event or field `{name}`{hint}"))
    }

    /// Metric and unit of an event's step by the PMU's files; `None` for an unknown unit, which leaves
    /// the steps unconverted.
    fn worth(&self, name: &str) -> Result<Option<EventMeaning>, SourceError> {
        let file = |ending: &str| self.text_of(&format!("{}/events/{name}.{ending}", self.dir));
        let Some(unit) = file("unit")? else { return Ok(None) };
        let scale = file("scale")?.map_or(Some(1.0), |text| text.parse::<f64>().ok());
        let scale = scale.filter(|scale| scale.is_finite() && *scale > 0.0);
        let scale = scale.ok_or_else(|| self.broken("its scale is not a number above 0"))?;
        let (metric, unit) = match &*unit {
            "Joules" => (&EVENT_JOULES, 1.0),
            "MiB" => (&EVENT_BYTES, 1_048_576.0),
            "KiB" => (&EVENT_BYTES, 1024.0),
            "B" | "bytes" | "Bytes" => (&EVENT_BYTES, 1.0),
            "ns" => (&EVENT_SECONDS, 1e-9),
            _ => return Ok(None),
        };
        Ok(Some((metric, scale * unit)))
    }

    /// A file's text; `None` if it does not exist.
    fn text_of(&self, path: &str) -> Result<Option<String>, SourceError> {
        match self.root.read_text(path) {
            Ok(text) => Ok(Some(text)),
            Err(ReadError::Absent { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn broken(&self, why: &str) -> SourceError {
        SourceError::broken(format!("{}: {why}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::super::event_list;
    use super::*;
    use crate::reading::values::tests::{close, without_roots_rights};

    #[test]
    fn denied_and_absent_events_are_reported_beside_counted_ones() {
        let dir = tempfile::tempdir().unwrap();
        let cpu = dir.path().join(".jobmeter/perf/cpu0");
        std::fs::create_dir_all(&cpu).unwrap();
        for number in ["1-2", "1-3", "1-4"] {
            std::fs::write(cpu.join(number), "0 0 0\n").unwrap();
        }
        ["1-3", "1-4"].iter().for_each(|number| close(&cpu.join(number)));
        let root = Root::recorded(dir.path()).unwrap();
        let events = "page_faults,context_switches,cpu_migrations,cpu_cycles,amd_df/x/";
        let wanted = event_list::parse(events).unwrap();
        let (plan, rejected) = without_roots_rights(|| Plan::of(&root, &wanted, &[0]).unwrap());
        assert_eq!(plan.metrics.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["page_faults"]);
        let expected = "denied: perf_event_open of context_switches, perf_event_open of cpu_migrations; \
                    grant GRANT; absent: cpu_cycles: no PMU of this machine counts it; this machine has no PMU \
                    `amd_df`";
        assert_eq!(rejected.unwrap().to_string(), expected.replace("GRANT", GRANT));
        // An event that only this machine lacks is not a configuration error.
        assert!(Plan::wrong(&root, &wanted).is_empty());
    }
}
