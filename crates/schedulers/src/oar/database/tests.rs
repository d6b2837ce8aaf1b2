//! OAR's database as a server that answers with hostile texts, and what it is asked.

use super::*;
use crate::ParametersError;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A text that would change a statement if it were pasted into one.
const HOSTILE: &str = "x'); DROP TABLE jobs; --";

/// A value of a row, with its type.
enum Cell {
    Number(i64),
    Text(&'static str),
    Is(bool),
}

use Cell::{Is, Number, Text};

/// Statements in the order in which they came, and the values that were bound to them.
#[derive(Default)]
struct StatementLog {
    statements: Vec<String>,
    bound: Vec<Vec<u8>>,
}

/// What the database has: one job, of which every text is hostile.
fn row(statement: &str) -> Option<Vec<Cell>> {
    let texts = || [Text(HOSTILE), Text(HOSTILE), Text(HOSTILE), Text(HOSTILE)];
    match statement {
        rows::COLUMNS => Some(vec![Text(HOSTILE)]),
        LIST => Some(vec![Number(7), Text("Running"), Number(100), Number(9), Is(false)]),
        TYPES => Some(vec![Number(7), Text(HOSTILE)]),
        REQUESTED => Some(vec![Number(9), Number(1), Text(HOSTILE), Text(HOSTILE), Number(1)]),
        DETAILS => {
            let mut row = vec![Number(7), Text("Running")];
            row.extend(texts());
            row.extend([0, 90, 100, 0, 9, 0, 0].map(Number));
            row.extend([Is(false), Number(9), Number(3600)]);
            Some(row)
        }
        _ => None,
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag], &length[..], body].concat()
}

/// The answer to a statement: at most one row, in the binary format.
fn answer(statement: &str) -> Vec<u8> {
    let mut out = [message(b'1', b""), message(b'2', b"")].concat();
    if let Some(row) = row(statement) {
        let count = u16::try_from(row.len()).unwrap().to_be_bytes();
        let (mut columns, mut cells) = (count.to_vec(), count.to_vec());
        for cell in row {
            let (oid, bytes): (u32, Vec<u8>) = match cell {
                Number(number) => (20, number.to_be_bytes().to_vec()),
                Text(text) => (25, text.as_bytes().to_vec()),
                Is(is) => (16, vec![u8::from(is)]),
            };
            columns.extend(
                [&b"c\0\0\0\0\0\0\0"[..], &oid.to_be_bytes(), &[0xff; 6], &[0, 1]].concat(),
            );
            cells.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
            cells.extend(bytes);
        }
        out.extend([message(b'T', &columns), message(b'D', &cells)].concat());
    } else {
        out.extend(message(b'n', b""));
    }
    [out, message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat()
}

fn part(stream: &mut TcpStream, tagged: bool) -> io::Result<(u8, Vec<u8>)> {
    let (mut tag, mut length) = ([0], [0; 4]);
    if tagged {
        stream.read_exact(&mut tag)?;
    }
    stream.read_exact(&mut length)?;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
    stream.read_exact(&mut body)?;
    Ok((tag[0], body))
}

/// Answers one client until it goes away: the simple and the extended protocol of PostgreSQL, version 3.
fn serve(stream: &mut TcpStream, log: &Mutex<StatementLog>) -> io::Result<()> {
    part(stream, false)?;
    stream.write_all(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat())?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut statement = String::new();
    loop {
        let (tag, body) = part(stream, true)?;
        match tag {
            b'Q' => {
                log.lock().unwrap().statements.push(text(body.split(|b| *b == 0).next().unwrap()));
                stream.write_all(&[message(b'C', b"SET\0"), message(b'Z', b"I")].concat())?;
            }
            b'P' => {
                statement = text(body.split(|b| *b == 0).nth(1).unwrap());
                log.lock().unwrap().statements.push(statement.clone());
            }
            b'B' => log.lock().unwrap().bound.push(body),
            b'S' => stream.write_all(&answer(&statement))?,
            _ => {}
        }
    }
}

#[test]
fn values_are_bound_and_no_part_of_a_statement_to_a_schedulers_database() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let log = Arc::new(Mutex::new(StatementLog::default()));
    let noted = Arc::clone(&log);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(&mut stream.unwrap(), &noted).ok();
        }
    });
    let parameters = format!("host=127.0.0.1 port={port} user=oar dbname=oar");
    let cluster = ClusterId::new("oar").unwrap();
    let limit = Duration::from_secs(20);
    let no_tls = || Err(ParametersError::Malformed("TLS".to_owned()));
    let address = DatabaseAddress::new(&parameters, no_tls, None, limit);
    let mut oar = OarDatabase::new(cluster, address.unwrap(), limit);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let from = Timestamp::from_seconds(50);
    let mut records_polled = Vec::new();
    for second in [200, 300] {
        let changes = oar.changes(from, Timestamp::from_seconds(second));
        records_polled.extend(runtime.block_on(changes).unwrap().records);
    }
    // The texts came, as values of a job.
    assert_eq!(
        records_polled.first().and_then(|record| record.facts.name.as_deref()),
        Some(HOSTILE)
    );
    let log = log.lock().unwrap();
    let known = [rows::COLUMNS, LIST, rows::NEWEST, rows::PAST, DETAILS, TYPES, REQUESTED];
    let resources = resources_sql(Columns::default());
    let known: BTreeSet<&str> = known.into_iter().chain([&*resources]).collect();
    let setup = |text: &&str| text.starts_with("SET default_transaction_read_only = on;");
    let statements = log.statements.iter().map(String::as_str);
    let (setups, others): (Vec<_>, Vec<_>) = statements.partition(setup);
    assert!(setups.iter().all(|text| !text.contains(HOSTILE)), "{setups:?}");
    assert_eq!(others.iter().copied().collect::<BTreeSet<_>>(), known, "statements never change");
    // The number of the job came back as a bound value, eight bytes long.
    let is_bound = |bytes: &Vec<u8>| bytes.windows(8).any(|window| window == 7_i64.to_be_bytes());
    assert!(log.bound.iter().any(is_bound));
}
