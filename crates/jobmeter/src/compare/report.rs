//! What differs between two sides, and what of it is known to differ.

use super::columns::colmet;
use super::series::{Key, Series};
use super::windows::{Compared, Tolerance, Windows};
use crate::client::plain::plain_lines;
use crate::output::show::Table;
use crate::output::times::utc;
use anyhow::ensure;
use model::{Kind, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

/// Known differences of Colmet.
const SHORT_TASKS: &str =
    "short tasks: Colmet loses what tasks use that end between two of its samples";
const SHORT_JOBS: &str =
    "short tasks: Colmet may send nothing of a job that is shorter than its period";
const THREADS: &str =
    "threads: Colmet counts a process once for each of its threads, and drops ended ones";
const SHARES: &str =
    "shares: Colmet adds up a job's GPUs, and counts a GPU once for each of its jobs";
const STEAL: &str = "steal: Colmet's columns guest and guest_nice have steal and guest";

/// The metrics of the columns that Colmet names wrongly.
const MISNAMED: [&str; 2] = ["cpu_steal_seconds_total", "cpu_user_guest_seconds_total"];
/// Backends of Colmet with differences of their own.
const TASKSTATS: &str = "taskstats_default";
const JOBPROC: &str = "jobprocstats_default";

/// The series of a side, and the metrics of it that the other one cannot have.
pub(super) type SideSamples = (BTreeMap<Key, Series>, BTreeSet<String>);

/// The result.
#[derive(Debug)]
pub(super) struct Report {
    sides: [String; 2],
    windows: Windows,
    tolerance: Tolerance,
    lines: Vec<Line>,
    equal: u64,
    /// Series of both sides without a window in common.
    not_compared: u64,
    left_out: [BTreeSet<String>; 2],
}

/// A series that differs.
#[derive(Debug)]
struct Line {
    key: Key,
    difference: Difference,
    known: Option<&'static str>,
}

#[derive(Debug)]
enum Difference {
    OnlyLeft,
    OnlyRight,
    Beyond(Compared),
}

impl Difference {
    const fn word(&self) -> &'static str {
        match self {
            Self::OnlyLeft => "only_left",
            Self::OnlyRight => "only_right",
            Self::Beyond(_) => "beyond",
        }
    }
}

impl Report {
    /// Compares two sides.
    ///
    /// # Errors
    /// Neither side has a series, or no series has a window in common.
    pub(super) fn of(
        sides: [String; 2],
        [left, right]: [SideSamples; 2],
        are_colmet: [bool; 2],
        windows: Windows,
        tolerance: Tolerance,
    ) -> anyhow::Result<Self> {
        let left_out = [left.1, right.1];
        let [left, right] = [left.0, right.0].map(|mut all| {
            all.retain(|_, series| windows.has(series));
            all
        });
        let (lines, equal, not_compared) = (Vec::new(), 0, 0);
        let mut out = Self { sides, windows, tolerance, lines, equal, not_compared, left_out };
        let keys: BTreeSet<&Key> = left.keys().chain(right.keys()).collect();
        ensure!(
            !keys.is_empty(),
            "neither side has a sample in this time of a series that both can have"
        );
        for key in keys {
            out.add(key, [left.get(key), right.get(key)], are_colmet);
        }
        ensure!(
            out.equal > 0 || !out.lines.is_empty(),
            "no window has samples of both sides: write a --window of at least the period of the samples"
        );
        Ok(out)
    }

    fn add(&mut self, key: &Key, series: [Option<&Series>; 2], are_colmet: [bool; 2]) {
        let difference = match series {
            [Some(left), Some(right)] => {
                let tolerance = self.tolerance_of(key, are_colmet);
                let kind = Kind::of_name(&key.metric);
                let compared = self.windows.compare(kind, left, right, tolerance);
                if compared.is_equal() {
                    let count =
                        if compared.windows > 0 { &mut self.equal } else { &mut self.not_compared };
                    *count += 1;
                    return;
                }
                Difference::Beyond(compared)
            }
            [Some(_), None] => Difference::OnlyLeft,
            [None, _] => Difference::OnlyRight,
        };
        let life = series.iter().flatten().find_map(|series| series.life());
        let life = life.map_or(i64::MAX, |(first, last)| last - first);
        let known = known(key, &difference, are_colmet, life < self.windows.length);
        self.lines.push(Line { key: key.clone(), difference, known });
    }

    /// Two of Colmet's numbers may be off by one step each, as its columns are whole numbers.
    fn tolerance_of(&self, key: &Key, are_colmet: [bool; 2]) -> Tolerance {
        let step = colmet().of_metric(&key.metric).filter(|_| are_colmet[0] != are_colmet[1]);
        let steps = step.map_or(0.0, |mapped| 2.0 * mapped.step);
        Tolerance { floor: self.tolerance.floor.max(steps), ..self.tolerance }
    }

    /// Whether there is a difference that is not known.
    pub(super) fn differs(&self) -> bool {
        self.lines.iter().any(|line| line.known.is_none())
    }

    /// Prints the result.
    pub(super) fn write(&self, as_json: bool) -> io::Result<()> {
        let mut out = BufWriter::new(io::stdout().lock());
        if as_json {
            writeln!(out, "{}", plain_lines(&self.json().to_string()))?;
        } else {
            self.write_table(&mut out)?;
        }
        out.flush()
    }

    fn count(&self, is_it: impl Fn(&Line) -> bool) -> usize {
        self.lines.iter().filter(|line| is_it(line)).count()
    }

    fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        if !self.lines.is_empty() {
            let header = [
                "difference",
                "device",
                "metric",
                "job",
                "labels",
                "windows",
                "beyond",
                "missing",
                "worst at",
                "left",
                "right",
                "known",
            ];
            let mut table = Table::with_instructions(&header);
            self.lines.iter().for_each(|line| table.row(line.cells()));
            table.write(out)?;
        }
        let unknown = |word: &'static str| {
            self.count(|line| line.known.is_none() && line.difference.word() == word)
        };
        let known = self.count(|line| line.known.is_some());
        writeln!(
            out,
            "{} series equal, {} beyond tolerance, {} only left, {} only right, {known} known differences",
            self.equal,
            unknown("beyond"),
            unknown("only_left"),
            unknown("only_right"),
        )?;
        if self.not_compared > 0 {
            writeln!(
                out,
                "{} series have no window with samples of both sides",
                self.not_compared
            )?;
        }
        for (names, other) in self.left_out.iter().zip(["right", "left"]) {
            if !names.is_empty() {
                writeln!(
                    out,
                    "{} metrics left out: the {other} side cannot have them (--json lists them)",
                    names.len()
                )?;
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let Self { sides: [left, right], windows, tolerance, left_out, .. } = self;
        json!({
            "left": left,
            "right": right,
            "from": utc(Timestamp(windows.from)),
            "to": utc(Timestamp(windows.to)),
            "window_seconds": windows.length as f64 / Timestamp::SECOND as f64,
            "tolerance": tolerance.ratio,
            "floor": tolerance.floor,
            "differs": self.differs(),
            "series_equal": self.equal,
            "series_not_compared": self.not_compared,
            "differences": self.lines.iter().map(Line::json).collect::<Vec<_>>(),
            "metrics_left_out": {"left": left_out[0], "right": left_out[1]},
        })
    }
}

impl Line {
    fn cells(&self) -> Vec<String> {
        let Key { device, metric, job, labels } = self.key.clone();
        let mut cells = vec![
            self.difference.word().to_owned(),
            device,
            metric,
            job.unwrap_or_default(),
            labels,
        ];
        if let Difference::Beyond(found) = &self.difference {
            let (beyond, missing) =
                (found.left_larger + found.right_larger, found.only_left + found.only_right);
            cells.extend([found.windows, beyond, missing].map(|count| count.to_string()));
            match found.worst {
                Some(worst) => {
                    cells.push(utc(Timestamp(worst.at)));
                    cells.extend([worst.left, worst.right].map(rounded));
                }
                None => cells.extend([const { String::new() }; 3]),
            }
        } else {
            cells.extend([const { String::new() }; 6]);
        }
        cells.push(self.known.unwrap_or_default().to_owned());
        cells
    }

    fn json(&self) -> Value {
        let Key { device, metric, job, labels } = &self.key;
        let mut out = json!({
            "difference": self.difference.word(),
            "device": device,
            "metric": metric,
            "job": job,
            "labels": labels,
            "known": self.known,
        });
        if let (Difference::Beyond(found), Some(fields)) = (&self.difference, out.as_object_mut()) {
            let worst = found.worst.map(|worst| {
                json!({"time": utc(Timestamp(worst.at)), "left": worst.left, "right": worst.right})
            });
            for (name, value) in [
                ("windows", json!(found.windows)),
                ("windows_left_larger", json!(found.left_larger)),
                ("windows_right_larger", json!(found.right_larger)),
                ("windows_only_left", json!(found.only_left)),
                ("windows_only_right", json!(found.only_right)),
                ("worst", json!(worst)),
            ] {
                fields.insert(name.to_owned(), value);
            }
        }
        out
    }
}

/// A number for people.
fn rounded(value: f64) -> String {
    let digits = if value.abs() < 1.0 { 9 } else { 3 };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Why a series differs by what Colmet is known to do. `is_short`: its samples span less than a window.
fn known(
    key: &Key,
    difference: &Difference,
    are_colmet: [bool; 2],
    is_short: bool,
) -> Option<&'static str> {
    let colmet_is_left = match are_colmet {
        [true, false] => true,
        [false, true] => false,
        _ => return None,
    };
    let mapped = colmet().of_metric(&key.metric)?;
    let found = match difference {
        Difference::Beyond(found) => found,
        Difference::OnlyLeft | Difference::OnlyRight => {
            let is_ours = matches!(difference, Difference::OnlyRight) == colmet_is_left;
            return (is_ours && is_short && key.job.is_some()).then_some(SHORT_JOBS);
        }
    };
    // No known difference leaves out windows.
    if found.only_left + found.only_right > 0 {
        return None;
    }
    let colmet_larger = if colmet_is_left { found.left_larger } else { found.right_larger };
    match mapped.family {
        JOBPROC => Some(THREADS),
        _ if mapped.differs.is_some() => Some(SHARES),
        TASKSTATS if colmet_larger == 0 => Some(SHORT_TASKS),
        _ if MISNAMED.contains(&&*key.metric) => Some(STEAL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(metric: &str, job: Option<&str>) -> Key {
        let (device, job) = ("n".to_owned(), job.map(str::to_owned));
        Key { device, metric: metric.to_owned(), job, labels: String::new() }
    }

    fn side(series: &[(Key, &[(i64, f64)])]) -> SideSamples {
        let all = series
            .iter()
            .map(|(key, samples)| (key.clone(), Series { parts: vec![samples.to_vec()] }));
        (all.collect(), BTreeSet::new())
    }

    const S: i64 = Timestamp::SECOND;
    const WINDOWS: Windows = Windows { from: 0, to: 60 * S, length: 60 * S };

    fn report(
        left: SideSamples,
        right: SideSamples,
        are_colmet: [bool; 2],
    ) -> anyhow::Result<Report> {
        let tolerance = Tolerance { ratio: 0.01, floor: 0.0 };
        Report::of(["l".into(), "r".into()], [left, right], are_colmet, WINDOWS, tolerance)
    }

    /// Differences with what is known of them.
    fn words(report: &Report) -> Vec<(&str, Option<&str>)> {
        report.lines.iter().map(|line| (line.difference.word(), line.known)).collect()
    }

    #[test]
    fn known_differences_need_colmet_on_one_side() {
        for (metric, theirs, want) in [
            ("taskstats_cpu_user_seconds_total", 9.0, Some(SHORT_TASKS)),
            ("taskstats_cpu_user_seconds_total", 19.0, None),
            ("process_rss_bytes", 900_000.0, Some(THREADS)),
            ("nvidia_power_watts", 900.0, Some(SHARES)),
            ("cpu_steal_seconds_total", 90.0, Some(STEAL)),
            ("cpu_user_seconds_total", 90.0, None),
        ] {
            let of = |value: f64| side(&[(key(metric, Some("7")), &[(0, 0.0), (59 * S, value)])]);
            let found = |are_colmet| report(of(theirs), of(12.0), are_colmet).unwrap();
            let with = found([true, false]);
            assert_eq!(words(&with), [("beyond", want)], "{metric}");
            assert_eq!(with.differs(), want.is_none());
            for are_colmet in [[false, false], [true, true]] {
                assert_eq!(words(&found(are_colmet)), [("beyond", None)], "{metric}");
            }
        }
    }

    #[test]
    fn series_of_one_side_are_listed() {
        let [a, b] = ["cpu_user_seconds_total", "taskstats_cpu_user_seconds_total"];
        let (short, long): (&[_], &[_]) = (&[(S, 1.0), (9 * S, 2.0)], &[(0, 1.0), (61 * S, 2.0)]);
        let left = || side(&[(key(a, None), long)]);
        let right = || side(&[(key(b, Some("1")), short), (key(b, Some("2")), long)]);
        let found = report(left(), right(), [true, false]).unwrap();
        let want = [("only_left", None), ("only_right", Some(SHORT_JOBS)), ("only_right", None)];
        assert_eq!(words(&found), want);
        let swapped = report(right(), left(), [true, false]).unwrap();
        assert_eq!(
            words(&swapped),
            [("only_right", None), ("only_left", None), ("only_left", None)]
        );
        let json = found.json();
        assert_eq!(
            (&json["differs"], &json["differences"][0]["metric"]),
            (&true.into(), &a.into())
        );
    }

    #[test]
    fn a_step_of_colmets_numbers_is_no_difference() {
        let of = |value: f64| side(&[(key("memory_free_bytes", None), &[(0, value)])]);
        assert!(!report(of(4096.0), of(5000.0), [true, false]).unwrap().differs());
        assert!(report(of(4096.0), of(5000.0), [false, false]).unwrap().differs());
        assert!(report(of(4096.0), of(9000.0), [true, false]).unwrap().differs());
    }

    #[test]
    fn nothing_to_compare_is_an_error() {
        let empty = report(side(&[]), side(&[]), [false; 2]).unwrap_err().to_string();
        assert!(empty.contains("neither side"), "{empty}");
        let one = |at: i64| side(&[(key("a_total", None), &[(at, 1.0)])]);
        let apart = report(one(0), one(S), [false; 2]).unwrap_err().to_string();
        assert!(apart.contains("--window"), "{apart}");
        assert_eq!(
            [rounded(0.000_25), rounded(1200.0), rounded(-1.5)],
            ["0.00025", "1200", "-1.5"]
        );
    }
}
