//! From what is wanted to what this machine can count: numbers of PMUs and events, which processors
//! count them, and what their steps are worth.

use super::events::{EVENT, EVENT_BYTES, EVENT_JOULES, EVENT_SECONDS};
use super::known;
use super::wanted::{Wanted, What};
use crate::SourceError;
use crate::source::error::Errors;
use kernel::perf::{Counters, Event, GROUP_MAX, PerfError, RAW, SOFTWARE, Target};
use kernel::pmu::{Field, Term, cpus, terms};
use kernel::{ReadError, Root};
use model::Metric;

const PMUS: &str = "sys/bus/event_source/devices";
/// What opens the counters of others.
pub(super) const GRANT: &str =
    "CAP_PERFMON (before Linux 5.8 CAP_SYS_ADMIN), or set kernel.perf_event_paranoid to 0 or less";

/// An event as it is told.
#[derive(Debug)]
pub(super) struct EventMetric {
    pub(super) metric: &'static Metric,
    /// As it is written; the label where the metric has no event of its own.
    pub(super) name: Box<str>,
    pub(super) is_labelled: bool,
    /// A step is so much in the metric's unit: multiplied first, then divided, as only one of both is
    /// not 1 and dividing keeps whole steps exact.
    multiply: f64,
    divide: f64,
    /// Whether hardware counts it, that others may want, too.
    pub(super) takes_turns: bool,
}

/// Events that are opened together.
#[derive(Debug)]
pub(super) struct Set {
    /// Which of the plan's events, and their numbers.
    pub(super) events: Vec<(usize, Event)>,
    /// The processors that count for their neighbours, too; none: each counts for itself.
    pub(super) cpus: Option<Vec<u32>>,
    /// Whether it can be counted for a cgroup or a task.
    pub(super) of_jobs: bool,
}

/// What is counted on this machine.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) told: Vec<EventMetric>,
    pub(super) sets: Vec<Set>,
}

/// What a PMU's files say that a step is: the metric, and how much of its unit.
type Worth = (&'static Metric, f64);

/// A PMU's way to count an event.
#[derive(Debug)]
struct Way {
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
    /// Its events' numbers.
    pub(super) fn numbers(&self) -> Vec<Event> {
        self.events.iter().map(|(_, event)| *event).collect()
    }
}

impl Plan {
    /// What can be counted of this, and why the rest cannot.
    ///
    /// # Errors
    /// Nothing can.
    pub(super) fn of(
        root: &Root,
        wanted: &[Vec<Wanted>],
        online: &[u32],
    ) -> Result<(Self, Option<SourceError>), SourceError> {
        let mut plan = Self::default();
        let mut software = Vec::new();
        let mut refused = Errors::default();
        for group in wanted {
            let found = plan.sets_of(root, group).and_then(|(told, sets)| {
                sets.iter().try_for_each(|set| probe(root, set, group, online))?;
                Ok((told, sets))
            });
            match found {
                Ok((told, mut sets)) => {
                    plan.told.extend(told);
                    // They cost nothing together, and need no counter of hardware.
                    let alone = |set: &mut Set| {
                        let [(_, event)] = set.events[..] else { return false };
                        event.kind == SOFTWARE
                    };
                    software.extend(sets.extract_if(.., alone).flat_map(|set| set.events));
                    plan.sets.extend(sets);
                }
                Err(error) => refused.push(error),
            }
        }
        plan.sets.extend(software.chunks(GROUP_MAX).map(|events| Set {
            events: events.to_vec(),
            cpus: None,
            of_jobs: true,
        }));
        match refused.into_one() {
            Some(error) if plan.sets.is_empty() => Err(error),
            refused => Ok((plan, refused)),
        }
    }

    /// What of this is written wrongly, as far as this machine's files tell; nothing is opened.
    pub(super) fn wrong(root: &Root, wanted: &[Vec<Wanted>]) -> Vec<String> {
        let plan = Self::default();
        let error = |group: &Vec<Wanted>| match plan.sets_of(root, group) {
            Err(SourceError::Broken(what)) => Some(what.into_owned()),
            _ => None,
        };
        wanted.iter().filter_map(error).collect()
    }

    /// The events of a group as they are told, and what is to be opened for them.
    fn sets_of(
        &self,
        root: &Root,
        group: &[Wanted],
    ) -> Result<(Vec<EventMetric>, Vec<Set>), SourceError> {
        let mut told = Vec::new();
        let mut ways = Vec::new();
        for wanted in group {
            let (event, its_ways) = resolve(root, wanted)?;
            told.push(event);
            ways.push(its_ways);
        }
        let first = self.told.len();
        if let [ways] = &mut ways[..] {
            let set =
                |Way { event, cpus, of_jobs }| Set { events: vec![(first, event)], cpus, of_jobs };
            return Ok((told, std::mem::take(ways).into_iter().map(set).collect()));
        }
        let mut set = Set { events: Vec::new(), cpus: None, of_jobs: true };
        for (place, (ways, wanted)) in ways.into_iter().zip(group).enumerate() {
            let Ok([way]) = <[Way; 1]>::try_from(ways) else {
                let why = format!("{} is of several PMUs and can be in no group", wanted.text);
                return Err(SourceError::broken(why));
            };
            set.events.push((first + place, way.event));
            set.of_jobs &= way.of_jobs;
            set.cpus = set.cpus.or(way.cpus);
        }
        Ok((told, vec![set]))
    }
}

/// Whether the kernel lets us count it at all.
fn probe(root: &Root, set: &Set, group: &[Wanted], online: &[u32]) -> Result<(), SourceError> {
    let Some(cpu) = set.cpus.as_deref().unwrap_or(online).first() else {
        return Err(SourceError::absent("no processor is on that could count"));
    };
    let opened = Counters::open(root, &set.numbers(), Target::Cpu(*cpu));
    opened.map(drop).map_err(|error| {
        let names: Vec<_> = group.iter().map(|wanted| &*wanted.text).collect();
        worded(&names.join(" with "), error)
    })
}

/// Why something is not counted, in words.
pub(super) fn worded(what: &str, error: PerfError) -> SourceError {
    match error {
        PerfError::Absent | PerfError::Gone => SourceError::absent(format!("{what}: {error}")),
        PerfError::Denied => SourceError::denied(format!("perf_event_open of {what}"), GRANT),
        PerfError::Files | PerfError::Refused | PerfError::Other(_) => {
            SourceError::broken(format!("{what}: {error}"))
        }
    }
}

fn resolve(root: &Root, wanted: &Wanted) -> Result<(EventMetric, Vec<Way>), SourceError> {
    let own = |event: Event| vec![Way { event, cpus: None, of_jobs: true }];
    let event = |kind, config| Event { kind, config: [config, 0, 0, 0] };
    let told = |metric, divide, multiply, takes_turns| EventMetric {
        metric,
        name: wanted.text.clone(),
        is_labelled: !matches!(wanted.what, What::Named(_)),
        multiply,
        divide,
        takes_turns,
    };
    match &wanted.what {
        What::Named(named) => {
            let divide = f64::from(named.metric.divisor);
            let told = told(&named.metric, divide, 1.0, named.kind != SOFTWARE);
            Ok((told, own(event(named.kind, named.config))))
        }
        What::Raw(config) => Ok((told(&EVENT, 1.0, 1.0, true), own(event(RAW, *config)))),
        What::OfPmu { pmu, terms } => {
            let mut worth = None;
            let mut ways = Vec::new();
            for dir in dirs_of(root, pmu)? {
                let (way, its_worth) = OfPmu { root, dir: &dir, text: &wanted.text }.way(terms)?;
                worth = worth.or(its_worth);
                ways.push(way);
            }
            let (metric, multiply) = worth.unwrap_or((&EVENT, 1.0));
            let takes_turns = ways.iter().any(|way| way.event.kind != SOFTWARE);
            Ok((told(metric, 1.0, multiply, takes_turns), ways))
        }
    }
}

/// The directories of a PMU's name: its own, or those of its numbered parts. A name that no kernel has is a
/// mistake, not something that this machine lacks.
fn dirs_of(root: &Root, pmu: &str) -> Result<Vec<String>, SourceError> {
    let mut names = Vec::new();
    match root.list(PMUS, |entry| names.push(entry.name.to_owned())) {
        // A kernel without any, of which the name may be one all the same.
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
    if known::is_known(pmu) {
        return Err(SourceError::absent(format!("this machine has no PMU `{pmu}`")));
    }
    let near = names.iter().map(String::as_str).chain(known::PMUS.iter().copied());
    let meant = meant(pmu, near);
    let why = format!("this machine has no PMU `{pmu}`, and none is known by that name{meant}");
    Err(SourceError::broken(why))
}

fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = model::nearest(name, known);
    near.map_or_else(String::new, |near| format!("; is `{near}` meant?"))
}

/// An event while a PMU's files are read for it.
struct OfPmu<'a> {
    root: &'a Root,
    dir: &'a str,
    /// As it is written.
    text: &'a str,
}

impl OfPmu<'_> {
    /// How this PMU counts it, and what its steps are worth where its files say.
    fn way(&self, written: &str) -> Result<(Way, Option<Worth>), SourceError> {
        let Self { dir, .. } = self;
        let kind = self.text_of(&format!("{dir}/type"))?.unwrap_or_default();
        let kind = kind.parse().map_err(|_| self.broken(&format!("/{dir}/type is no number")))?;
        let mut event = Event { kind, ..Event::default() };
        let mut worth = None;
        // The check of the option has read them before.
        for term in terms(written).unwrap_or_default() {
            match term.value {
                None if self.text_of(&format!("{dir}/events/{}", term.name))?.is_some() => {
                    self.put_event(term.name, &mut event)?;
                    worth = worth.or(self.worth(term.name)?);
                }
                value => self.put_field(&term, value.unwrap_or(1), &mut event)?,
            }
        }
        // PMUs outside of the cores count on one processor for all that share them.
        let mask = self.text_of(&format!("{dir}/cpumask"))?.filter(|mask| !mask.is_empty());
        let of_jobs = mask.is_none();
        let mask = match mask {
            None => self.text_of(&format!("{dir}/cpus"))?,
            mask => mask,
        };
        let list = |mask: String| {
            cpus(&mask).ok_or_else(|| self.broken(&format!("/{dir}/cpumask is no list")))
        };
        Ok((Way { event, cpus: mask.map(list).transpose()?, of_jobs }, worth))
    }

    fn put_event(&self, name: &str, event: &mut Event) -> Result<(), SourceError> {
        let text = self.text_of(&format!("{}/events/{name}", self.dir))?.unwrap_or_default();
        let wrong = |term| self.broken(&format!("its term `{term}` must be given by hand"));
        for term in terms(&text).map_err(wrong)? {
            self.put_field(&term, term.value.unwrap_or(1), event)?;
        }
        Ok(())
    }

    fn put_field(&self, term: &Term<'_>, value: u64, event: &mut Event) -> Result<(), SourceError> {
        let format = self.text_of(&format!("{}/format/{}", self.dir, term.name))?;
        let field = match &format {
            Some(format) => {
                Field::parse(format).ok_or_else(|| self.broken(&format!("{format}: no format")))?
            }
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
            // A PMU without named events has no such folder.
            self.root
                .list(&format!("{}/{folder}", self.dir), |entry| names.push(entry.name.to_owned()))
                .ok();
        }
        let own = names.iter().map(String::as_str).filter(|name| !name.contains('.'));
        let meant = meant(name, own);
        self.broken(&format!("the PMU has no event or field `{name}`{meant}"))
    }

    /// What a step of an event is worth, where its files say; a unit that is not known here leaves the steps
    /// as they are.
    fn worth(&self, name: &str) -> Result<Option<Worth>, SourceError> {
        let file = |ending: &str| self.text_of(&format!("{}/events/{name}.{ending}", self.dir));
        let Some(unit) = file("unit")? else { return Ok(None) };
        let scale = file("scale")?.map_or(Some(1.0), |text| text.parse::<f64>().ok());
        let scale = scale.filter(|scale| scale.is_finite() && *scale > 0.0);
        let scale = scale.ok_or_else(|| self.broken("its scale is no number above 0"))?;
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

    /// A file's text; none if it is not there.
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
    use super::super::wanted;
    use super::*;
    use crate::reading::values::tests::{close, without_roots_rights};

    #[test]
    fn every_event_that_is_closed_or_absent_is_named_beside_those_that_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let cpu = dir.path().join(".jobmeter/perf/cpu0");
        std::fs::create_dir_all(&cpu).unwrap();
        for number in ["1-2", "1-3", "1-4"] {
            std::fs::write(cpu.join(number), "0 0 0\n").unwrap();
        }
        ["1-3", "1-4"].iter().for_each(|number| close(&cpu.join(number)));
        let root = Root::recorded(dir.path()).unwrap();
        let events = "page_faults,context_switches,cpu_migrations,cpu_cycles,amd_df/x/";
        let wanted = wanted::parse(events).unwrap();
        let (plan, refused) = without_roots_rights(|| Plan::of(&root, &wanted, &[0]).unwrap());
        assert_eq!(plan.told.iter().map(|told| &*told.name).collect::<Vec<_>>(), ["page_faults"]);
        let told = "denied: perf_event_open of context_switches, perf_event_open of cpu_migrations; \
                    grant GRANT; absent: cpu_cycles: no PMU of this machine counts it; this machine has no PMU \
                    `amd_df`";
        assert_eq!(refused.unwrap().to_string(), told.replace("GRANT", GRANT));
        // What only this machine lacks is written as it should be.
        assert!(Plan::wrong(&root, &wanted).is_empty());
    }
}
