//! Tests of agents.

use super::*;
use crate::descriptions::entries_of;
use crate::polling::poller::run;
use async_snmp::message::CommunityMessage;
use async_snmp::{Pdu, PduBody, PduType, StandardPduType, Value, VarBind};
use model::Timestamp;
use std::collections::BTreeMap;
use tokio::net::UdpSocket;

/// The objects of an agent: the texts of two rows, and their numbers.
fn objects() -> BTreeMap<Vec<u32>, Value> {
    let text = |text: &'static str| Value::OctetString(Bytes::from_static(text.as_bytes()));
    [
        (vec![1, 3, 6, 1, 0], Value::Integer(7)),
        (vec![1, 3, 6, 8, 1], Value::Integer(10)),
        (vec![1, 3, 6, 8, 2], Value::Integer(20)),
        (vec![1, 3, 6, 9, 1], text("eth")),
        (vec![1, 3, 6, 9, 2], text("lo")),
    ]
    .into()
}

fn response(packet: &[u8], silent: &[PduType]) -> Option<Vec<u8>> {
    let message = Message::decode(Bytes::copy_from_slice(packet), DecodeConfig::default());
    let pdu = message.ok()?.value.into_pdu()?;
    let (kind, objects) = (pdu.pdu_type(), objects());
    if silent.contains(&kind) {
        return None;
    }
    let (number, _, requested) = pdu.into_raw_parts();
    let found = |one: VarBind| {
        let wanted = one.oid.arcs().to_vec();
        let found = match kind {
            PduType::GetRequest => objects.get_key_value(&wanted),
            _ => objects.range(wanted..).find(|(oid, _)| **oid != one.oid.arcs()),
        };
        match found {
            Some((oid, value)) => VarBind::new(Oid::from_slice(oid), value.clone()),
            None => VarBind::new(one.oid, Value::EndOfMibView),
        }
    };
    let body =
        PduBody::Standard { pdu_type: StandardPduType::Response, error_status: 0, error_index: 0 };
    let found = requested.into_iter().map(found).collect();
    let message = CommunityMessage::v2c("public", Pdu::from_raw_parts(number, body, found));
    Some(message.unwrap().encode().unwrap().to_vec())
}

/// The values of exchanges with an agent that is silent about some requests.
async fn values(silent: &'static [PduType]) -> Vec<Vec<String>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let device = tokio::spawn(async move {
        let mut packet = [0; 2048];
        loop {
            let (bytes, client) = socket.recv_from(&mut packet).await.unwrap();
            if let Some(response) = response(&packet[..bytes], silent) {
                socket.send_to(&response, client).await.unwrap();
            }
        }
    });
    let entry = |(name, oid)| {
        let url = format!("snmp://127.0.0.1:{port}/{oid}");
        format!("- {{name: {name}, device_id: sw, url: '{url}', timeout: 400}}\n")
    };
    let row = "1.3.6.8.{{ 1.3.6.9 == lo }}";
    let all = entries_of(&[("lo", row), ("plain", "1.3.6.1.0")].map(entry).concat());
    let due: Vec<&Description> = all.iter().collect();
    let mut snmp = Snmp::new(&all[0].target, &Arc::default());
    let mut values = Vec::new();
    for _ in 0..3 {
        let mut exchange = Exchange::new(Timestamp(0), due.len());
        run(&mut snmp, &due, &mut exchange).await;
        let read = exchange.readings.iter().map(|one| format!("{} {}", one.metric, one.value));
        let mut read: Vec<String> = read.collect();
        read.sort_unstable();
        values.push(read);
    }
    device.abort();
    values
}

#[tokio::test]
async fn a_walk_that_is_not_answered_costs_no_other_value() {
    let (plain, both) = (&["plain 7".to_owned()][..], &["lo 20", "plain 7"].map(str::to_owned)[..]);
    assert_eq!(values(&[]).await[0], both);
    let without_bulk = values(&[PduType::GetBulkRequest]).await;
    assert_eq!(without_bulk, [plain, both, both], "the second walk is by GETNEXT");
    let silent = values(&[PduType::GetBulkRequest, PduType::GetNextRequest]).await;
    assert_eq!(silent, [plain; 3]);
}
