//! `jobmeter compare` with each kind of side: recorded answers of servers, and a file of Colmet's collector.

use crate::serve::{HEALTH, serve, serve_with};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// The first second of the samples.
const START: i64 = 1_764_369_000;
const FILE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/colmet/collector_0610.1764369000.hdf5");

fn compare(left: &str, right: &str, more: &[&str]) -> Output {
    let (from, to) = (START.to_string(), (START + 20).to_string());
    let window: &[&str] = if more.contains(&"--window") { &[] } else { &["--window", "10s"] };
    let words = [&["compare", left, right, "--from", &from, "--to", &to], window].concat();
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    command.args(words).args(more).output().unwrap()
}

/// The exit code and the JSON.
fn result(left: &str, right: &str, more: &[&str]) -> (i32, Value) {
    let output = compare(left, right, &[more, &["--json"]].concat());
    let json = serde_json::from_slice(&output.stdout);
    assert!(json.is_ok(), "{left} {right}: {output:?}");
    (output.status.code().unwrap(), json.unwrap())
}

fn error(left: &str, right: &str, more: &[&str]) -> String {
    let output = compare(left, right, more);
    assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// `DIFFERENCE DEVICE METRIC KNOWN` of each difference.
fn differences(json: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").split(':').next().unwrap().to_owned();
    let line = |one: &Value| {
        ["difference", "device", "metric", "known"].map(|field| text(&one[field])).join(" ")
    };
    json["differences"].as_array().unwrap().iter().map(line).collect()
}

/// Rows of a device: what is measured at each second of the samples.
fn rows(device: &str, job: Option<i64>, metric: &str, value: impl Fn(i64) -> f64) -> Vec<Value> {
    let labels = job.map_or(json!({}), |job| json!({"_job_id": job.to_string()}));
    let row = |second: i64| {
        let at = format!("2025-11-28T22:30:{second:02}+00:00");
        json!({"timestamp": at, "device_id": device, "metric_id": metric, "value": value(second), "labels": labels})
    };
    (0..=20).step_by(2).map(row).collect()
}

/// A server that answers each request with these rows.
fn server(rows: Vec<Value>) -> String {
    let body = Value::from(rows).to_string();
    serve_with(move |request| match request.line.contains("/rest/metrics?") {
        true => ("200 OK", body.clone()),
        false => ("404 Not Found", String::new()),
    })
}

/// A counter of 3/s, and a gauge.
fn samples(metrics: [&str; 2], changed: f64) -> Vec<Value> {
    let counter = rows("n1", None, metrics[0], |at| 100.0 + 3.0 * at as f64);
    let gauge =
        rows("n1", None, metrics[1], |at| if at == 12 { 4096.0 * changed } else { 40_960.0 });
    [counter, gauge].concat()
}

const OWN: [&str; 2] = ["cpu_user_seconds_total", "memory_free_bytes"];
const OF_COLMET: [&str; 2] =
    ["colmet_procstats_stat_cpu_user_seconds_total", "colmet_procstats_meminfo_memfree_bytes"];

#[test]
fn two_servers_are_compared() {
    let left = server(samples(OWN, 10.0));
    let (code, json) = result(&left, &server(samples(OWN, 10.0)), &[]);
    assert_eq!((code, &json["series_equal"], &json["differs"]), (0, &2.into(), &false.into()));
    assert_eq!(json["metrics_left_out"], json!({"left": [], "right": []}));
    // One value is changed, in the second window.
    let changed = server(samples(OWN, 20.0));
    let (code, json) = result(&left, &changed, &[]);
    assert_eq!((code, differences(&json)), (1, vec!["beyond n1 memory_free_bytes -".to_owned()]));
    let first = &json["differences"][0];
    assert_eq!((&first["windows"], &first["windows_right_larger"]), (&2.into(), &1.into()));
    assert_eq!(first["worst"]["time"], "2025-11-28T22:30:10Z");
    let output = compare(&left, &changed, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("1 series equal, 1 beyond tolerance, 0 only left"), "{text}");
    // Selection, tolerance and floor accept it.
    for more in [["--tolerance", "20%"], ["--floor", "9000"], ["--metric", OWN[0]]] {
        assert_eq!(result(&left, &changed, &more).0, 0, "{more:?}");
    }
    let two = [samples(OWN, 10.0), rows("n2", None, OWN[1], |_| 1.0)].concat();
    let (code, json) = result(&left, &server(two), &[]);
    assert_eq!((code, differences(&json)), (1, vec!["only_right n2 memory_free_bytes -".into()]));
}

#[test]
fn a_servers_values_of_colmet_are_compared_with_its_own() {
    let others = rows("n1", None, "load_1m", |_| 1.0);
    let unknown = rows("n1", None, "nvme_temperature_celsius", |_| 1.0);
    let own = [samples(OWN, 10.0), unknown].concat();
    let of = |changed| {
        let both = [own.clone(), samples(OF_COLMET, changed)].concat();
        let url = server(both);
        (format!("colmet+{url}"), url)
    };
    let (left, right) = of(10.0);
    let (code, json) = result(&left, &right, &[]);
    assert_eq!((code, &json["series_equal"]), (0, &2.into()), "{json}");
    let (left, right) = of(20.0);
    let (code, json) = result(&left, &right, &[]);
    assert_eq!((code, differences(&json)), (1, vec!["beyond n1 memory_free_bytes -".into()]));
    // What Colmet could have sent and did not is a difference.
    let more = server([samples(OWN, 20.0), others].concat());
    let (code, json) = result(&left, &more, &[]);
    assert_eq!((code, differences(&json)), (1, vec!["only_right n1 load_1m -".into()]));
}

#[test]
fn a_file_of_colmet_is_compared() {
    let extract = |column: &str| -> f64 {
        #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
        let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
        let words = ["extract", "--csv", FILE, "0", "1764369000", "1764369020", column];
        let text = String::from_utf8(command.args(words).output().unwrap().stdout).unwrap();
        let mut cells = text.lines().nth(1).unwrap().split(',');
        cells.next().unwrap().parse().unwrap()
    };
    let bytes = extract("meminfo_memtotal") * 1024.0;
    // The file has one record of the node, in the second window.
    let own = |bytes| {
        let all = rows("node-2", None, "memory_total_bytes", |_| bytes);
        server(all.into_iter().skip(5).collect())
    };
    let (code, json) = result(FILE, &own(bytes), &[]);
    let found = differences(&json);
    assert_eq!((code, &json["series_equal"]), (1, &1.into()), "{json}");
    assert!(
        found.len() > 30 && found.iter().all(|one| one.starts_with("only_left node-")),
        "{found:?}"
    );
    let select = ["--metric", "memory_total_bytes", "--device", "node-2.cluster"];
    let (code, json) = result(FILE, &own(bytes), &select);
    assert_eq!((code, &json["series_equal"]), (0, &1.into()), "{json}");
    let (code, json) = result(&own(bytes * 1.1), FILE, &select);
    assert_eq!(
        (code, differences(&json)),
        (1, vec!["beyond node-2 memory_total_bytes -".to_owned()])
    );
    assert_eq!(result(FILE, FILE, &[]).0, 0);
    let message = error("/nonexistent/colmet", FILE, &[]);
    assert!(message.contains("/nonexistent") && message.contains("http://HOST:PORT"), "{message}");
    let message = error(FILE, FILE, &["--device", "other"]);
    assert!(message.contains("neither side has a sample"), "{message}");
    let message = error(FILE, FILE, &["--left-auth", "/dev/null"]);
    assert!(message.contains("files need no secret"), "{message}");
}

/// Elasticsearch with documents of procstats in two pages; the second request of a list has the rest.
fn elasticsearch(memory: i64) -> String {
    serve_with(move |request| {
        let document = |second: i64, memory: i64| {
            json!({"_index": "colmet_procstats_default", "_source": {
                "hostname": "n1.cluster", "job_id": 0, "timestamp": START + second, "involved_jobs": [7],
                "meminfo_memfree": memory, "stat_cpu_user": 10_000 + 300 * second, "loadavg_1min": -1}})
        };
        let page = |seconds: &[i64], memory| {
            let hits: Vec<Value> = seconds.iter().map(|at| document(*at, memory)).collect();
            json!({"_scroll_id": "s1", "hits": {"hits": hits}}).to_string()
        };
        let line = &request.line;
        let body = if line.contains("/colmet_procstats_default/_search?") {
            page(&[0, 5, 10], 40)
        } else if line.contains("/_search/scroll") && is_first() {
            page(&[15, 20], memory)
        } else {
            page(&[], 0)
        };
        ("200 OK", body)
    })
}

/// Whether it is the first call of this thread: each server has one.
fn is_first() -> bool {
    thread_local!(static CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    CALLS.with(|calls| calls.replace(calls.get() + 1) % 2 == 0)
}

#[test]
fn elasticsearch_is_compared() {
    let url = server(samples(OWN, 10.0));
    let (code, json) = result(&url, &format!("elasticsearch+{}", elasticsearch(40)), &[]);
    assert_eq!((code, &json["series_equal"]), (0, &2.into()), "{json}");
    let (code, json) = result(&url, &format!("elasticsearch+{}", elasticsearch(60)), &[]);
    assert_eq!((code, differences(&json)), (1, vec!["beyond n1 memory_free_bytes -".into()]));
    let refused = serve_with(|_| ("401 Unauthorized", "{\"error\":\"\u{1b}[2J no\"}".to_owned()));
    let message = error(&url, &format!("elasticsearch+{refused}"), &[]);
    assert!(
        message.contains("responds 401") && message.contains("check --right-auth"),
        "{message}"
    );
    assert!(!message.contains('\u{1b}'), "{message}");
}

/// Graphite with these targets, each a constant or a counter.
fn graphite(targets: &'static [(&'static str, f64, f64)]) -> String {
    serve_with(move |request| {
        if !request.line.starts_with("GET /render?format=json&from=") {
            return ("404 Not Found", String::new());
        }
        let of = |(target, first, rate): &(&str, f64, f64)| {
            let mut points: Vec<Value> = (0..=20)
                .step_by(2)
                .map(|at| json!([first + rate * at as f64, START + at]))
                .collect();
            points.push(json!([null, START + 22]));
            json!({"target": target, "tags": {}, "datapoints": points})
        };
        ("200 OK", Value::from(targets.iter().map(of).collect::<Vec<_>>()).to_string())
    })
}

#[test]
fn graphite_is_compared_in_both_trees() {
    let url = server(samples(OWN, 10.0));
    let ours = graphite(&[
        ("site.n1.cpu_user_seconds_total", 100.0, 3.0),
        ("site.n1.memory_free_bytes", 40_960.0, 0.0),
    ]);
    let (code, json) = result(&url, &format!("graphite+{ours}#site"), &[]);
    assert_eq!((code, &json["series_equal"]), (0, &2.into()), "{json}");
    let theirs = graphite(&[
        ("n1.CPUTimes.user", 100.0, 3.3),
        ("n1.VirtualMemory.free", 40_960.0, 0.0),
        ("n1.VirtualMemory.percent", 1.0, 0.0),
    ]);
    let (code, json) = result(&url, &format!("fructosa+{theirs}"), &[]);
    assert_eq!((code, differences(&json)), (1, vec!["beyond n1 cpu_user_seconds_total -".into()]));
    assert_eq!(json["series_equal"], 1, "{json}");
    let message = error(&url, &format!("graphite+{}", serve(&[("/render", "{}")])), &[]);
    assert!(message.contains("no list of Graphite's render API"), "{message}");
}

/// Kwollect, which accepts one user.
fn kwollect(changed: f64) -> String {
    let body = Value::from(samples(OWN, changed)).to_string();
    serve_with(move |request| {
        match request.line.contains("GET /rpc/get_metrics?devices=n1&start_time=1764368980.000000&")
        {
            true => ("200 OK", body.clone()),
            false => ("400 Bad Request", r#"{"message":"no"}"#.to_owned()),
        }
    })
}

#[test]
fn kwollect_is_compared() {
    // It has no series of jobs.
    let job = rows("n1", Some(7), "process_rss_bytes", |_| 5.0);
    let url = server([samples(OWN, 10.0), job].concat());
    let select = ["--device", "n1"];
    let (code, json) = result(&url, &format!("kwollect+{}", kwollect(10.0)), &select);
    assert_eq!((code, &json["series_equal"]), (0, &2.into()), "{json}");
    assert_eq!(json["metrics_left_out"]["left"], json!(["process_rss_bytes"]));
    let (code, json) = result(&format!("kwollect+{}", kwollect(20.0)), &url, &select);
    assert_eq!((code, differences(&json)), (1, vec!["beyond n1 memory_free_bytes -".into()]));
    let message = error(&url, &format!("kwollect+{}", kwollect(10.0)), &[]);
    assert!(message.contains("add --device or --job"), "{message}");
}

#[test]
fn colmets_known_differences_are_no_failure() {
    let of = |metric: &str, rate: f64| rows("n1", Some(7), metric, |at| rate * at as f64);
    let (rss, time) = ("process_read_char_bytes_total", "taskstats_cpu_user_seconds_total");
    let own = server([of(rss, 5.0), of(time, 1.0)].concat());
    let [theirs_rss, theirs_time] =
        ["colmet_jobproc_rchar_bytes", "colmet_taskstats_ac_utime_seconds_total"];
    let colmet = |time: f64| {
        let url = server([of(theirs_rss, 20.0), of(theirs_time, time)].concat());
        format!("colmet+{url}")
    };
    let (code, json) = result(&colmet(0.5), &own, &[]);
    let known = [
        "beyond n1 process_read_char_bytes_total threads",
        "beyond n1 taskstats_cpu_user_seconds_total short tasks",
    ];
    assert_eq!((code, differences(&json)), (0, known.map(str::to_owned).to_vec()));
    let (code, json) = result(&colmet(2.0), &own, &[]);
    assert_eq!(
        (code, &*differences(&json)[1]),
        (1, "beyond n1 taskstats_cpu_user_seconds_total -")
    );
}

#[test]
fn wrong_words_are_explained() {
    let url = serve(&[("/api/v1/health", HEALTH)]);
    for (left, more, part) in [
        ("carbon+http://x", &[][..], "`carbon` is no kind of server"),
        ("http://u:p@x", &[], "--left-auth FILE"),
        (&*url, &["--window", "0s"], "--window 0s"),
        (&url, &["--window", "x"], "--window x: invalid duration"),
        (&url, &["--tolerance", "200%"], "expected 0% to 100%"),
        (&url, &["--job", "7,8"], "write one job"),
        (&url, &["--device", "a/b"], "--device a/b"),
        (&url, &["--until", "2025-01-01"], "cannot be used multiple times"),
        (&url, &["--left-auth", "/nonexistent"], "/nonexistent"),
        // The server answers 404.
        (&url, &[], "responds 404"),
    ] {
        let message = error(left, FILE, more);
        assert!(message.contains(part), "{left} {more:?}: {message}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, path) = (dir.path().join("secret"), dir.path().join("secret").display().to_string());
    let right = format!("graphite+{url}");
    for (text, mode, part) in [("no colon", 0o600, "user:password"), ("a:b", 0o644, "everyone")] {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let message = error(FILE, &right, &["--right-auth", &path]);
        assert!(message.contains(part), "{message}");
    }
    let short =
        ["compare", FILE, FILE, "--from", "2025-01-01", "--to", "2025-12-01", "--window", "1s"];
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let output = Command::new(env!("CARGO_BIN_EXE_jobmeter")).args(short).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("more than 100000 windows"), "{message}");
}
