//! Values of variables (RFC 2578, section 7) as numbers and texts.

use crate::polling::values::of_text;
use async_snmp::Value;
use model::Labels;

/// Opaque floats of net-snmp: tag, length, then the number in IEEE 754.
const FLOAT: [u8; 3] = [0x9f, 0x78, 4];
const DOUBLE: [u8; 3] = [0x9f, 0x79, 8];

/// A value with the labels that its text adds; an error for the absence of a value.
pub(super) fn number(value: &Value, labels: &Labels) -> Result<(f64, Labels), &'static str> {
    let plain = |number: f64| Ok((number, labels.clone()));
    match value {
        Value::Integer(number) => plain(f64::from(*number)),
        Value::Counter32(number)
        | Value::Gauge32(number)
        | Value::UInteger32(number)
        | Value::TimeTicks(number) => plain(f64::from(*number)),
        #[expect(clippy::as_conversions, reason = "a sample is a double")]
        Value::Counter64(number) => plain(*number as f64),
        Value::OctetString(bytes) | Value::Nsap(bytes) => Ok(of_text(&text(bytes), labels)),
        Value::Opaque(bytes) => match opaque(bytes) {
            Some(number) => plain(number),
            None => Ok(of_text(&hexadecimal(bytes), labels)),
        },
        Value::ObjectIdentifier(oid) => Ok(of_text(&format!("oid {oid}"), labels)),
        Value::IpAddress([a, b, c, d]) => Ok(of_text(&format!("{a}.{b}.{c}.{d}"), labels)),
        Value::NoSuchObject => Err("the agent has no such object"),
        Value::NoSuchInstance => Err("the agent has no such instance"),
        Value::EndOfMibView => Err("the agent has nothing behind it"),
        _ => Err("the agent returns no value"),
    }
}

/// The text of a string: UTF-8, else hexadecimal.
pub(super) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text.to_owned(),
        _ => match bytes.split_last() {
            // Some agents end a text by a zero.
            Some((0, text)) if std::str::from_utf8(text).is_ok_and(|text| !text.contains('\0')) => {
                String::from_utf8_lossy(text).into_owned()
            }
            _ => hexadecimal(bytes),
        },
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.join(":")
}

fn opaque(bytes: &[u8]) -> Option<f64> {
    let (tag, number) = bytes.split_first_chunk::<3>()?;
    match *tag {
        FLOAT => Some(f64::from(f32::from_be_bytes(number.try_into().ok()?))),
        DOUBLE => Some(f64::from_be_bytes(number.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_a_number_or_a_text() {
        let labels = Labels::default();
        let of =
            |value: Value| number(&value, &labels).map(|(n, labels)| (n, labels.get("value_str")));
        let bytes = |bytes: &[u8]| bytes.to_vec().into();
        assert_eq!(of(Value::Integer(-7)), Ok((-7.0, None)));
        assert_eq!(of(Value::Counter64(1 << 40)), Ok((1_099_511_627_776.0, None)));
        assert_eq!(of(Value::OctetString(bytes(b" 245 "))), Ok((245.0, None)));
        let opaque = [&FLOAT[..], &1.5_f32.to_be_bytes()].concat();
        assert_eq!(of(Value::Opaque(bytes(&opaque))), Ok((1.5, None)));
        let opaque = [&DOUBLE[..], &2.5_f64.to_be_bytes()].concat();
        assert_eq!(of(Value::Opaque(bytes(&opaque))), Ok((2.5, None)));
        let text = |value| of(value).unwrap().1.unwrap();
        assert_eq!(text(Value::OctetString(bytes(b"42 W"))), "42 W");
        assert_eq!(text(Value::OctetString(bytes(&[0, 0x1b, 0xff]))), "00:1b:ff");
        assert_eq!(text(Value::Opaque(bytes(&[1, 2]))), "01:02");
        assert_eq!(text(Value::IpAddress([10, 0, 0, 1])), "10.0.0.1");
        assert!(of(Value::NoSuchInstance).is_err() && of(Value::Null).is_err());
        assert_eq!(super::text(b"eth0\0"), "eth0");
    }
}
