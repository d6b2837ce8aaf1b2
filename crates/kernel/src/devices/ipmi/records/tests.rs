//! Tests of the answers of a BMC.

use super::*;
use proptest::prelude::*;

/// A full record: a temperature, unsigned, one degree a step, named `Temp`.
fn temperature() -> Vec<u8> {
    let mut record = vec![0; 52];
    record[..15].copy_from_slice(&[4, 0, 0x51, FULL, 47, BMC, 0, 0x30, 3, 1, 0x7f, 0x68, 1, 1, 0]);
    (record[21], record[24], record[47]) = (1, 1, 0xc4);
    record[48..].copy_from_slice(b"Temp");
    record
}

fn analog(record: &[u8]) -> Analog {
    match SensorRecord::parse(record) {
        Some(SensorRecord::Analog(analog)) => analog,
        other => panic!("{other:?}"),
    }
}

/// The value of a reading by a temperature's record after a change.
fn value(raw: u8, change: impl FnOnce(&mut Vec<u8>)) -> Option<f64> {
    let mut record = temperature();
    change(&mut record);
    analog(&record).value(&[0, raw, 0xc0, 0])
}

#[test]
fn factors_exponents_and_formats() {
    assert_eq!(value(45, |_| ()), Some(45.0));
    // M = -3, B = 100, K1 = 1, K2 = -2: (-3 x 7 + 1000) / 100.
    let change = |r: &mut Vec<u8>| (r[24], r[25], r[26], r[29]) = (0xfd, 0xc0, 100, 0xe1);
    assert_eq!(value(7, change), Some(9.79));
    // B = -2, of ten bits.
    assert_eq!(value(7, |r| (r[26], r[27]) = (0xfe, 0xc0)), Some(5.0));
    // A whole 12-volt rail, of 63 mV a step: 63 x 192 / 1000.
    assert_eq!(value(192, |r| (r[24], r[29], r[21]) = (63, 0xd0, 4)), Some(12.096));
    assert_eq!(value(0xfe, |r| r[20] = 0x80), Some(-2.0));
    assert_eq!(value(0x80, |r| r[20] = 0x80), Some(-128.0));
    assert_eq!(value(0xfe, |r| r[20] = 0x40), Some(-1.0));
    assert_eq!(value(0xff, |r| r[20] = 0x40), Some(0.0));
    assert_eq!(value(0x7f, |r| r[20] = 0x40), Some(127.0));
}

#[test]
fn curves() {
    for (curve, raw, want) in [
        (1, 1, 0.0),
        (2, 100, 2.0),
        (3, 8, 3.0),
        (4, 0, 1.0),
        (5, 3, 1000.0),
        (6, 5, 32.0),
        (7, 4, 0.25),
        (8, 9, 81.0),
        (9, 3, 27.0),
        (10, 81, 9.0),
        (11, 27, 3.0),
    ] {
        let found = value(raw, |r| r[23] = curve).unwrap();
        assert!((found - want).abs() < 1e-9, "curve {curve}: {found}");
    }
    // 1/0 and the logarithm of 0 are not numbers.
    assert_eq!(value(0, |r| r[23] = 7), None);
    assert_eq!(value(0, |r| r[23] = 1), None);
}

#[test]
fn a_sensor_without_a_reading_has_none() {
    let sensor = analog(&temperature());
    assert_eq!(sensor.value(&[0, 45, 0x40]), Some(45.0));
    for none in [
        &[0, 45, 0xe0, 0][..],
        &[0, 45, 0x80, 0],
        &[0, 45, 0x00],
        &[0xcb],
        &[0xc3, 45, 0xc0],
        &[0, 45],
        &[0],
        &[],
    ] {
        assert_eq!(sensor.value(none), None, "{none:x?}");
    }
}

#[test]
fn unsupported_and_non_numeric_sensors_are_distinguished() {
    let parsed = |place: usize, byte: u8| {
        let mut record = temperature();
        record[place] = byte;
        SensorRecord::parse(&record).unwrap()
    };
    // Compact and others; no analogue format; states.
    for (place, byte) in [(3, 0x02), (3, 0x11), (20, 0xc0), (13, 0x6f)] {
        assert_eq!(parsed(place, byte), SensorRecord::NoNumber, "{place}");
    }
    // Of another controller or channel; a rate; a second unit; lumens; a curve of the BMC's own.
    for (place, byte) in [(5, 0x2c), (6, 0x10), (20, 0x08), (22, 6), (21, 11), (23, 0x70)] {
        assert_eq!(parsed(place, byte), SensorRecord::Other, "{place}");
    }
    assert!(matches!(
        parsed(20, 1),
        SensorRecord::Analog(Analog { measures: Measures::Percent, .. })
    ));
    assert!(matches!(parsed(6, 2), SensorRecord::Analog(Analog { unit: 2, .. })));
}

#[test]
fn names_in_each_of_four_encodings() {
    assert_eq!(&*name(0xc4, b"Temp"), "Temp");
    assert_eq!(&*name(0xc6, b"FAN\xb01\0"), "FAN\u{b0}1");
    // "IPMI" of six bits a character, as §43.15 has it.
    assert_eq!(&*name(0x83, &[0x29, 0xdc, 0xa6]), "IPMI");
    assert_eq!(&*name(0x42, &[0x12, 0xa3]), "12 3");
    assert_eq!(&*name(0x02, &[0x0a, 0xff]), "0aff");
    assert_eq!(&*name(0xdf, b"short"), "short");
}

#[test]
fn every_truncated_record_is_rejected() {
    let record = temperature();
    for cut in 0..record.len() {
        assert_eq!(SensorRecord::parse(&record[..cut]), None, "{cut}");
    }
    // A record with a length shorter than its type requires.
    let mut short = record;
    short[4] = 20;
    assert_eq!(SensorRecord::parse(&short), None);
}

#[test]
fn power_of_the_node() {
    let mut dcmi = vec![0, 0xdc, 0xf5, 0, 2, 0, 0xd4, 1, 0xb8, 0, 0, 0, 0, 0, 0xe8, 3, 0, 0, 0x40];
    assert_eq!(DcmiPower::parse(&dcmi), Some(DcmiPower { now_watts: 245, mean_watts: 184 }));
    for cut in 0..dcmi.len() {
        assert_eq!(DcmiPower::parse(&dcmi[..cut]), None, "{cut}");
    }
    dcmi[18] = 0;
    assert_eq!(DcmiPower::parse(&dcmi), None, "it is not measured");
    assert_eq!(DcmiPower::parse(&[0xc1]), None);
    let dell = DellPower::parse(&[0, 0xf5, 0, 11, 0, 0, 0, 0]);
    assert_eq!(dell, Some(DellPower { watts: 245, deci_amperes: 11 }));
    let counted = [0, 1, 2, 3, 4, 0x15, 0xcd, 0x5b, 0x07, 0, 0];
    assert_eq!(DellPower::watt_hours(&counted), Some(123_456_789));
    assert_eq!(DellPower::watt_hours(&counted[..8]), None);
    let identity = [0, 0x20, 0x81, 3, 5, 2, 0xbf, 0xa2, 2, 0, 0, 1];
    assert_eq!(Identity::parse(&identity), Some(Identity { maker: Identity::DELL }));
    assert_eq!(Identity::parse(&identity[..9]), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        SensorRecord::parse(&bytes);
        DcmiPower::parse(&bytes);
        DellPower::parse(&bytes);
        DellPower::watt_hours(&bytes);
        Identity::parse(&bytes);
    }

    #[test]
    fn every_full_record_and_reading_gives_a_number_or_none(
        rest in prop::collection::vec(any::<u8>(), 60),
        answer in prop::collection::vec(any::<u8>(), 0..5),
    ) {
        let mut record = rest;
        (record[3], record[4], record[5], record[6]) = (FULL, 55, BMC, 1);
        (record[13], record[20], record[22]) = (THRESHOLD, record[20] & 0xc0, 0);
        if let Some(SensorRecord::Analog(sensor)) = SensorRecord::parse(&record) {
            prop_assert!(sensor.value(&answer).is_none_or(f64::is_finite));
            prop_assert!(sensor.value(&[0, record[7], 0xc0]).is_none_or(f64::is_finite));
        }
    }
}
