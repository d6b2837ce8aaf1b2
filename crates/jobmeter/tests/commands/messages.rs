//! Tests messages: closed standard output, time zones, reasons, and names without a match.

use crate::exits::jobmeter_with;
use crate::serve::{HEALTH, serve, serve_with};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Rows whose second column is a text that looks like a time.
const TIMES: &str = "timestamp,name\n2026-01-06T19:05:00+05:30,2026-01-06T19:05:00+05:30\n";
const TIMES_JSON: &str =
    r#"[{"timestamp":"2026-01-06T19:05:00+05:30","name":"2026-01-06T19:05:00+05:30"}]"#;

fn command(url: &str, words: &[&str]) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    command.args(["--server", url]).args(words).stdin(Stdio::null());
    command
}

fn of(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn jobmeter(url: &str, words: &[&str]) -> (i32, String, String) {
    of(command(url, words).output().unwrap())
}

/// The write end of a pipe without a reader.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_command_that_cannot_start_is_one_line() {
    for (command, code, want) in [
        ("/nonexistent/cmd", 127, "jobmeter: /nonexistent/cmd: "),
        ("no-such-command-anywhere", 127, "jobmeter: no-such-command-anywhere: no such command"),
        ("/etc/passwd", 126, "jobmeter: /etc/passwd: not executable"),
    ] {
        let (is, out, messages) = jobmeter("http://127.0.0.1:1", &["run", "--json", "--", command]);
        assert_eq!((is, &*out, messages.lines().count()), (code, "", 1), "{command}: {messages}");
        assert!(messages.starts_with(want), "{messages}");
    }
}

#[test]
fn times_of_a_server_in_another_zone_are_local_or_utc() {
    let url = serve_with(|request| match &*request.line {
        line if line.contains("/health") => ("200 OK", HEALTH.to_owned()),
        _ if request.accept == "text/csv" => ("200 OK", TIMES.to_owned()),
        _ => ("200 OK", TIMES_JSON.to_owned()),
    });
    let get = ["get", "--device", "n1", "--since", "0"];
    for words in [&get[..], &["sql", "SELECT 1"]] {
        let print = |format: &str| {
            let mut command = command(&url, &[words, &["--format", format]].concat());
            of(command.env("TZ", "UTC-3").output().unwrap())
        };
        let (code, out, error) = print("csv");
        let name = "2026-01-06T19:05:00+05:30";
        let want = format!("timestamp,name\n2026-01-06T13:35:00Z,{name}\n");
        assert_eq!((code, out), (0, want), "{error}");
        let (code, out, error) = print("json");
        let is_right = |out: &str, time: &str| out.contains(time) && out.contains(name);
        assert!(code == 0 && is_right(&out, "\"2026-01-06T13:35:00Z\""), "{out}{error}");
        let (code, out, error) = print("table");
        assert!(code == 0 && is_right(&out, "2026-01-06 16:35:00"), "{out}{error}");
    }
}

#[test]
fn a_closed_pipe_is_silent_and_a_full_device_is_an_error() {
    let long: &'static str = format!("t,d\n{}", "1,2\n".repeat(100_000)).leak();
    let url = serve(&[("/api/v1/health", HEALTH), ("/api/v1/gaps", "[]")]);
    let rows = serve_with(move |request| match &*request.line {
        line if line.contains("/health") => ("200 OK", HEALTH.to_owned()),
        _ => ("200 OK", long.to_owned()),
    });
    let get = ["get", "--device", "n1", "--since", "0", "--csv"];
    let sql = ["sql", "SELECT 1", "--csv"];
    for (url, words) in [(&rows, &get[..]), (&rows, &sql), (&url, &["gaps", "--json"])] {
        let (code, _, error) = of(command(url, words).stdout(unread()).output().unwrap());
        assert_eq!((code, &*error), (0, ""), "{words:?}");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, _, error) = of(command(url, words).stdout(full).output().unwrap());
        let is_clear = error.starts_with("jobmeter: cannot write to standard output: ");
        assert!(code == 2 && is_clear, "{words:?}: {code}: {error}");
    }
}

#[test]
fn a_token_that_cannot_be_printed_is_revoked() {
    const TOKEN: &str = r#""id":7,"scope":"read","uid":1,"note":"","created_by":"","created":1.0,"expires":2.0,
        "revoked":null,"last_used":null"#;
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&lines);
    let url = serve_with(move |request| {
        seen.lock().unwrap().push(request.line.clone());
        let body = match request.line.contains("/revoke") {
            true => format!("{{{TOKEN}}}"),
            false => format!(r#"{{"token":"secret","info":{{{TOKEN}}}}}"#),
        };
        ("200 OK", body)
    });
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for (stdout, count) in [(unread(), 2), (full().into(), 2)] {
        lines.lock().unwrap().clear();
        let (code, _, error) =
            of(command(&url, &["token", "create"]).stdout(stdout).output().unwrap());
        assert!(code == 2 && error.contains("the token was revoked"), "{code}: {error}");
        let lines = lines.lock().unwrap();
        assert!(
            lines.len() == count && lines[1].starts_with("POST /api/v1/tokens/7/revoke"),
            "{lines:?}"
        );
    }
    lines.lock().unwrap().clear();
    let program = env!("CARGO_BIN_EXE_jobmeter");
    #[expect(clippy::disallowed_methods, reason = "a shell closes standard output")]
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" --server \"$1\" token create >&-", program, &url]);
    let (code, _, error) = of(shell.output().unwrap());
    assert!(code == 2 && error.contains("standard output is closed"), "{code}: {error}");
    assert!(lines.lock().unwrap().is_empty(), "no token was created");
}

#[test]
fn no_byte_of_the_command_line_acts_on_the_terminal() {
    let url = serve(&[("/api/v1/health", HEALTH), ("/api/v1/jobs", "[]"), ("/api/v1/nodes", "[]")]);
    for words in [&["jobs", "--name", "a\u{1b}[31m"][..], &["jobs", "--nosuch\u{1b}[31m"]] {
        let (_, _, error) = jobmeter(&url, words);
        assert!(error.contains("\\u001b[31m") && !error.contains('\u{1b}'), "{error:?}");
    }
    let mut command = command(&url, &["run", "--"]);
    let output = command.arg(std::ffi::OsStr::from_bytes(b"nosuch\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8(output.stderr).is_ok());
}

#[test]
fn gaps_of_an_unknown_device_name_the_near_one() {
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        ("/api/v1/gaps", "[]"),
        ("/api/v1/series", "[]"),
        (
            "/api/v1/nodes",
            r#"[{"device":"node-1","alive":true,"stopped":false,"last_seen":1.0,"period_seconds":5.0,
                "clock_offset_seconds":null,"agent_version":null,"config_generation":null,"config_rejected":[],
                "source_errors":[],"sources_restricted":[],"series":1,"jobs":[],"cpu_cores_used":null,"cpu_cores":null,
                "memory_used_bytes":null,"memory_bytes":null}]"#,
        ),
    ]);
    let messages = "jobmeter: the server knows no device `nod-1`; did you mean `node-1`?\n";
    for (format, want) in [(&[][..], ""), (&["--json"], "[]\n")] {
        let (code, out, error) = jobmeter(&url, &[&["gaps", "--device", "nod-1"], format].concat());
        assert_eq!((code, &*out, &*error), (1, want, messages));
    }
    assert_eq!(jobmeter(&url, &["gaps"]).0, 0);
}

/// A node with an optional source `vmstat`, and a change whose burst it rejected.
const OPTIONAL: &str = r#"[{"device":"n1","alive":true,"stopped":false,"last_seen":1.0,"period_seconds":5.0,
    "clock_offset_seconds":null,"agent_version":"0.1","config_generation":null,"config_rejected":[],
    "source_errors":[],"sources_restricted":[{"source":"vmstat","reason":"optional","optional":["vmstat_.*"]}],
    "series":1,"jobs":[],"cpu_cores_used":null,"cpu_cores":null,"memory_used_bytes":null,"memory_bytes":null}]"#;

#[test]
fn a_promotion_that_changes_nothing_yet_is_reported_and_such_a_flush_ends_with_1() {
    let url = serve_with(|request| {
        let promoted = |metric: &str| {
            format!(
                r#"[{{"id":1,"metric":"{metric}","nodes":"n1","job":null,"created":1.0,"created_by":"","until":2.0,
                    "origin":"","error":null}}]"#
            )
        };
        static POSTS: AtomicUsize = AtomicUsize::new(0);
        let body = match &*request.line {
            line if line.contains("/promotions") => match POSTS.fetch_add(1, Ordering::SeqCst) {
                0 => promoted("perf_.*"),
                _ => promoted("vmstat_.*"),
            },
            line if line.contains("/nodes") => OPTIONAL.to_owned(),
            line if line.contains("/catalogue") => "[]".to_owned(),
            line if line.contains("/flushes") => {
                r#"{"id":3,"nodes_known":1,"nodes_reporting":1,"nodes_full":0}"#.to_owned()
            }
            line if line.contains("/settings") => {
                r#"[{"id":7,"nodes":"n1","settings":[{"source":"cpu","burst":{"period_seconds":0.1}}],"created":1.0,"created_by":"root",
                    "until":2.0,"nodes_known":1,"nodes_applied":0,
                    "rejected":[{"device":"n1","source":"cpu","setting":"burst","code":"not_allowed","reason":"no bursts"}]}]"#
                    .to_owned()
            }
            _ => HEALTH.to_owned(),
        };
        ("200 OK", body)
    });
    let (code, out, error) = jobmeter(&url, &["promote", "perf_.*", "--nodes", "n1"]);
    assert!(code == 1 && out.contains("perf_.*"), "{out}{error}");
    let messages = "promotion 1 is active, and promotes nothing yet: no metric that `perf_.*` matches is optional on `n1`";
    assert!(error.contains(messages) && error.contains(" --device n1` shows why"), "{error}");
    let (code, _, error) = jobmeter(&url, &["promote", "vmstat_.*", "--nodes", "n1"]);
    assert_eq!((code, &*error), (0, ""));
    let (code, _, error) = jobmeter(&url, &["flush", "--source", "cpu", "--nodes", "n1"]);
    assert!(
        code == 1 && error.contains("n1 rejected change 7: --burst of cpu: no bursts"),
        "{error}"
    );
}

const FEEDER: &str = r#"[{"device":"bmc-1","poller":"lab","protocol":"ipmi","address":"ipmi://bmc-1","period_seconds":5.0,
    "state":"alive","reason":null,"last_good":1.0,"aliases":["sn"]}]"#;

#[test]
fn a_promotion_of_no_known_entry_of_a_poller_has_a_note() {
    let promote = |metric: &'static str| {
        let url = serve_with(move |request| {
            let body = match &*request.line {
                line if line.contains("/promotions") => {
                    r#"[{"id":1,"metric":"METRIC","nodes":"sn","job":null,"created":1.0,"created_by":"","until":2.0,
                        "origin":"","error":null}]"#
                }
                line if line.contains("/devices") => FEEDER,
                line if line.contains("/catalogue") => {
                    r#"[{"name":"pdu_outlet_power_watt","unit":"watts","kind":"gauge","help":""}]"#
                }
                line if line.contains("/nodes") => "[]",
                _ => HEALTH,
            };
            ("200 OK", body.replace("METRIC", metric))
        });
        let (code, _, error) = jobmeter(&url, &["promote", metric, "--nodes", "sn"]);
        assert_eq!(code, 0, "{error}");
        error
    };
    let error = promote("nothing_");
    assert!(error.contains("no metric that has samples begins with a match"), "{error}");
    assert_eq!(promote("pdu_outlet"), "", "the beginning of a name");
}

#[test]
fn a_metric_that_a_device_feeds_to_a_node_is_explained() {
    let url = serve_with(|request| {
        let body = match &*request.line {
            line if line.contains("/explain") && line.contains("bmc-1") => {
                assert!(line.contains("_device_alias"), "{line}");
                r#"[{"device":"bmc-1","metric":"ps_watt","cluster":null,"job":null,"labels":{"_device_alias":"sn"},
                    "unit":"watts","kind":"gauge","help":"Power.","source":null,"source_errors":null,"last_error":null,
                    "senders":[],"period_seconds":5.0,"samples":7,"time":1.0,"value":42.0,"counter_start":null,
                    "gaps":[],"gaps_count":0}]"#
            }
            line if line.contains("/devices") && line.contains("node=sn") => FEEDER,
            line if line.contains("/explain") || line.contains("/nodes") => "[]",
            line if line.contains("/settings") || line.contains("/promotions") => "[]",
            _ => HEALTH,
        };
        ("200 OK", body.to_owned())
    });
    let (code, out, error) = jobmeter(&url, &["explain", "ps_watt", "--device", "sn"]);
    assert!(code == 0 && out.starts_with("bmc-1 ps_watt"), "{out}{error}");
    assert!(!error.contains("no samples"), "{error}");
}

#[test]
fn an_account_of_two_clusters_is_shown_twice() {
    let url = serve(&[(
        "/api/v1/accounts",
        r#"[{"cluster":"slurm","name":"physics","members_see":"all","role":null,"users":null},
            {"cluster":"oar","name":"physics","members_see":"jobs","role":null,"users":null}]"#,
    )]);
    let (code, out, error) = jobmeter(&url, &["account", "show", "physics"]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("slurm:physics: ") && out.contains("oar:physics: "), "{out}");
}

#[test]
fn an_account_that_exists_and_a_manager_that_remains_one_are_reported() {
    let url = serve_with(|request| {
        let account = r#"{"cluster":"slurm","name":"x","members_see":"all","role":null,
            "users":[{"uid":7,"user":"bob","role":"manager"},{"uid":8,"user":null,"role":"member"}]}"#;
        let is_list = request.line.contains("GET ");
        ("200 OK", if is_list { format!("[{account}]") } else { account.to_owned() })
    });
    let (code, _, error) = jobmeter(&url, &["account", "create", "slurm:x"]);
    assert_eq!((code, error.contains("slurm:x exists already")), (0, true), "{error}");
    let (code, _, error) = jobmeter(&url, &["account", "create", "slurm:y"]);
    assert_eq!((code, &*error), (0, ""));
    let (code, _, error) = jobmeter(&url, &["account", "add", "slurm:x", "bob", "8"]);
    assert_eq!((code, error.contains("bob remains a manager")), (0, true), "{error}");
    let (code, _, error) = jobmeter(&url, &["account", "add", "slurm:x", "bob", "--manager"]);
    assert_eq!((code, &*error), (0, ""));
}

#[test]
fn a_run_states_its_signal_and_rejects_what_no_server_takes() {
    const NOBODY: &str = "http://127.0.0.1:1";
    let kill = ["run", "--json", "--", "sh", "-c", "kill -11 $$"];
    let (code, out, _) = jobmeter(NOBODY, &kill);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &report["end"]["cause"], &report["end"]["detail"]),
        (139, &"signal".into(), &"11".into())
    );
    let (_, _, text) = jobmeter(NOBODY, &["run", "--", "sh", "-c", "kill -11 $$"]);
    assert!(text.contains(", exit code 139 (signal 11, SIGSEGV)\n"), "{text}");
    let long = "x".repeat(201);
    let (code, out, error) = jobmeter(NOBODY, &["run", "--name", &long, "--", "echo", "it ran"]);
    assert_eq!(
        (code, &*out, &*error),
        (2, "", "jobmeter: --name: it has 201 bytes; 200 at most\n")
    );
    let (code, _, error) = jobmeter(NOBODY, &["run", "--memory", "99999999999G", "--", "true"]);
    assert!(code == 2 && error.contains("more than 16 EiB"), "{error}");
}

#[test]
fn a_time_before_the_first_sample_is_answered_with_its_time() {
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        ("metrics=load_1m", "timestamp,device_id\n"),
        ("/api/v1/sql", r#"[{"first":172800}]"#),
        (
            "/api/v1/series",
            r#"[{"device":"n1","metric":"load_1m","cluster":null,"job":null,"labels":{},"unit":"","kind":"gauge"}]"#,
        ),
        ("/api/v1/catalogue", r#"[{"name":"load_1m","unit":"","kind":"gauge","help":""}]"#),
    ]);
    let words = ["get", "--device", "n1", "--metric", "load_1m", "--until", "1970-01-02T00:00Z"];
    let (code, _, messages) = jobmeter_with(&[("TZ", "UTC"), ("JOBMETER_SERVER", &url)], &words);
    let want = "jobmeter: no sample of metric load_1m of device n1 from 23:55:00 to 1970-01-02 00:00:00: \
                the first one is from 1970-01-03 00:00:00\n";
    assert_eq!((code, &*messages), (1, want));
}

#[test]
fn a_backup_into_the_data_folder_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    std::fs::create_dir_all(dir.path().join("samples/blocks")).unwrap();
    std::fs::write(dir.path().join("jobs.sqlite"), "").unwrap();
    for to in ["copy", "samples/copy", "samples/../copy"] {
        let to = format!("{data}/{to}");
        let (code, _, error) = jobmeter_with(&[], &["backup", "--to", &to, "--data", &data]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(&format!("{to} lies inside the store")), "{error}");
        assert!(!std::path::Path::new(&to).try_exists().unwrap());
    }
}

#[test]
fn a_store_without_blocks_has_its_samples_in_the_log_and_a_missing_registry_is_named_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    std::fs::create_dir_all(dir.path().join("samples/blocks")).unwrap();
    std::fs::write(dir.path().join("samples/FORMAT"), "jobmeter store 1\n").unwrap();
    let (code, out, error) = jobmeter_with(&[], &["verify", "--data", &data]);
    assert_eq!(code, 1, "{out}{error}");
    assert!(out.contains("0 samples in blocks") && out.contains("0 batches in the log"), "{out}");
    assert_eq!(out.matches("jobs.sqlite").count(), 1, "{out}");
    let to = dir.path().with_extension("copy").display().to_string();
    let (code, _, error) = jobmeter_with(&[], &["backup", "--data", &data, "--to", &to]);
    assert_eq!((code, error.matches("jobs.sqlite").count()), (2, 1), "{error}");
    std::fs::remove_dir(&to).unwrap();
}

#[test]
fn what_does_not_exist_ends_with_1_and_a_wrong_path_of_the_url_with_2() {
    let url = serve_with(|request| {
        let problem = |code: &str, message: &str| {
            let body =
                format!(r#"{{"code":"{code}","message":"{message}","details":null,"hint":null}}"#);
            ("404 Not Found", body)
        };
        match &*request.line {
            line if line.contains("/api/api") => {
                problem("PGRST125", "there is nothing at /api/api/v1/x")
            }
            line if line.contains("/accounts") => ("200 OK", "[]".to_owned()),
            line if line.contains("/health") => ("200 OK", HEALTH.to_owned()),
            line if line.contains("/promotions") => problem("PGRST125", "job slurm:7 does not run"),
            line if line.contains("/settings") => {
                problem("PGRST125", "there is no active change 9")
            }
            line if line.contains("/rpc") => problem("PGRST202", "unknown parameter `x`"),
            _ => problem("P0002", "there is no job 9"),
        }
    });
    for (words, want) in [
        (&["job", "9"][..], 1),
        (&["job", "end", "9"], 1),
        (&["promote", "perf_.*", "--job", "slurm:7"], 1),
        (&["set", "--undo", "9"], 1),
        (&["token", "revoke", "9"], 1),
        (&["account", "show", "slurm:geolgy"], 1),
        (&["account", "show", "geolgy"], 1),
        (&["get", "--job", "9"], 2),
    ] {
        let (code, out, error) = jobmeter(&url, words);
        assert_eq!((code, &*out), (want, ""), "{words:?}: {error}");
    }
    for words in [&["nodes"][..], &["job", "9"]] {
        let (code, _, error) = jobmeter(&format!("{url}/api"), words);
        let want = format!("the path `/api` in --server is wrong; write --server {url}");
        assert!(code == 2 && error.contains(&want), "{code}: {error}");
    }
}
