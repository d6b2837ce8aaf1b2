//! Tests of Modbus.

use super::*;
use crate::descriptions::{Directory, read_text};
use crate::polling::poller::run;
use crate::polling::reading::Reading;
use model::Timestamp;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;

fn descriptions(paths: &[&str]) -> Vec<Description> {
    let entry = |path: &&str| format!("- {{name: a, device_id: m, url: 'modbus://m/{path}'}}\n");
    let text: String = paths.iter().map(entry).collect();
    let mut directory = Directory::default();
    read_text(&Path::new("file").into(), &text, &mut directory);
    assert_eq!(directory.findings, []);
    directory.descriptions
}

#[test]
fn neighbouring_registers_are_read_together() {
    let all = descriptions(&[
        "1/10/be_be_u16",
        "1/12/be_be_u32",
        "1/11/be_be_u16",
        "1/20/be_be_u16",
        "2/14/be_be_u16",
        "1/14/be_be_u16?table=input",
        "1/12/be_be_u16",
    ]);
    let due: Vec<&Description> = all.iter().collect();
    let found = blocks(&due);
    let found: Vec<_> =
        found.iter().map(|b| (b.unit, b.table, b.first, b.count, &*b.places)).collect();
    let (holding, input) = (RegisterTable::Holding, RegisterTable::Input);
    assert_eq!(
        found,
        [
            (1, holding, 10, 4, &[0, 2, 1, 6][..]),
            (1, holding, 20, 1, &[3]),
            (1, input, 14, 1, &[5]),
            (2, holding, 14, 1, &[4]),
        ]
    );
    let many: Vec<String> = (0..100).map(|n| format!("1/{}/be_be_f64", n * 4)).collect();
    let many: Vec<&str> = many.iter().map(|path| &**path).collect();
    let all = descriptions(&many);
    let found = blocks(&all.iter().collect::<Vec<_>>());
    assert!(found.iter().all(|block| block.count <= REGISTERS_MAX) && found.len() == 4);
}

#[test]
fn orders_of_bytes_and_words() {
    let of = |format: &str, registers: &[u16]| {
        let all = descriptions(&[&format!("1/1/{format}")]);
        let due: Vec<&Description> = all.iter().collect();
        number(request(0, &due).unwrap().format, registers).unwrap()
    };
    assert_eq!(of("be_be_i16", &[0xfffe]), -2.0);
    assert_eq!(of("le_be_u16", &[0x0100]), 1.0);
    assert_eq!(of("be_be_u32", &[1, 2]), 65_538.0);
    assert_eq!(of("be_le_u32", &[2, 1]), 65_538.0);
    let [a, b, c, d] = 42.5_f32.to_be_bytes();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    assert_eq!(of("be_be_f32", &[high, low]), 42.5);
    assert_eq!(of("le_le_f32", &[low.swap_bytes(), high.swap_bytes()]), 42.5);
    assert_eq!(of("be_be_i64", &[0xffff, 0xffff, 0xffff, 0xfff0]), -16.0);
    assert_eq!(of("be_le_f64", &[0, 0, 0, 0x4000]), 2.0);
}

/// The failures of an exchange with a device that returns these bytes after the number of the request.
async fn failures(response: &'static [u8]) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let device = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 12];
            stream.read_exact(&mut request).await.unwrap();
            assert_eq!(request[2..], [0, 0, 0, 6, 9, 4, 0, 2, 0, 1]);
            stream.write_all(&[&request[..2], response].concat()).await.unwrap();
        }
    });
    let text = format!(
        "{{name: a, device_id: m, url: 'modbus://127.0.0.1:{port}/9/2/be_be_u16?table=input'}}"
    );
    let all = crate::descriptions::entries_of(&text);
    let (due, mut exchange) = (all.iter().collect::<Vec<_>>(), Exchange::new(Timestamp(0), 1));
    Modbus::new(&all[0].target).exchange(&due, &mut exchange).await;
    device.abort();
    let values = exchange.readings.iter().map(|one| one.value.to_string());
    values.chain(exchange.failures.iter().map(|(_, one)| one.to_string())).collect()
}

/// A gateway whose unit 2 closes the connection, and whose unit 3 sends its response twice.
async fn gateway(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 12];
        while stream.read_exact(&mut request).await.is_ok() && request[6] != 2 {
            let response = [&request[..2], &[0, 0, 0, 5, request[6], 3, 2, 0, request[6]]];
            let times = if request[6] == 3 { 2 } else { 1 };
            stream.write_all(&response.concat().repeat(times)).await.ok();
        }
    }
}

#[tokio::test]
async fn a_unit_that_fails_costs_no_other_unit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let device = tokio::spawn(gateway(listener));
    let entry = |unit: u8| {
        format!(
            "- {{name: u{unit}, device_id: m, url: 'modbus://127.0.0.1:{port}/{unit}/0/be_be_u16'}}\n"
        )
    };
    let all = crate::descriptions::entries_of(&(1..=4).map(entry).collect::<String>());
    let due: Vec<&Description> = all.iter().collect();
    let mut modbus = Modbus::new(&all[0].target);
    for order in [[1.0, 3.0, 4.0]; 3] {
        let mut exchange = Exchange::new(Timestamp(0), 4);
        modbus.exchange(&due, &mut exchange).await;
        let values: Vec<f64> = exchange.readings.iter().map(|one| one.value).collect();
        assert_eq!(values, order);
        let [(1, failure)] = &exchange.failures[..] else { panic!("{exchange:?}") };
        assert_eq!(failure.to_string(), "the device closed the connection");
    }
    device.abort();
}

/// Descriptions of units of a gateway that needs 100 ms for each request, and which units 1 and 2 do not answer.
async fn slow_gateway(units: std::ops::RangeInclusive<u8>) -> Vec<Description> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 12];
            while stream.read_exact(&mut request).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let response = match request[6] {
                    unit @ 1..=2 => vec![0, 0, 0, 3, unit, 0x83, 9 + unit],
                    unit => vec![0, 0, 0, 5, unit, 3, 2, 0, unit],
                };
                stream.write_all(&[&request[..2], &response].concat()).await.ok();
            }
        }
    });
    let entry = |unit: u8| {
        let url = format!("modbus://127.0.0.1:{port}/{unit}/0/be_be_u16");
        format!("- {{name: u{unit}, device_id: m, url: '{url}', timeout: 250}}\n")
    };
    crate::descriptions::entries_of(&units.map(entry).collect::<String>())
}

#[tokio::test]
async fn units_that_do_not_answer_a_gateway_are_behind_those_that_do() {
    let all = slow_gateway(1..=3).await;
    let due: Vec<&Description> = all.iter().collect();
    let mut modbus = Modbus::new(&all[0].target);
    let mut values = Vec::new();
    for _ in 0..4 {
        let mut exchange = Exchange::new(Timestamp(0), 3);
        run(&mut modbus, &due, &mut exchange).await;
        values.push(exchange.readings.iter().map(|one| one.value).collect::<Vec<_>>());
    }
    assert_eq!(values, [vec![], vec![3.0], vec![3.0], vec![3.0]]);
}

#[tokio::test]
async fn samples_of_a_request_that_leaves_late_have_its_instant() {
    let all = slow_gateway(3..=4).await;
    let due: Vec<&Description> = all.iter().collect();
    let mut exchange = Exchange::new(Timestamp::from_seconds(7), 2);
    exchange.after_start = Duration::from_millis(20);
    exchange.on_time = vec![Duration::from_millis(90); 2];
    run(&mut Modbus::new(&all[0].target), &due, &mut exchange).await;
    let after = |one: &Reading| one.at.since(Timestamp::from_seconds(7)) / 1000;
    let found: Vec<i64> = exchange.readings.iter().map(after).collect();
    assert!(found[0] == 0 && (120..250).contains(&found[1]), "{found:?}");
    assert_eq!(exchange.last_instant(), exchange.readings[1].at);
    // The second one is on time for its longer period.
    let mut exchange = Exchange::new(Timestamp(0), 2);
    exchange.on_time = [50, 1000].map(Duration::from_millis).into();
    run(&mut Modbus::new(&all[0].target), &due, &mut exchange).await;
    assert_eq!(exchange.readings.iter().map(|one| one.at.0).collect::<Vec<_>>(), [0, 0]);
}

#[tokio::test]
async fn a_response_is_that_of_the_request() {
    assert_eq!(failures(&[0, 0, 0, 5, 9, 4, 2, 1, 2]).await, ["258"]);
    let exception = "the device reports the exception illegal data address";
    assert_eq!(failures(&[0, 0, 0, 3, 9, 0x84, 2]).await, [exception]);
    assert_eq!(failures(&[0, 0, 0, 3, 9, 0x84, 99]).await, ["the device reports exception 99"]);
    let few = "the response has 0 bytes for 1 requested registers";
    assert_eq!(failures(&[0, 0, 0, 3, 9, 4, 0]).await, [few]);
    let many = "the response has 4 bytes for 1 requested registers";
    assert_eq!(failures(&[0, 0, 0, 7, 9, 4, 4, 0, 1, 0, 2]).await, [many]);
    let foreign = "the response does not belong to the request";
    for other in [[0, 1, 0, 5, 9, 4, 2], [0, 0, 0, 5, 8, 4, 2], [0, 0, 0, 5, 9, 3, 2]] {
        let other: &'static [u8] = Box::leak(Box::new(other));
        assert_eq!(failures(other).await, [foreign]);
    }
    assert_eq!(failures(&[0, 0, 0, 6, 9, 4, 2, 1, 2]).await, [foreign], "another length");
    let cut = failures(&[0, 0, 0, 5, 9, 4, 2, 1]).await;
    assert_eq!(cut, ["the device closed the connection"]);
}
