//! The agent reads a board's controller (BMC) in a nested machine.
//!
//! One BMC is simulated by qemu. The other is a BMC of this test behind qemu's device for external BMCs, with
//! DCMI and Dell's commands.

use crate::common::nested::{nested, samples};
use crate::common::programs::program;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

/// Builds a full sensor record (§43.1): number, unit of measure, M, B and the exponents, name.
fn record(id: u8, number: u8, unit: u8, (m, b, exponents): (u8, u8, u8), name: &str) -> Vec<u8> {
    let mut record = vec![0; 48];
    record[..5].copy_from_slice(&[id, 0, 0x51, 0x01, u8::try_from(43 + name.len()).unwrap()]);
    record[5..15].copy_from_slice(&[0x20, 0, number, 7, 1, 0x7f, 0x68, 1, 0x01, 0]);
    (record[21], record[24], record[26], record[29]) = (unit, m, b, exponents);
    record[47] = 0xc0 | u8::try_from(name.len()).unwrap();
    record.extend_from_slice(name.as_bytes());
    record
}

fn compact(number: u8) -> Vec<u8> {
    let mut record = vec![0; 32];
    record[..5].copy_from_slice(&[0, 0, 0x51, 0x02, 27]);
    record[5..14].copy_from_slice(&[0x20, 0, number, 7, 1, 0x7f, 0x68, 1, 0x01]);
    record
}

/// Runs the nested machine's script with the agent, the drivers, and a BMC in the form of qemu's arguments;
/// returns its output.
fn read_text(bmc: &str) -> String {
    nested("ipmi.sh", &[program("jobmeter-agent")], |command: &mut Command| {
        command.env("NESTED_MODULES", "ipmi_msghandler ipmi_devintf ipmi_si");
        command.env("NESTED_DEVICES", format!("{bmc} -device isa-ipmi-kcs,bmc=b0"));
    })
}

/// Checks the printed values of both runs, by metric and labels, and the number of readings in the second
/// run.
fn check(out: &str, wanted: &[(&str, &str, f64)]) {
    let (once, then) = out.split_once("THEN").unwrap();
    for part in [once, then] {
        let values = samples(part);
        for (metric, labels, value) in wanted {
            let key = ((*metric).to_owned(), "-".to_owned(), (*labels).to_owned());
            let read_text = values.iter().find(|((name, _, of), _)| (name, of) == (&key.0, &key.2));
            assert_eq!(
                read_text.map(|(_, read_text)| *read_text),
                Some(*value),
                "{metric}{labels}\n{out}"
            );
        }
        assert_eq!(values.len(), wanted.len(), "{out}");
    }
    // The run takes six seconds, but the agent's startup and the first reading take some of them.
    let (first, ..) = wanted[0];
    let times = then.lines().filter(|line| line.starts_with(&format!("{first}\t"))).count();
    assert!(times >= 3, "{first} was told {times} times\n{out}");
}

#[test]
fn the_sensors_of_a_simulated_boards_computer_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sdr");
    // The simulated readings are 0, so the value is B with its exponent.
    let records = [
        record(0, 5, 1, (1, 25, 0), "Inlet"),
        record(1, 6, 4, (6, 121, 0xf0), "12V rail"),
        record(2, 7, 18, (100, 42, 0x02), "Fan"),
        // The simulator creates a sensor only if it also has a compact record (§43.2).
        compact(5),
        compact(6),
        compact(7),
    ];
    std::fs::write(&file, records.concat()).unwrap();
    let out = read_text(&format!("-device ipmi-bmc-sim,id=b0,sdrfile={}", file.display()));
    check(
        &out,
        &[
            ("ipmi_temperature_celsius", r#"{"number": "5", "sensor": "Inlet"}"#, 25.0),
            ("ipmi_voltage_volts", r#"{"number": "6", "sensor": "12V rail"}"#, 12.1),
            ("ipmi_fan_hertz", r#"{"number": "7", "sensor": "Fan"}"#, 70.0),
        ],
    );
}

#[test]
fn dcmi_and_dells_commands_are_answered_by_a_simulated_bmc() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The thread ends with its connection, and at the latest with the test.
    std::thread::spawn(move || serve(listener.accept().unwrap().0));
    // Without `reconnect`, this version of qemu connects before its device is ready, and crashes.
    let out = read_text(&format!(
        "-chardev socket,id=c0,host=127.0.0.1,port={port},reconnect=1 \
         -device ipmi-bmc-extern,id=b0,chardev=c0"
    ));
    check(
        &out,
        &[
            ("ipmi_power_watts", r#"{"number": "23", "sensor": "Pwr"}"#, 246.0),
            ("ipmi_temperature_celsius", r#"{"number": "1", "sensor": "CPU"}"#, 45.0),
            ("ipmi_dcmi_power_watts", "{}", 245.0),
            ("ipmi_dcmi_power_mean_watts", "{}", 184.0),
            ("ipmi_dell_power_watts", "{}", 247.0),
            ("ipmi_dell_current_amperes", "{}", 1.1),
            ("ipmi_dell_energy_joules_total", "{}", 0.0),
        ],
    );
}

const END: u8 = 0xa0;
const COMMAND: u8 = 0xa1;
const ESCAPE: u8 = 0xaa;

/// Speaks OpenIPMI's serial protocol `VM` with qemu. A message ends with A0h, and a command to the machine
/// with A1h. After AAh, the next byte has its bit 4 set.
fn serve(mut line: TcpStream) {
    let records = [
        record(0, 0x17, 6, (2, 0, 0), "Pwr"),
        record(1, 0x01, 1, (1, 0, 0), "CPU"),
        record(2, 0x02, 1, (1, 0, 0), "Off"),
    ];
    let (mut message, mut is_escaped, mut byte) = (Vec::new(), false, [0]);
    // The connection closes when the nested machine ends.
    while line.read_exact(&mut byte).is_ok() {
        match byte[0] {
            END => {
                if let Some(answer) = answer_to(&message, &records) {
                    line.write_all(&answer).unwrap();
                }
                message.clear();
            }
            COMMAND => message.clear(),
            ESCAPE => is_escaped = true,
            byte if is_escaped => {
                message.push(byte & !0x10);
                is_escaped = false;
            }
            byte => message.push(byte),
        }
    }
}

/// Returns the bytes of a response: number, function and unit, command, data, checksum.
fn answer_to(message: &[u8], records: &[Vec<u8>]) -> Option<Vec<u8>> {
    assert_eq!(message.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)), 0, "{message:x?}");
    let [number, function, command, data @ .., _] = message else { return None };
    let mut answer = vec![*number, function | 4, *command];
    answer.extend(data_of(function >> 2, *command, data, records));
    let sum = answer.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    answer.push(sum.wrapping_neg());
    let mut out = Vec::new();
    for byte in answer {
        match byte {
            END | COMMAND | ESCAPE => out.extend([ESCAPE, byte | 0x10]),
            byte => out.push(byte),
        }
    }
    out.push(END);
    Some(out)
}

/// Returns the completion code and the data of a response.
fn data_of(function: u8, command: u8, data: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
    match (function, command, data) {
        // Get Device ID: manufacturer Dell. Then the global enables and the flags that the driver requests.
        (0x06, 0x01, _) => vec![0, 0x20, 0x81, 3, 5, 2, 0xbf, 0xa2, 2, 0, 0, 1],
        (0x06, 0x2f | 0x31, _) => vec![0, 0],
        (0x06, 0x2e | 0x30, _) => vec![0],
        (0x0a, 0x22, _) => vec![0, 7, 0],
        (0x0a, 0x23, [7, 0, id, 0, from, count]) => {
            let Some(record) = records.get(usize::from(*id)) else { return vec![0xcb] };
            // Like many BMCs, it returns at most 8 bytes at once.
            if *count > 8 {
                return vec![0xca];
            }
            let last = usize::from(*id) + 1 == records.len();
            let next = if last { [0xff, 0xff] } else { [id + 1, 0] };
            let bytes = record.iter().skip(usize::from(*from)).take(usize::from(*count));
            [0].into_iter().chain(next).chain(bytes.copied()).collect()
        }
        (0x04, 0x2d, [0x17]) => vec![0, 123, 0xc0, 0],
        (0x04, 0x2d, [0x01]) => vec![0, 45, 0xc0, 0],
        // Sensor of a missing processor.
        (0x04, 0x2d, [0x02]) => vec![0, 0, 0xe0, 0],
        (0x2c, 0x02, [0xdc, 1, 0, 0]) => {
            vec![0, 0xdc, 245, 0, 2, 0, 0xd4, 1, 184, 0, 0, 0, 0, 0, 0xe8, 3, 0, 0, 0x40]
        }
        (0x30, 0xb3, [0x0a, 0]) => vec![0, 247, 0, 11, 0, 0, 0, 0],
        (0x30, 0x9c, [0x07, 0x01]) => {
            vec![0, 1, 2, 3, 4, 0x15, 0xcd, 0x5b, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        _ => vec![0xc1],
    }
}
