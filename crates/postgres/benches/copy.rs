//! Rows per second that the store commits, beside a plain binary COPY of the same rows into the same tables.
//!
//! `cargo bench -p postgres`: starts the PostgreSQL of this machine with a database for each run. Rows of the store include what it keeps beside them:
//! series, the numbers of batches, and one transaction for all batches that wait.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench times, and may fail")]

#[path = "../../store/benches/agents/mod.rs"]
mod agents;
#[path = "../tests/database/server.rs"]
mod server;

use agents::{Agent, T0};
use bytes::Bytes;
use futures::SinkExt;
use futures::TryStreamExt;
use model::Timestamp;
use postgres::{PostgresStore, Settings};
use server::{Direct, database, rows};
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use storage::{Incoming, Outcome, Storage};
use tokio_postgres::{Client, Config, NoTls};
use wire::{Decoder, Frames};

const ROUNDS: usize = 3;
const OUT: &str =
    "COPY (SELECT timestamp, device_id, metric_id, value, labels FROM metrics) TO STDOUT BINARY";
const IN: &str = "COPY metrics (timestamp, device_id, metric_id, value, labels) FROM STDIN BINARY";

fn main() {
    for (what, agents, series, ticks, frames) in [
        ("1000 senders, batches of 500 rows", 1000, 500, 1, 4),
        ("100 senders, batches of 20 000 rows", 100, 500, 40, 1),
    ] {
        let mut agents: Vec<Agent> = (0..agents).map(|n| Agent::new(n, series)).collect();
        let mut all = Vec::new();
        for _ in 0..frames {
            all.extend(agents.iter_mut().map(|agent| agent.frame(ticks)));
        }
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (from, to) = (database(), database());
            let (stored, took) = by_the_store(&from, &all);
            ours.push(rate(stored, took));
            // The same tables and indexes, empty.
            drop(open(&to));
            plain.push(rate(stored, by_copy(&from, &to)));
        }
        let (ours, plain) = (median(ours), median(plain));
        let line = format!(
            "{what}: the store {ours:.0} rows/s, a plain COPY {plain:.0} rows/s: {:.2} of it\n",
            ours / plain
        );
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

fn rate(rows: u32, took: Duration) -> f64 {
    f64::from(rows) / took.as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    *rates.get(rates.len() / 2).unwrap()
}

fn open(database: &Config) -> PostgresStore {
    let settings = Settings { background_maintenance: false, ..Settings::default() };
    let now = Timestamp(T0 + 3600 * Timestamp::SECOND);
    PostgresStore::open(Arc::new(Direct(database.clone())), settings, Arc::new(move || now))
        .unwrap()
}

/// Appends all frames, eight requests at a time, and waits for all acknowledgements. Decoding is not counted.
fn by_the_store(database: &Config, frames: &[Vec<u8>]) -> (u32, Duration) {
    let store = open(database);
    let mut decoder = Decoder::default();
    let mut requests = Vec::new();
    for some in frames.chunks(20) {
        let incoming = some.iter().map(|bytes| {
            let frame = Frames::of(bytes).next().unwrap().unwrap();
            let decoded = decoder.decode(&frame).unwrap();
            Incoming {
                frame: bytes.clone(),
                decoded,
                received: Timestamp(T0 + 3600 * Timestamp::SECOND),
            }
        });
        requests.push(incoming.collect::<Vec<_>>());
    }
    let values = requests.iter().flatten().map(|incoming| incoming.decoded.values.len());
    let stored = u32::try_from(values.sum::<usize>()).unwrap();
    let (done, outcomes) = sync_channel::<Vec<Outcome>>(1024);
    let mut waiting = 0;
    let settle = |waiting: &mut i32| {
        let all = outcomes.recv().unwrap();
        assert!(all.iter().all(|one| matches!(one, Outcome::Stored { .. })), "{all:?}");
        *waiting -= 1;
    };
    let begun = Instant::now();
    for request in requests {
        let done = done.clone();
        store.append(request, Box::new(move |all| done.send(all).unwrap()));
        waiting += 1;
        if waiting >= 8 {
            settle(&mut waiting);
        }
    }
    while waiting > 0 {
        settle(&mut waiting);
    }
    let took = begun.elapsed();
    assert_eq!(rows(database, "SELECT count(*) FROM metrics"), [stored.to_string()]);
    (stored, took)
}

/// Copies all rows of `metrics` of one database into the other; only the second COPY is timed.
fn by_copy(from: &Config, to: &Config) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (from, to) = (client(from).await, client(to).await);
        let out = from.copy_out(OUT).await.unwrap();
        let parts: Vec<Bytes> = out.try_collect().await.unwrap();
        let begun = Instant::now();
        let copy = to.copy_in::<_, Bytes>(IN);
        let mut copy = pin!(copy.await.unwrap());
        for part in parts {
            copy.feed(part).await.unwrap();
        }
        copy.close().await.unwrap();
        begun.elapsed()
    })
}

async fn client(config: &Config) -> Client {
    let (client, io) = config.connect(NoTls).await.unwrap();
    tokio::spawn(io);
    client
}
