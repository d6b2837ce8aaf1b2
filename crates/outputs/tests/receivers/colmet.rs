//! The output `colmet` beside Colmet's own collector 0.6.10, which writes its HDF5 file. PyTables reads it.

use crate::kit::Site;
use colmet::backends::{BACKENDS, Backend, ColumnType};
use colmet::frame::Records;
use colmet::names;
use colmet::record::{Record, Value};
use conformance::{Spec, T0, spec};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zmtp::{Event, Limits, Pull};

/// The bound of every wait: long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const HOSTS: [&str; 2] = ["n1", "n2"];

fn python(script: &str) -> Command {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(own.join("../../target/python/bin/python"));
    python.args(["-u", "-c", script]);
    python
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Colmet's collector. It prints each record that it has.
struct Collector {
    program: Child,
    printed: Arc<AtomicUsize>,
    reader: JoinHandle<()>,
}

impl Collector {
    fn start(address: SocketAddr, file: &Path) -> Self {
        let mut python = python("from colmet.collector.main import main; main()");
        python.args(["-s", "0.2", "--enable-stdout-backend", "--buffer-size", "10000"]);
        python.arg("--zeromq-bind-uri").arg(format!("tcp://{address}"));
        python.arg("--hdf5-filepath").arg(file);
        let program = python.stdout(Stdio::piped()).spawn();
        let mut program = program.expect("target/python is missing; `make test` installs it");
        let printed = Arc::<AtomicUsize>::default();
        let (output, counted) = (program.stdout.take().unwrap(), Arc::clone(&printed));
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for _ in lines.filter(|line| line.contains(" -> Host(")) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { program, printed, reader }
    }

    /// Ends once it has printed this many records.
    fn stop_after(mut self, records: usize) {
        wait_until("the collector (`colmet` of tests/requirements.txt) prints each record", || {
            assert_eq!(self.program.try_wait().unwrap(), None, "the collector ended");
            self.printed.load(Ordering::Relaxed) >= records
        });
        let pid = self.program.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        wait_until("the collector ends", || self.program.try_wait().unwrap().is_some());
        assert!(self.program.wait().unwrap().success());
        self.reader.join().unwrap();
        assert_eq!(self.printed.load(Ordering::Relaxed), records);
    }
}

/// What another output of the same samples sends: the records that the collector's file must have.
struct Copy {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    records: JoinHandle<Vec<Record>>,
}

impl Copy {
    fn start() -> Self {
        let any = Box::new(|_| true);
        let pull = Pull::bind(&["127.0.0.1:0".parse().unwrap()], Limits::default(), any);
        let mut pull = pull.unwrap();
        let address = pull.addresses().unwrap()[0];
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let records = std::thread::spawn(move || {
            let mut records = Vec::new();
            loop {
                match pull.receive(Duration::from_millis(20)).unwrap() {
                    Some(Event::Message { bytes, .. }) => {
                        records.extend(Records::of(&bytes).map(Result::unwrap));
                    }
                    Some(ended) => panic!("{ended:?}"),
                    None if over.load(Ordering::Relaxed) => return records,
                    None => {}
                }
            }
        });
        Self { address, is_over, records }
    }

    fn records(self) -> Vec<Record> {
        self.is_over.store(true, Ordering::Relaxed);
        self.records.join().unwrap()
    }
}

/// The backends with tables in the collector's file. It has none for nvidia: such a record ends the collector.
fn backends() -> impl Iterator<Item = &'static Backend> {
    let is_stored = |backend: &&Backend| backend.is_of_python() && backend.word != "nvidia";
    BACKENDS.into_iter().filter(is_stored)
}

/// Every column of every backend of a host at a second: data that arrived through Colmet. Some have no value.
fn samples(host: &'static str, second: i64) -> Vec<(Spec, i64, f64)> {
    let mut samples = Vec::new();
    for (backend, place) in backends().zip(1u32..) {
        let is_of_job = colmet::equivalent::Scope::Job == backend.scope;
        for (column, number) in backend.columns.iter().zip(1u32..) {
            let Some(own) = names::own(backend, column) else { continue };
            if (place + number) % 7 == 0 {
                continue;
            }
            let theirs = f64::from(place * 1000 + number) + 3.0 * second as f64 * f64::from(number);
            let metric: &'static str = Box::leak(own.metric.name.into_owned().into());
            let start = Some(T0 - 1).filter(|_| own.metric.kind == model::Kind::Counter);
            let job = is_of_job.then_some(i64::from(7 + place % 2));
            let spec = Spec { job, start, ..spec(host, metric) };
            samples.push((spec, second, own.scale.to_ours(theirs)));
        }
    }
    samples
}

/// The rows of all tables by path, read with PyTables.
const ROWS: &str = r#"
import json, sys, tables
with tables.open_file(sys.argv[1]) as file:
    plain = lambda it: it.decode() if isinstance(it, bytes) else getattr(it, "item", lambda: it)()
    rows = lambda table: [{name: plain(row[name]) for name in table.colnames} for row in table]
    print(json.dumps({table._v_pathname: rows(table) for table in file.walk_nodes("/", "Table")}))
"#;

fn rows(file: &Path) -> BTreeMap<String, Vec<Map<String, Json>>> {
    let output = python(ROWS).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A value as the collector's tables have it.
fn as_stored(kind: ColumnType, value: Option<&Value>) -> Json {
    match value.cloned().unwrap_or_else(|| Value::missing(kind)) {
        Value::Unsigned(number) => number.into(),
        Value::Signed(number) => number.into(),
        Value::Float(number) => f64::from(number).into(),
        Value::Text(text) => (*text).into(),
    }
}

/// The row of this record: the tables lack some columns, and that of temperature has neither host nor time.
fn is_row_of(row: &Map<String, Json>, record: &Record) -> bool {
    let has = |name: &str, value: Json| row.get(name).is_none_or(|found| *found == value);
    has("hostname", (*record.host).into())
        && has("timestamp", (record.at.0 / 1_000_000).into())
        && has("job_id", record.job.into())
        && record.columns().all(|(column, value)| {
            let is_text = column.kind == ColumnType::Text;
            is_text || has(column.row.theirs, as_stored(column.kind, value))
        })
}

#[test]
fn every_record_is_in_the_collectors_file_also_after_it_was_stopped() {
    let mut site = Site::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (file, copy) = (site.path("collector.hdf5"), Copy::start());
    let output = |name: &str, address: SocketAddr| {
        format!(
            "[outputs.{name}]\nkind = \"colmet\"\naddress = \"{address}\"\ncluster = \"oar\"\nfrom = \"all\"\ndomain = \"site\"\n"
        )
    };
    let store = |site: &mut Site, seconds: std::ops::Range<i64>| {
        for second in seconds {
            site.clock.store(second, Ordering::Relaxed);
            let samples: Vec<_> = HOSTS.iter().flat_map(|host| samples(host, second)).collect();
            site.store(&samples);
        }
    };
    let each = HOSTS.len() * backends().count();

    // The last instant is complete when the next one begins.
    let collector = Collector::start(address, &file);
    site.apply(&[output("colmet", address), output("copy", copy.address)].concat());
    store(&mut site, 0..6);
    collector.stop_after(5 * each);
    // No collector is there; then it continues its file.
    store(&mut site, 6..10);
    assert!(site.waits("colmet").contains(&address.to_string()));
    let collector = Collector::start(address, &file);
    site.settle();
    store(&mut site, 10..13);
    site.settle();
    collector.stop_after(7 * each);

    let records = copy.records();
    assert_eq!(records.len(), 12 * each);
    let (mut rows, mut absent) = (rows(&file), BTreeSet::new());
    for record in &records {
        let path = format!("/job_{}/{}", record.job, record.backend.id);
        let rows = rows.get_mut(&path).expect(&path);
        let columns = record.backend.columns.iter().map(|column| column.row.theirs);
        absent.extend(columns.filter(|name| !rows[0].contains_key(*name)));
        let found = rows.iter().position(|row| is_row_of(row, record));
        rows.swap_remove(
            found.unwrap_or_else(|| panic!("{path} lacks {record:?}\n{:?}", rows.first())),
        );
    }
    rows.retain(|_, rows| !rows.is_empty());
    assert!(rows.is_empty(), "{rows:?}");
    // Columns that the collector leaves out.
    let expected = ["RssShmem", "VmRSS", "VmSize", "counter_24", "involved_jobs"];
    assert!(absent.into_iter().eq(expected));
}
