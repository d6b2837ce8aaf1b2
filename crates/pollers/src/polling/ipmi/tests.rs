//! Tests of BMCs.

use super::crypto::{Keys, keyed_hash};
use super::packets::{
    OPEN_REQUEST, OPEN_RESPONSE, RAKP_1, RAKP_2, RAKP_3, RAKP_4, open_plain, open_sealed, plain,
    sealed,
};
use super::*;
use crate::descriptions::entries_of;
use crate::polling::poller::run;
use crate::protocols::IpmiCipher;
use model::Timestamp;
use tokio::net::UdpSocket;

const CIPHER: IpmiCipher = IpmiCipher::Suite17;
/// The ID of each session at the BMC.
const SESSION: u32 = 1;

/// A BMC with one session and the user `u` with the password `p`. It is silent about one command.
#[derive(Default)]
struct Bmc {
    silent: u8,
    console: Vec<u8>,
    console_random: Vec<u8>,
    session_key: Vec<u8>,
    sent: u32,
}

impl Bmc {
    fn response(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let (own, random, guid) = (SESSION.to_le_bytes(), [7; 16], [9; 16]);
        let head = |console: &[u8]| [&[0; 4], console].concat();
        if let Some(payload) = open_plain(packet, OPEN_REQUEST) {
            self.console = payload[4..8].to_vec();
            let opened = [&head(&self.console), &own[..], &payload[8..]].concat();
            return Some(plain(OPEN_RESPONSE, &opened));
        }
        if let Some(payload) = open_plain(packet, RAKP_1) {
            self.console_random = payload[8..24].to_vec();
            let named = [payload[24], 1, b'u'];
            let (console, proof) = (&self.console[..], &self.console_random[..]);
            let parts = [console, &own, proof, &random, &guid, &named];
            let check = keyed_hash(CIPHER, b"p", &parts);
            self.session_key = keyed_hash(CIPHER, b"p", &[proof, &random, &named]);
            let second = [&head(console)[..], &random, &guid, &check].concat();
            return Some(plain(RAKP_2, &second));
        }
        if open_plain(packet, RAKP_3).is_some() {
            let parts = [&self.console_random[..], &own, &guid];
            let check = keyed_hash(CIPHER, &self.session_key, &parts);
            return Some(plain(RAKP_4, &[&head(&self.console)[..], &check[..16]].concat()));
        }
        let keys = Keys::derive(CIPHER, &self.session_key);
        let (_, message) = open_sealed(&keys, SESSION, packet)?;
        let [to, function, _, from, sequence, command, ..] = message[..] else { return None };
        let data = match command {
            command if command == self.silent => return None,
            0x02 => vec![0, 0xdc, 248, 0, 200, 0, 44, 1, 248, 0, 0, 0, 0, 0, 232, 3, 0, 0, 0x40],
            0xb3 => vec![0, 248, 0, 11, 0],
            _ => vec![0],
        };
        let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, one| sum.wrapping_sub(*one));
        let head = [from, function | 4];
        let body = [&[to, sequence, command], &data[..]].concat();
        let message = [&head[..], &[sum(&head)], &body, &[sum(&body)]].concat();
        self.sent += 1;
        let console = u32::from_le_bytes(self.console[..].try_into().unwrap());
        Some(sealed(&keys, (console, self.sent), &message, [3; 16]))
    }
}

/// The values of three exchanges with a BMC that is silent about a command, by the places of the descriptions.
async fn values(silent: u8, paths: [&str; 2]) -> Vec<Vec<String>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let device = tokio::spawn(async move {
        let mut bmc = Bmc { silent, ..Bmc::default() };
        let mut packet = [0; 2048];
        loop {
            let (bytes, client) = socket.recv_from(&mut packet).await.unwrap();
            if let Some(response) = bmc.response(&packet[..bytes]) {
                socket.send_to(&response, client).await.unwrap();
            }
        }
    });
    let entry = |path: &str| {
        let name = path.replace('/', "_");
        let url = format!("ipmisensor://u:p@127.0.0.1:{port}/{path}");
        format!("- {{name: {name}, device_id: bmc, url: '{url}', timeout: 400}}\n")
    };
    let all = entries_of(&paths.map(entry).concat());
    let due: Vec<&Description> = all.iter().collect();
    let readings = Arc::new(Semaphore::new(1));
    let mut ipmi = Ipmi::new(&all[0].target, &SdrCache::default(), readings);
    let mut values = Vec::new();
    for _ in 0..3 {
        let mut exchange = Exchange::new(Timestamp(0), due.len());
        run(&mut ipmi, &due, &mut exchange).await;
        let read = exchange.readings.iter().map(|one| format!("{} {}", one.metric, one.value));
        values.push(read.collect());
        assert!(
            exchange
                .failures
                .iter()
                .any(|(place, one)| (*place, one.cause) == (0, Cause::SourceTimeout))
        );
    }
    device.abort();
    values
}

#[tokio::test]
async fn a_command_that_is_not_answered_costs_no_other() {
    let read = ["dcmi_power 248".to_owned()];
    for (silent, path) in [(0xb3, "dell/power"), (0x20, "FAN1")] {
        let found = values(silent, [path, "dcmi/power"]).await;
        // The first exchange waits for the first answer.
        assert_eq!(found, [&[][..], &read, &read], "{path}");
    }
}
