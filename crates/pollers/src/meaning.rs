//! Kind and unit of a metric from outside of the sources: declared by a description, or assumed from an exposition or
//! the name (docs/decisions/0039-meanings-from-outside.md).

use crate::exposition::MetricType;
use model::{Kind, Unit};

/// Units by words of names: those of ours, and the forms used in production.
const WORDS: [(&str, Unit); 17] = [
    ("ratio", Unit::Ratio),
    ("seconds", Unit::Seconds),
    ("second", Unit::Seconds),
    ("bytes", Unit::Bytes),
    ("byte", Unit::Bytes),
    ("joules", Unit::Joules),
    ("joule", Unit::Joules),
    ("watts", Unit::Watts),
    ("watt", Unit::Watts),
    ("celsius", Unit::Celsius),
    ("hertz", Unit::Hertz),
    ("volts", Unit::Volts),
    ("volt", Unit::Volts),
    ("amperes", Unit::Amperes),
    ("ampere", Unit::Amperes),
    ("amps", Unit::Amperes),
    ("amp", Unit::Amperes),
];

/// Kind and unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Its kind.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Whether a description declares both. An assumed meaning yields to a declared one.
    pub is_declared: bool,
}

impl Meaning {
    /// The meaning of a metric by the first that states it: the description's keys, the exposition's type, the name.
    pub fn of(
        name: &str,
        kind: Option<Kind>,
        unit: Option<Unit>,
        exposed: Option<MetricType>,
    ) -> Self {
        let of_type = exposed.and_then(|exposed| match exposed {
            MetricType::Counter => Some(Kind::Counter),
            MetricType::Gauge | MetricType::Info | MetricType::StateSet => Some(Kind::Gauge),
            // Parts of one family have several kinds, which their names state.
            _ => None,
        });
        let short = name.strip_suffix("_total");
        let of_name = if short.is_some() { Kind::Counter } else { Kind::Gauge };
        Self {
            kind: kind.or(of_type).unwrap_or(of_name),
            unit: unit.unwrap_or_else(|| unit_of(short.unwrap_or(name))),
            is_declared: kind.is_some() && unit.is_some(),
        }
    }
}

/// The unit by the last word of a name that is one. A word of another scale stands before its unit
/// (`milli_volts`) and makes it a plain count, because values are not converted.
fn unit_of(name: &str) -> Unit {
    const SCALES: [&str; 9] =
        ["milli", "micro", "nano", "kilo", "mega", "giga", "kibi", "mebi", "gibi"];
    let words: Vec<&str> = name.split('_').collect();
    let known = |word: &str| WORDS.iter().find(|(known, _)| *known == word).map(|(_, unit)| *unit);
    let Some((place, unit)) =
        words.iter().enumerate().rev().find_map(|(place, word)| Some((place, known(word)?)))
    else {
        return Unit::Count;
    };
    let before = place.checked_sub(1).and_then(|before| words.get(before));
    match before {
        Some(scale) if SCALES.contains(scale) => Unit::Count,
        Some(&"byte" | &"bytes") if unit == Unit::Seconds => Unit::ByteSeconds,
        _ => unit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_state_kind_and_unit() {
        for (name, kind, unit) in [
            ("pdu_outlet_power_watt", Kind::Gauge, Unit::Watts),
            ("bmc_cpu_temp_celsius", Kind::Gauge, Unit::Celsius),
            ("network_ifacein_bytes_total", Kind::Counter, Unit::Bytes),
            ("network_ifacein_packet_total", Kind::Counter, Unit::Count),
            ("prom_node_load1", Kind::Gauge, Unit::Count),
            ("prom_node_cpu_seconds_total", Kind::Counter, Unit::Seconds),
            ("memory_byte_seconds_total", Kind::Counter, Unit::ByteSeconds),
            ("input_milli_volts", Kind::Gauge, Unit::Count),
            ("watts_max", Kind::Gauge, Unit::Watts),
            ("wattmetre", Kind::Gauge, Unit::Count),
            ("_total", Kind::Counter, Unit::Count),
        ] {
            let found = Meaning::of(name, None, None, None);
            assert_eq!(found, Meaning { kind, unit, is_declared: false }, "{name}");
        }
    }

    #[test]
    fn keys_come_before_the_exposition_and_that_before_the_name() {
        let of = |kind, exposed| Meaning::of("a_total", kind, None, exposed).kind;
        assert_eq!(of(None, Some(MetricType::Gauge)), Kind::Gauge);
        assert_eq!(of(Some(Kind::Counter), Some(MetricType::Gauge)), Kind::Counter);
        assert_eq!(of(None, Some(MetricType::Histogram)), Kind::Counter);
        assert!(Meaning::of("a", Some(Kind::Gauge), Some(Unit::Count), None).is_declared);
        assert!(!Meaning::of("a", Some(Kind::Gauge), None, None).is_declared);
    }
}
