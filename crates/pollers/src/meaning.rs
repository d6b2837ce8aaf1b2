//! Kind and unit of a metric from outside of the sources: declared by a description, or assumed from an exposition or
//! the name (docs/decisions/0039-meanings-from-outside.md).

use crate::exposition::MetricType;
use model::{Kind, Unit};
use std::sync::Arc;

/// Kind and unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Its kind.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Whether a description declares one of them. An assumed meaning yields to a declared one.
    pub is_declared: bool,
}

impl Meaning {
    /// The meaning of a metric by the first that states it: the description's keys, the exposition, the name.
    pub fn of(name: &str, kind: Option<Kind>, unit: Option<Unit>, exposed: &Exposed) -> Self {
        Self {
            kind: kind.or(exposed.kind).unwrap_or_else(|| Kind::of_name(name)),
            unit: unit.or(exposed.unit).unwrap_or_else(|| Unit::of_name(name)),
            is_declared: kind.is_some() || unit.is_some(),
        }
    }
}

/// What an exposition states about a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposed {
    /// By `# TYPE`.
    pub kind: Option<Kind>,
    /// By `# UNIT`.
    pub unit: Option<Unit>,
    /// By `# HELP`.
    pub help: Arc<str>,
}

/// Type, unit and help of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// By `# TYPE`.
    pub metric_type: Option<MetricType>,
    /// By `# UNIT`.
    pub unit: Option<Unit>,
    /// By `# HELP`.
    pub help: Arc<str>,
}

impl Family {
    /// Suffixes of the samples of a family; the family itself has none.
    pub const SUFFIXES: [&'static str; 7] =
        ["", "_total", "_bucket", "_count", "_sum", "_created", "_info"];

    /// What the family states about its samples with this suffix. The observations of histograms and summaries only
    /// grow, and their number has no unit.
    pub fn of_suffix(&self, suffix: &str) -> Exposed {
        use MetricType as T;
        let is_number = matches!(suffix, "_bucket" | "_count");
        let kind = match (self.metric_type, suffix) {
            (_, "_created") => Some(Kind::Gauge),
            (Some(T::Counter), _) => Some(Kind::Counter),
            (Some(T::Histogram), "_bucket" | "_count" | "_sum") => Some(Kind::Counter),
            (Some(T::Summary), "_count" | "_sum") => Some(Kind::Counter),
            (Some(T::Unknown) | None, _) => None,
            _ => Some(Kind::Gauge),
        };
        let unit = match suffix {
            "_created" => Some(Unit::Seconds),
            _ if is_number && kind.is_some() => Some(Unit::Count),
            _ => self.unit,
        };
        Exposed { kind, unit, help: Arc::clone(&self.help) }
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
            let found = Meaning::of(name, None, None, &Exposed::default());
            assert_eq!(found, Meaning { kind, unit, is_declared: false }, "{name}");
        }
    }

    #[test]
    fn keys_come_before_the_exposition_and_that_before_the_name() {
        let exposed = |kind| Exposed { kind, ..Exposed::default() };
        let of = |kind, exposed| Meaning::of("a_total", kind, None, &exposed).kind;
        assert_eq!(of(None, exposed(Some(Kind::Gauge))), Kind::Gauge);
        assert_eq!(of(Some(Kind::Counter), exposed(Some(Kind::Gauge))), Kind::Counter);
        assert_eq!(of(None, exposed(None)), Kind::Counter);
        let is_declared = |kind, unit| Meaning::of("a", kind, unit, &exposed(None)).is_declared;
        assert!(is_declared(Some(Kind::Gauge), None) && is_declared(None, Some(Unit::Count)));
        assert!(!is_declared(None, None));
    }

    #[test]
    fn parts_of_a_family_have_kinds_and_units_of_their_own() {
        let family = |metric_type| Family {
            metric_type: Some(metric_type),
            unit: Some(Unit::Seconds),
            help: "".into(),
        };
        for (metric_type, suffix, kind, unit) in [
            (MetricType::Histogram, "_bucket", Some(Kind::Counter), Some(Unit::Count)),
            (MetricType::Histogram, "_sum", Some(Kind::Counter), Some(Unit::Seconds)),
            (MetricType::GaugeHistogram, "_bucket", Some(Kind::Gauge), Some(Unit::Count)),
            (MetricType::Summary, "_count", Some(Kind::Counter), Some(Unit::Count)),
            (MetricType::Summary, "", Some(Kind::Gauge), Some(Unit::Seconds)),
            (MetricType::Counter, "_total", Some(Kind::Counter), Some(Unit::Seconds)),
            (MetricType::Counter, "_created", Some(Kind::Gauge), Some(Unit::Seconds)),
            (MetricType::Info, "_info", Some(Kind::Gauge), Some(Unit::Seconds)),
            (MetricType::Unknown, "", None, Some(Unit::Seconds)),
        ] {
            let found = family(metric_type).of_suffix(suffix);
            assert_eq!((found.kind, found.unit), (kind, unit), "{metric_type:?} {suffix}");
        }
    }
}
