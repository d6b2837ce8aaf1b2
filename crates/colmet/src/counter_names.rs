//! What the numbered counters of a host mean: Colmet writes it into a file of each backend at startup.
//!
//! ```text
//! RAPL_mapping.<time>.csv         counter_1,energy_microjoule,package-0,zone_package
//!                                 counter_2,max_energy_range_microjoule,package-0,zone_package
//!                                 counter_3,counter_not_supported_by_hardware,,
//!                                 counter_7,no_counter,,
//! perfhw_mapping.<time>.csv       counter1,instructions
//!                                 counter5,no_counter
//! temperature_mapping.<time>.csv  counter_1, x86_pkg_temp_0
//!                                 counter_2, no counter
//! ```

use crate::backends::{Backend, Column, EVENTS, PERFHW, RAPL, TEMPERATURE};
use model::printable;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Longest meaning of a counter, in bytes: Colmet's names have at most 255.
const MEANING_BYTES_MAX: usize = 400;

/// The meaning of a numbered counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Energy of a zone of a package, such as `package-0`.
    Energy(Zone, Box<str>),
    /// The range of that zone's counter.
    Range(Zone, Box<str>),
    /// Events, by the position of their column in [`EVENTS`].
    Event(usize),
    /// Temperature of the thermal zone with this number and type.
    Temperature(u32, Box<str>),
    /// The hardware does not have it; Colmet sends 0.
    NotSupported,
    /// Nothing; Colmet sends -1.
    Nothing,
}

/// A part of a processor package with a counter of energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// The whole package.
    Package,
    /// Its cores.
    Core,
    /// Its memory.
    Dram,
}

impl Zone {
    const ALL: [Self; 3] = [Self::Package, Self::Core, Self::Dram];

    /// Its name in the file.
    const fn word(self) -> &'static str {
        match self {
            Self::Package => "zone_package",
            Self::Core => "zone_core",
            Self::Dram => "zone_dram",
        }
    }

    /// The metric of its energy.
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Package => "rapl_package_joules_total",
            Self::Core => "rapl_core_joules_total",
            Self::Dram => "rapl_dram_joules_total",
        }
    }
}

/// The counters of one backend of one host, by their numbers from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterNames {
    backend: &'static Backend,
    counters: BTreeMap<usize, Counter>,
}

/// A line that is not of the file's form. No line of such a file is used: a counter that Colmet did not know shifts all
/// later ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{text}` {reason}")]
pub struct CounterNamesError {
    /// Its number, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl CounterNames {
    /// No counter of a backend has a name.
    pub const fn none(backend: &'static Backend) -> Self {
        Self { backend, counters: BTreeMap::new() }
    }

    /// Names for the counters of a backend from 1 on.
    pub fn of(backend: &'static Backend, counters: impl IntoIterator<Item = Counter>) -> Self {
        Self { backend, counters: (1..).zip(counters).collect() }
    }

    /// Reads a file of [`RAPL`], [`PERFHW`] or [`TEMPERATURE`].
    ///
    /// # Errors
    /// A line has another form, names no counter of the backend, names one twice, or names an unknown event.
    pub fn read(backend: &'static Backend, text: &str) -> Result<Self, CounterNamesError> {
        let mut names = Self::none(backend);
        for (line, text) in (1..).zip(text.lines()) {
            names.line(text).map_err(|reason| {
                let text = printable(&text.chars().take(80).collect::<String>()).into_owned();
                CounterNamesError { line, text, reason }
            })?;
        }
        Ok(names)
    }

    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let (counter, meaning) = line.split_once(',').ok_or("has no comma")?;
        let number = counter.strip_prefix("counter").map(|it| it.strip_prefix('_').unwrap_or(it));
        let number =
            number.and_then(|number| number.parse().ok()).ok_or("begins with no counter")?;
        if !self.backend.columns.iter().any(|column| column.number() == Some(number)) {
            return Err("names a counter that the backend does not have");
        }
        let meaning = meaning.trim();
        if meaning.len() > MEANING_BYTES_MAX {
            return Err("is too long");
        }
        let counter = meaning_of(self.backend, meaning).ok_or("has an unknown meaning")?;
        match self.counters.insert(number, counter) {
            None => Ok(()),
            Some(_) => Err("names its counter again"),
        }
    }

    /// The meaning of a column; `None` if it is unknown.
    pub fn get(&self, backend: &Backend, column: &Column) -> Option<&Counter> {
        let number = column.number().filter(|_| backend == self.backend)?;
        self.counters.get(&number)
    }

    /// The file: a line for each counter of the backend.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for number in self.backend.columns.iter().filter_map(Column::number) {
            let counter = self.counters.get(&number).unwrap_or(&Counter::Nothing);
            let separator = if self.backend == &PERFHW { "" } else { "_" };
            // Writing into a `String` cannot fail.
            write!(text, "counter{separator}{number},").ok();
            match counter {
                Counter::Energy(zone, package) => {
                    write!(text, "energy_microjoule,{package},{}", zone.word()).ok();
                }
                Counter::Range(zone, package) => {
                    write!(text, "max_energy_range_microjoule,{package},{}", zone.word()).ok();
                }
                Counter::Event(place) => {
                    text.push_str(
                        EVENTS.columns.get(*place).map_or("no_counter", |it| it.row.theirs),
                    );
                }
                Counter::Temperature(zone, kind) => {
                    write!(text, " {kind}_{zone}").ok();
                }
                Counter::NotSupported => text.push_str("counter_not_supported_by_hardware,,"),
                Counter::Nothing if self.backend == &RAPL => text.push_str("no_counter,,"),
                Counter::Nothing if self.backend == &TEMPERATURE => text.push_str(" no counter "),
                Counter::Nothing => text.push_str("no_counter"),
            }
            text.push('\n');
        }
        text
    }
}

fn meaning_of(backend: &Backend, text: &str) -> Option<Counter> {
    if backend == &PERFHW {
        let event = || EVENTS.position(text).map(Counter::Event);
        return if text == "no_counter" { Some(Counter::Nothing) } else { event() };
    }
    if backend == &TEMPERATURE {
        if text == "no counter" {
            return Some(Counter::Nothing);
        }
        let (kind, zone) = text.rsplit_once('_')?;
        return Some(Counter::Temperature(zone.parse().ok()?, kind.into()));
    }
    let [what, package, zone] = text.split(',').collect::<Vec<_>>()[..] else { return None };
    match what {
        "counter_not_supported_by_hardware" => return Some(Counter::NotSupported),
        "no_counter" => return Some(Counter::Nothing),
        _ => {}
    }
    let zone = Zone::ALL.into_iter().find(|known| known.word() == zone)?;
    match what {
        "energy_microjoule" => Some(Counter::Energy(zone, package.into())),
        "max_energy_range_microjoule" => Some(Counter::Range(zone, package.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::TASKSTATS;

    /// The lines that Colmet writes on a machine with one package, five events, and two thermal zones.
    #[test]
    fn files_are_written_as_they_are_read() {
        let mut rapl = String::from(
            "counter_1,energy_microjoule,package-0,zone_package\n\
             counter_2,max_energy_range_microjoule,package-0,zone_package\n\
             counter_3,energy_microjoule,package-0,zone_core\n\
             counter_4,max_energy_range_microjoule,package-0,zone_core\n\
             counter_5,counter_not_supported_by_hardware,,\n\
             counter_6,counter_not_supported_by_hardware,,\n",
        );
        (7..=24).for_each(|number| writeln!(rapl, "counter_{number},no_counter,,").unwrap());
        let perfhw = "counter1,instructions\ncounter2,cache_misses\ncounter3,page_faults\n\
                      counter4,no_counter\ncounter5,no_counter\n";
        let mut temperature = String::from("counter_1, acpitz_0\ncounter_2, x86_pkg_temp_1\n");
        (3..=6).for_each(|number| writeln!(temperature, "counter_{number}, no counter ").unwrap());
        for (backend, text) in [(&RAPL, &*rapl), (&PERFHW, perfhw), (&TEMPERATURE, &*temperature)] {
            assert_eq!(CounterNames::read(backend, text).unwrap().text(), text, "{backend:?}");
        }
        let names = CounterNames::read(&TEMPERATURE, &temperature).unwrap();
        let meaning = names.get(&TEMPERATURE, &TEMPERATURE.columns[1]);
        assert_eq!(meaning, Some(&Counter::Temperature(1, "x86_pkg_temp".into())));
        assert_eq!(names.get(&RAPL, &RAPL.columns[1]), None);
        let named = CounterNames::of(&PERFHW, [Counter::Event(1), Counter::Event(3)]);
        assert_eq!(named.text().lines().nth(1), Some("counter2,cache_misses"));
    }

    #[test]
    fn a_wrong_line_rejects_the_file() {
        for (backend, line, reason) in [
            (&RAPL, "counter_1", "has no comma"),
            (&RAPL, "zone_1,no_counter,,", "begins with no counter"),
            (&RAPL, "counter_25,no_counter,,", "names a counter that the backend does not have"),
            (&RAPL, "counter_1,energy_microjoule,package-0,zone_gpu", "has an unknown meaning"),
            (&RAPL, "counter_1,energy_microjoule,a,b,zone_core", "has an unknown meaning"),
            (&PERFHW, "counter1,instructoins", "has an unknown meaning"),
            (&PERFHW, "counter6,instructions", "names a counter that the backend does not have"),
            (&TEMPERATURE, "counter_1, acpitz", "has an unknown meaning"),
            (&TASKSTATS, "counter_1,no_counter", "names a counter that the backend does not have"),
        ] {
            let error = CounterNames::read(backend, &format!("{line}\n")).unwrap_err();
            assert_eq!((error.line, &*error.text, error.reason), (1, line, reason));
        }
        let twice = "counter1,instructions\ncounter1,cache_misses\n";
        let error = CounterNames::read(&PERFHW, twice).unwrap_err();
        assert_eq!((error.line, error.reason), (2, "names its counter again"));
        let long = format!("counter_1, {}_1", "x".repeat(MEANING_BYTES_MAX));
        assert_eq!(CounterNames::read(&TEMPERATURE, &long).unwrap_err().reason, "is too long");
    }
}
