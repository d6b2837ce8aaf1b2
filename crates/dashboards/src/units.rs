//! Units of the catalogue as IDs of Grafana's units.

use crate::declaration::Quantity;
use model::{Kind, Unit};

/// Grafana's unit of a plain number.
pub(crate) const PLAIN: &str = "short";

/// Grafana's unit of a metric's values: of a gauge its own, of a counter that of its rate.
pub(crate) const fn of_metric(kind: Kind, unit: Unit) -> &'static str {
    match kind {
        Kind::Gauge => of_value(unit),
        Kind::Counter => of_rate(unit),
    }
}

const fn of_value(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => PLAIN,
        Unit::Ratio => "percentunit",
        Unit::Seconds => "s",
        Unit::Bytes => "bytes",
        Unit::ByteSeconds => "suffix: B·s",
        Unit::Joules => "joule",
        Unit::Watts => "watt",
        Unit::Celsius => "celsius",
        Unit::Hertz => "hertz",
        Unit::Volts => "volt",
        Unit::Amperes => "amp",
    }
}

/// The unit divided by seconds. Seconds per second are a share of time.
const fn of_rate(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "cps",
        Unit::Seconds => "percentunit",
        Unit::Bytes => "binBps",
        Unit::ByteSeconds => "bytes",
        Unit::Joules => "watt",
        Unit::Ratio | Unit::Watts | Unit::Celsius | Unit::Hertz | Unit::Volts | Unit::Amperes => {
            PLAIN
        }
    }
}

/// Grafana's unit of a column; none for texts.
pub(crate) const fn of_quantity(quantity: Quantity) -> Option<&'static str> {
    match quantity {
        Quantity::Text => None,
        Quantity::Time => Some("dateTimeAsIso"),
        Quantity::Of(unit) => Some(of_value(unit)),
        Quantity::KilowattHours => Some("kwatth"),
    }
}
