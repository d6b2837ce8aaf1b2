//! A line of `wattmetre-read`: an instant, and the power of each port.

use crate::polling::python_float;
use model::Timestamp;

/// Ports of a meter.
pub const PORTS_MAX: usize = 1024;
/// Fields of a line of version 3 besides two per port, and those before the first port.
const V3_OTHER_FIELDS: usize = 11;
const V3_FIELDS_BEFORE: usize = 6;

/// The version of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineVersion {
    /// `DEBUG,DEBUG,TIME,OK,WATTS,…`
    #[default]
    V2,
    /// `TIME,true,…`: six fields before the ports, two per port, five after them.
    V3,
}

/// What a line states about a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PortValue {
    /// Its power.
    Watts(f64),
    /// No value: nothing, or `nan`.
    Missing,
    /// No power: another text, a negative number or infinity.
    Bad,
}

/// Why a line is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// It is no line of this version.
    #[error("{0}")]
    Broken(&'static str),
    /// The meter marks it as wrong.
    #[error("the meter marks its values as wrong")]
    NotOk,
    /// Its instant or its number of ports does not fit to the lines around it.
    #[error("the time or the number of ports changes, and the next line does not confirm it")]
    OutOfOrder,
    /// Its instant is before 2000, or more than a day ahead.
    #[error("its time is before 2000 or more than a day ahead; set the clock of the meter")]
    WrongTime,
}

impl LineFault {
    /// The states of a line: used, and the words of the faults.
    pub(super) const STATES: [&'static str; 5] =
        ["ok", "broken", "not_ok", "out_of_order", "wrong_time"];

    /// The place of a line's state in [`Self::STATES`].
    pub(super) const fn state(fault: Option<Self>) -> usize {
        match fault {
            None => 0,
            Some(Self::Broken(_)) => 1,
            Some(Self::NotOk) => 2,
            Some(Self::OutOfOrder) => 3,
            Some(Self::WrongTime) => 4,
        }
    }
}

/// Reads a line: returns its instant, and adds the value of each port to `values`. It allocates nothing if `values`
/// has the capacity.
///
/// # Errors
/// It has no instant or no ports, or the meter marks it as wrong.
pub fn parse(
    version: LineVersion,
    line: &[u8],
    values: &mut Vec<PortValue>,
) -> Result<Timestamp, LineFault> {
    let text = std::str::from_utf8(line).map_err(|_| LineFault::Broken("it is not UTF-8"))?.trim();
    let mut fields = text.split(',');
    let time = match version {
        LineVersion::V2 => fields.nth(2),
        LineVersion::V3 => fields.next(),
    };
    let (Some(time), Some(state)) = (time, fields.next()) else { return Err(TOO_SHORT) };
    match (version, state) {
        (LineVersion::V2, "OK") | (LineVersion::V3, "true") => {}
        (LineVersion::V2, state) if state.parse::<f64>().is_ok() => return Err(NOT_2),
        (LineVersion::V3, state) if state != "false" => return Err(NOT_3),
        _ => return Err(LineFault::NotOk),
    }
    match version {
        LineVersion::V2 => add_ports(fields, values)?,
        LineVersion::V3 => {
            let count = text.bytes().filter(|byte| *byte == b',').count() + 1;
            let ports = count.saturating_sub(V3_OTHER_FIELDS) / 2;
            add_ports(fields.skip(V3_FIELDS_BEFORE - 2).step_by(2).take(ports), values)?;
        }
    }
    if values.is_empty() {
        return Err(TOO_SHORT);
    }
    instant(time).ok_or(LineFault::Broken("its time is no number of seconds"))
}

const NOT_2: LineFault =
    LineFault::Broken("its fourth field is a number, not the state of version 2; see --version");
const NOT_3: LineFault =
    LineFault::Broken("its second field is not true or false as in version 3; see --version");
const TOO_SHORT: LineFault = LineFault::Broken("it has too few fields");

fn add_ports<'a>(
    fields: impl Iterator<Item = &'a str>,
    values: &mut Vec<PortValue>,
) -> Result<(), LineFault> {
    for field in fields {
        if values.len() >= PORTS_MAX {
            return Err(LineFault::Broken("it has more than 1024 ports"));
        }
        values.push(value(field));
    }
    Ok(())
}

fn value(field: &str) -> PortValue {
    if matches!(field, "" | "nan") {
        return PortValue::Missing;
    }
    match python_float(field) {
        Some(watts) if watts.is_nan() => PortValue::Missing,
        Some(watts) if watts.is_finite() && watts >= 0.0 => PortValue::Watts(watts),
        _ => PortValue::Bad,
    }
}

/// Seconds since 1970 as an instant, rounded to the microsecond within its second.
#[expect(clippy::cast_possible_truncation, reason = "the limits of the conversion are checked")]
fn instant(field: &str) -> Option<Timestamp> {
    let seconds = python_float(field).filter(|seconds| (0.0..9e12).contains(seconds))?;
    let micros = (seconds.fract() * 1e6).round().min(999_999.0);
    Some(Timestamp::from_seconds(seconds.trunc() as i64).plus(micros as i64))
}

#[cfg(test)]
mod tests {
    use super::PortValue::{Bad, Missing, Watts};
    use super::*;
    use proptest::prelude::*;

    fn read(version: LineVersion, line: &str) -> Result<(i64, Vec<PortValue>), LineFault> {
        let mut values = Vec::new();
        let at = parse(version, line.as_bytes(), &mut values)?;
        Ok((at.0, values))
    }

    #[test]
    fn a_line_of_version_2_has_the_ports_after_its_state() {
        let line = "12,x,1606389005.020000123,OK,12.5,,nan,0\r";
        let ports = vec![Watts(12.5), Missing, Missing, Watts(0.0)];
        assert_eq!(read(LineVersion::V2, line), Ok((1_606_389_005_020_000, ports)));
    }

    #[test]
    fn a_line_of_version_3_has_every_second_field_after_six() {
        let line = "1606389005.5,true,a,b,c,d,100.5,0.4,-1,0.5,1,2,3,4,5";
        assert_eq!(
            read(LineVersion::V3, line),
            Ok((1_606_389_005_500_000, vec![Watts(100.5), Bad]))
        );
    }

    #[test]
    fn a_value_that_is_no_power_is_bad_and_costs_no_other() {
        let line = "0,0,1606389005,OK,-1,inf,-inf,1 W,0x1,NaN,1e2,1_0";
        let ports = vec![Bad, Bad, Bad, Bad, Bad, Missing, Watts(100.0), Watts(10.0)];
        assert_eq!(read(LineVersion::V2, line).unwrap().1, ports);
    }

    #[test]
    fn faults_have_a_reason() {
        for (version, line, fault) in [
            (LineVersion::V2, "", TOO_SHORT),
            (LineVersion::V2, "0,0,1606389005,OK", TOO_SHORT),
            (LineVersion::V2, "0,0,1606389005,ERR,1", LineFault::NotOk),
            (LineVersion::V2, "1606389005.5,true,a,b,c,d,1,2,1,2,3,4,5", LineFault::NotOk),
            (LineVersion::V3, "1606389005,true,a,b,c,d,1,2,3,4,5,6", TOO_SHORT),
            (LineVersion::V3, "1606389005,false,a,b,c,d,1,2,3,4,5,6,7", LineFault::NotOk),
        ] {
            assert_eq!(read(version, line), Err(fault), "{line}");
        }
        for time in ["", "x", "nan", "-1", "1e300"] {
            let fault = read(LineVersion::V2, &format!("0,0,{time},OK,1")).unwrap_err();
            assert_eq!(fault, LineFault::Broken("its time is no number of seconds"), "{time}");
        }
        let long = format!("0,0,1,OK{}", ",1".repeat(PORTS_MAX + 1));
        assert!(matches!(read(LineVersion::V2, &long), Err(LineFault::Broken(_))));
        assert!(read(LineVersion::V2, long.strip_suffix(",1").unwrap()).is_ok());
        let mut values = Vec::new();
        assert!(parse(LineVersion::V2, b"0,\xff,1,OK,1", &mut values).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            second in 946_684_800_i64..4_000_000_000,
            micros in 0_i64..1_000_000,
            watts in prop::collection::vec(0.0..10_000.0, 1..50),
        ) {
            let at = second * Timestamp::SECOND + micros;
            let ports: String = watts.iter().map(|watts| format!(",{watts}")).collect();
            let expected: Vec<PortValue> = watts.iter().map(|watts| Watts(*watts)).collect();
            let second_version = format!("0,0,{second}.{micros:06}000,OK{ports}\n");
            prop_assert_eq!(read(LineVersion::V2, &second_version), Ok((at, expected.clone())));
            let ports: String = watts.iter().map(|watts| format!(",{watts},0.1")).collect();
            let third_version = format!("{second}.{micros:06},true,1,2,3,4{ports},1,2,3,4,5");
            prop_assert_eq!(read(LineVersion::V3, &third_version), Ok((at, expected)));
        }

        #[test]
        fn any_bytes_return(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for version in [LineVersion::V2, LineVersion::V3] {
                let mut values = Vec::new();
                if parse(version, &bytes, &mut values).is_ok() {
                    prop_assert!(!values.is_empty());
                }
            }
        }
    }
}
