//! The values of Colmet and FrUCToSA that equal one metric of jobmeter, from the tables in the crate `colmet`.

use colmet::backends::{BACKENDS, Backend, Column, ColumnType, EVENTS};
use colmet::equivalent::{Ours, Scope};
use colmet::formula::Scale;
use colmet::fructosa::GROUPS;
use colmet::names::{column_of, own};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// The events of Colmet's counters without its option `--perfhw-list`.
const EVENTS_DEFAULT: [&str; 3] = ["instructions", "cache_misses", "page_faults"];
/// Sensors of FrUCToSA with a value for each part of a node, and lists: their paths have no fixed length.
const WITH_PARTS: [&str; 4] = ["NetIFStats", "SensorsTemperatures", "SensorsFans", "Users"];

/// A value of the other program, and the metric that it equals.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Backend or sensor.
    pub(super) family: &'static str,
    /// Column or key.
    pub(super) name: &'static str,
    /// The metric.
    pub(super) metric: &'static str,
    /// The only label and value that count; `None`: the sum of all series.
    pub(super) label: Option<(&'static str, &'static str)>,
    /// The factor between both units.
    pub(super) scale: Scale,
    /// Whether each value is the growth since the one before.
    pub(super) grows: bool,
    /// Whether it is a value of a job.
    pub(super) is_of_job: bool,
    /// One step of the other program's number, in our unit; 0 if it has decimals.
    pub(super) step: f64,
    /// Why the values differ by design.
    pub(super) differs: Option<&'static str>,
}

impl Mapped {
    /// The labels of its series.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        self.label.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

/// The values of a program.
#[derive(Debug)]
pub(super) struct Columns {
    all: Vec<Mapped>,
    by_name: HashMap<(&'static str, &'static str), usize>,
    by_metric: HashMap<&'static str, Vec<usize>>,
}

impl Columns {
    fn new(all: Vec<Mapped>) -> Self {
        let by_name =
            all.iter().enumerate().map(|(place, it)| ((it.family, it.name), place)).collect();
        let mut by_metric: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, it) in all.iter().enumerate() {
            by_metric.entry(it.metric).or_default().push(place);
        }
        Self { all, by_name, by_metric }
    }

    /// All values.
    pub(super) fn all(&self) -> &[Mapped] {
        &self.all
    }

    /// The value with this name.
    pub(super) fn named(&self, family: &str, name: &str) -> Option<&Mapped> {
        self.all.get(*self.by_name.get(&(family, name))?)
    }

    /// The metrics that the program has, too.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &'static str> {
        self.by_metric.keys().copied()
    }

    /// The value that a series of ours is a part of.
    pub(super) fn of_series<'a>(
        &'a self,
        metric: &str,
        is_of_job: bool,
        label: &dyn Fn(&str) -> Option<&'a str>,
    ) -> Option<&'a Mapped> {
        let mut places = self.by_metric.get(metric)?.iter().filter_map(|at| self.all.get(*at));
        places.find(|it| {
            it.is_of_job == is_of_job
                && it.label.is_none_or(|(name, value)| label(name) == Some(value))
        })
    }

    /// The value with this metric.
    pub(super) fn of_metric(&self, metric: &str) -> Option<&Mapped> {
        self.all.get(*self.by_metric.get(metric)?.first()?)
    }
}

/// The values of Colmet's Python nodes.
pub(super) fn colmet() -> &'static Columns {
    static COLUMNS: LazyLock<Columns> = LazyLock::new(|| {
        let backends = BACKENDS.iter().filter(|backend| backend.is_of_python());
        let all = backends.flat_map(|backend| {
            backend.columns.iter().filter_map(move |column| of_colmet(backend, column))
        });
        Columns::new(all.collect())
    });
    &COLUMNS
}

fn of_colmet(backend: &'static Backend, column: &'static Column) -> Option<Mapped> {
    let equal = match column.row.ours {
        Ours::Event(position) => {
            let name = EVENTS_DEFAULT.get(usize::from(position).checked_sub(1)?)?;
            EVENTS.columns.get(EVENTS.position(name)?)?
        }
        _ => column,
    };
    let (selector, scale) = equal.row.ours.formulas().first()?.inverse()?;
    let step = if column.kind == ColumnType::Float { 0.0 } else { scale.to_ours(1.0) };
    Some(Mapped {
        family: backend.id,
        name: column.row.theirs,
        metric: selector.metric,
        label: selector.label,
        scale,
        grows: matches!(equal.row.ours, Ours::Grows(_)),
        is_of_job: backend.scope == Scope::Job,
        step,
        differs: backend.differs,
    })
}

/// The values of FrUCToSA that are one number of a node.
pub(super) fn fructosa() -> &'static Columns {
    static COLUMNS: LazyLock<Columns> = LazyLock::new(|| {
        let groups = GROUPS.iter().filter(|group| !WITH_PARTS.contains(&group.name));
        let all = groups.flat_map(|group| {
            group.rows.iter().filter_map(|row| {
                // Percentages are computed from several series.
                let Ours::Is(formula) = &row.ours else { return None };
                let (selector, scale) = formula.inverse()?;
                Some(Mapped {
                    family: group.name,
                    name: row.theirs,
                    metric: selector.metric,
                    label: selector.label,
                    scale,
                    grows: false,
                    is_of_job: false,
                    step: 0.0,
                    differs: None,
                })
            })
        });
        Columns::new(all.collect())
    });
    &COLUMNS
}

/// What a server's metric `colmet_…` is, and its value in the unit of the metric that it equals.
pub(super) fn stored(metric: &str, value: f64) -> Option<(&'static Mapped, f64)> {
    let (backend, column) = column_of(metric)?;
    let mapped = if *backend == EVENTS {
        // A counter that a file of the host names.
        let (selector, _) = column.row.ours.formulas().first()?.inverse()?;
        colmet().of_metric(selector.metric)?
    } else {
        colmet().named(backend.id, column.row.theirs)?
    };
    let theirs = own(backend, column)?.scale.to_theirs(value);
    Some((mapped, mapped.scale.to_ours(theirs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_metrics() {
        let of = |family, name| {
            let it = colmet().named(family, name).unwrap();
            (it.metric, it.label, it.grows, it.is_of_job, it.scale.to_ours(1e6))
        };
        assert_eq!(
            of("procstats_default", "stat_cpu_guest"),
            ("cpu_steal_seconds_total", None, false, false, 1e4)
        );
        let label = Some(("package", "1"));
        assert_eq!(
            of("RAPLstats_default", "counter_7"),
            ("rapl_package_joules_total", label, true, false, 1.0)
        );
        assert_eq!(of("perfhwstats_default", "counter_1").0, "perf_instructions_total");
        assert!(colmet().named("perfhwstats_default", "counter_4").is_none());
        assert!(colmet().named("RAPLstats_default", "counter_2").is_none());
        let percent = fructosa().named("VirtualMemory", "percent");
        assert!(percent.is_none() && fructosa().named("DiskUsage", "free").is_some());
    }

    #[test]
    fn stored_values_of_colmet_have_our_unit() {
        let column = colmet().named("procstats_default", "meminfo_memfree").unwrap();
        let metric = "colmet_procstats_meminfo_memfree_bytes";
        let (mapped, value) = stored(metric, 2048.0).unwrap();
        assert_eq!((mapped.metric, value), (column.metric, 2048.0));
        assert!(stored("load_1m", 1.0).is_none());
        let named =
            stored("colmet_perfhw_instructions_total", 5.0).map(|(it, ours)| (it.name, ours));
        assert_eq!(named, Some(("counter_1", 5.0)));
        assert!(stored("colmet_perfhw_cpu_migrations_total", 5.0).is_none());
    }

    #[test]
    fn a_series_is_a_part_of_one_value() {
        let zone = |_: &str| Some("1");
        let found = colmet().of_series("rapl_core_joules_total", false, &zone).unwrap();
        assert_eq!(found.name, "counter_9");
        assert!(colmet().of_series("rapl_core_joules_total", true, &zone).is_none());
        assert!(colmet().of_series("rapl_core_joules_total", false, &|_| None).is_none());
    }
}
