//! Tests exit codes that scripts evaluate.

use crate::serve::{HEALTH, serve};
use std::process::Command;

/// A port without a server.
const NOBODY: &str = "http://127.0.0.1:1";

/// The exit code and both outputs.
fn jobmeter(server: &str, words: &[&str]) -> (i32, String, String) {
    jobmeter_with(&[], &[&["--server", server], words].concat())
}

/// Runs the command with these environment variables.
pub(crate) fn jobmeter_with(variables: &[(&str, &str)], words: &[&str]) -> (i32, String, String) {
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    let output = command.envs(variables.iter().copied()).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_name_cannot_act_on_the_terminal() {
    let (code, _, error) = jobmeter(NOBODY, &["run", "--name", "x\ny\x1b[31m", "--", "true"]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(
        error.starts_with("jobmeter: --name: it has the unprintable character '\\n'"),
        "{error}"
    );
}

#[test]
fn limits_that_no_command_can_have_are_rejected() {
    for (option, value) in [("--cpus", "3-0"), ("--cpus", "1000000"), ("--memory", "10")] {
        let (code, _, error) = jobmeter(NOBODY, &["run", option, value, "--", "true"]);
        let start = format!("jobmeter: {option} {value}: ");
        assert!(code == 2 && error.starts_with(&start), "{code}: {error}");
        assert_eq!(error.lines().count(), 1, "no report: {error}");
    }
}

#[test]
fn a_full_standard_output_is_an_error() {
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        ("/api/v1/nodes", "[]"),
        ("/end ", ""),
        ("/api/v1/jobs", r#"{"id":7,"cluster":"local","server":"s","device":"n1"}"#),
    ]);
    let commands: [&[&str]; 6] = [
        &["--help"],
        &["--version"],
        &["get", "--help"],
        &["completions", "bash"],
        &["nodes", "--csv"],
        &["job", "start", "--name", "x"],
    ];
    for words in commands {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
        let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
        let command = command.args(["--server", &url]).args(words).stdout(full);
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(
            error.starts_with("jobmeter: cannot write ") && error.contains("to standard output: "),
            "{error}"
        );
        // The message names the job, so that it can be ended although its ID was not printed.
        assert!(words[0] != "job" || error.contains("local:7"), "{error}");
    }
}

#[test]
fn a_token_for_no_time_is_rejected() {
    let (code, _, error) = jobmeter(NOBODY, &["token", "create", "--for", "0"]);
    assert!(
        code == 2 && error.starts_with("jobmeter: --for: a token must be valid for 1s"),
        "{error}"
    );
}

#[test]
fn a_log_file_in_no_folder_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("mistyped");
    let file = folder.join("log").display().to_string();
    let (code, _, error) = jobmeter(NOBODY, &["--log-file", &file, "sources", "--markdown"]);
    assert!(
        code == 2 && error.contains(&format!("folder {} does not exist", folder.display())),
        "{error}"
    );
    assert!(!folder.try_exists().unwrap());
}

#[test]
fn an_option_that_a_command_lacks_is_no_value() {
    let (code, _, error) = jobmeter(NOBODY, &["run", "--csv", "--", "true"]);
    assert!(code == 2 && error.contains("unexpected argument '--csv'"), "{error}");
    assert!(!error.contains("as a value"), "{error}");
    let (_, _, error) = jobmeter(NOBODY, &["get", "--metrik", "load_1m"]);
    assert!(error.contains("'--metric'"), "{error}");
}

#[test]
fn a_change_that_concerns_no_node_states_so() {
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        ("/api/v1/settings", r#"{"id":3,"nodes_known":0,"nodes_reporting":0,"nodes_full":0}"#),
        ("/api/v1/flushes", r#"{"id":3,"nodes_known":1,"nodes_reporting":1,"nodes_full":0}"#),
    ]);
    let set = ["set", "--nodes", "vmm", "--source", "load", "--period", "1s", "--for", "1m"];
    let (code, out, error) = jobmeter(&url, &set);
    assert_eq!((code, &*out), (1, "change 3 is active, for 0 reporting nodes\n"));
    assert!(error.contains("no node of that name has reported"), "{error}");
    let (code, out, _) = jobmeter(&url, &["flush", "--nodes", "vm", "--source", "load"]);
    assert_eq!((code, &*out), (0, "flush 3 is requested, for 1 reporting node\n"));
}

#[test]
fn a_series_with_another_label_or_of_no_job_is_listed() {
    const LOAD: &str = r#"[{"device":"n1","metric":"load_1m","cluster":null,"job":null,"labels":{},"unit":"",
        "kind":"gauge","help":"","source":"load","source_errors":null,"last_error":null,"senders":[],
        "period_seconds":null,"samples":0,"time":null,"value":null,"counter_start":null,"gaps":[],"gaps_count":0}]"#;
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        ("labels=", "[]"),
        ("job=", "[]"),
        ("/api/v1/explain", LOAD),
        ("/api/v1/nodes", "[]"),
        ("/api/v1/settings", "[]"),
        ("/api/v1/catalogue", r#"[{"name":"load_1m","unit":"","kind":"gauge","help":""}]"#),
    ]);
    for (words, messages) in [
        (&["--label", "a=b"][..], "no series of load_1m has the label a=b"),
        (&["--job", "1"], "load_1m is a metric of nodes, not of jobs; omit --job"),
    ] {
        let (code, out, error) = jobmeter(&url, &[&["explain", "load_1m"], words].concat());
        assert_eq!((code, &*out, error), (1, "", format!("jobmeter: {messages}\n")));
    }
    let (code, out, error) = jobmeter(&url, &["explain", "load_1m,nosuch"]);
    assert!(code == 1 && out.starts_with("n1 load_1m\n"), "{out}");
    assert_eq!(error, "jobmeter: the server knows no metric `nosuch`\n");
}

#[test]
fn a_name_without_a_user_is_reported() {
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        ("metrics=load_1m", "timestamp,device_id\n"),
        ("metrics=lod_1m", "timestamp,device_id\n"),
        (
            "/api/v1/series",
            r#"[{"device":"n1","metric":"load_1m","cluster":null,"job":null,"labels":{},"unit":"","kind":"gauge"}]"#,
        ),
        ("/api/v1/catalogue", r#"[{"name":"load_1m","unit":"","kind":"gauge","help":""}]"#),
    ]);
    let get = |metric| {
        let words =
            ["get", "--device", "n1", "--start", "0", "--format", "csv", "--metric", metric];
        jobmeter(&url, &words)
    };
    let (code, out, messages) = get("lod_1m");
    assert_eq!((code, &*out), (1, "timestamp,device_id\n"), "{messages}");
    assert_eq!(
        messages,
        "jobmeter: the server knows no metric `lod_1m`; did you mean `load_1m`?\n"
    );
    // A known name without samples in that time range.
    let (code, _, messages) = get("load_1m");
    assert!(
        code == 1
            && messages.starts_with("jobmeter: no samples of metric load_1m of device n1 from ")
    );
    assert!(
        messages.ends_with("; `jobmeter explain load_1m --device n1` explains why\n"),
        "{messages}"
    );
}

#[test]
fn one_unknown_name_of_a_list_is_reported() {
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        ("metrics=", "timestamp,device_id\n2026-01-06T13:35:00+00:00,n1\n"),
        ("/api/v1/catalogue", r#"[{"name":"load_1m","unit":"","kind":"gauge","help":""}]"#),
    ]);
    let get =
        |metric| jobmeter(&url, &["get", "--start", "0", "--format", "csv", "--metric", metric]);
    let (code, out, messages) = get("load_1m,lod_1m");
    assert_eq!((code, out.lines().count()), (1, 2), "{messages}");
    assert_eq!(
        messages,
        "jobmeter: the server knows no metric `lod_1m`; did you mean `load_1m`?\n"
    );
    assert_eq!(get("load_1m").0, 0);
}

/// A server with node n1, whose agent does not read all its metrics; returns the URL.
fn lacking() -> String {
    serve(&[
        ("/api/v1/explain", "[]"),
        ("/api/v1/devices", "[]"),
        ("/api/v1/gaps", "[]"),
        ("/api/v1/health", HEALTH),
        (
            "/api/v1/nodes",
            r#"[{"device":"n1","alive":true,"stopped":false,"last_seen":1,"period_seconds":5,
                "clock_offset_seconds":0,"agent_version":"","config_generation":"0","config_rejected":[],
                "source_errors":[{"source":"perf","state":"denied","reason":"events; grant CAP_PERFMON"},
                          {"source":"mounts/include","state":"absent","reason":"nothing has a name that"}],
                "sources_restricted":[{"source":"load","reason":"file","optional":[]},
                          {"source":"memory","reason":"server","optional":[]},
                          {"source":"vmstat","reason":"optional","optional":["vmstat_page_.*"]}],"series":1,
                "jobs":[],"cpu_cores_used":null,"cpu_cores":null,"memory_used_bytes":null,"memory_bytes":null},
               {"device":"n2","alive":true,"stopped":false,"last_seen":1,"period_seconds":5,
                "clock_offset_seconds":0,"agent_version":"","config_generation":"0","config_rejected":[],
                "source_errors":[],"sources_restricted":[],"series":1,"jobs":[],"cpu_cores_used":null,"cpu_cores":null,
                "memory_used_bytes":null,"memory_bytes":null}]"#,
        ),
        (
            "/api/v1/last?metric=agent_source_working&device=n1",
            r#"[{"device":"n1","metric":"agent_source_working","cluster":null,"job":null,"labels":{"source":"mounts"},
                "unit":"","kind":"gauge","time":1,"value":1},
               {"device":"n1","metric":"agent_source_working","cluster":null,"job":null,"labels":{"source":"nvidia"},
                "unit":"","kind":"gauge","time":1,"value":0},
               {"device":"n1","metric":"agent_source_working","cluster":null,"job":null,"labels":{"source":"cpu"},
                "unit":"","kind":"gauge","time":1,"value":1}]"#,
        ),
        (
            "/api/v1/settings",
            r#"[{"id":7,"nodes":"n[1-9]","settings":[{"source":"memory","enabled":false}],"created":1,"created_by":"root",
                "until":2,"nodes_known":1,"nodes_applied":1,"rejected":[]}]"#,
        ),
        ("/api/v1/promotions", "[]"),
        (
            "/api/v1/series",
            r#"[{"device":"n1","metric":"load_1m","cluster":null,"job":null,"labels":{},"unit":"","kind":"gauge"}]"#,
        ),
    ])
}

#[test]
fn a_metric_that_a_node_lacks_is_explained_by_its_source() {
    let url = lacking();
    let explain = |metric: &str, device: &[&str]| {
        let (code, out, messages) = jobmeter(&url, &[&["explain", metric][..], device].concat());
        assert_eq!((code, &*out), (1, ""), "{messages}");
        messages
    };
    let n1 = ["--device", "n1"];
    for (metric, messages) in [
        ("load_1m", "n1: source load is disabled in the node's own file: `enabled = true` under"),
        (
            "memory_total_bytes",
            "root disabled source memory through the server; to undo: `jobmeter set --undo 7`",
        ),
        (
            "vmstat_page_faults_total",
            "to enable it: `jobmeter promote vmstat_page_faults_total --nodes n1`",
        ),
        ("vmstat_swapped_in_pages_total", "n1: source vmstat"),
    ] {
        let why = explain(metric, &n1);
        assert!(why.contains(messages), "{why}");
    }
    assert_eq!(
        explain("perf_instructions_total", &n1),
        "jobmeter: n1: source perf is denied: events; grant CAP_PERFMON\n"
    );
    let absent = explain("nvidia_power_watts", &n1);
    assert!(
        absent.starts_with("jobmeter: n1: source nvidia is absent: the node lacks its files ("),
        "{absent}"
    );
    assert!(explain("mounts_on_disk", &n1).contains("mounts/include is absent: nothing has a"));
    let works = explain("cpu_core_user_seconds_total", &n1);
    assert!(
        works.contains("source cpu works, but has no") && works.contains("[sources.cpu]"),
        "{works}"
    );
    let off = explain("disk_reads_total", &n1);
    assert!(off.contains("n1: source disk is not read: ") && off.contains("promote"), "{off}");
    // Without a device, the command explains every node.
    let all = explain("disk_reads_total", &[]);
    assert!(all.lines().nth(1).unwrap().contains("n2: its agent reports no state"), "{all}");
}

#[test]
fn a_job_of_a_user_whom_the_server_does_not_know_is_warned_about() {
    let url =
        serve(&[("/api/v1/jobs", r#"{"cluster":"site","id":42,"server":"","user_unknown":true}"#)]);
    let (code, out, error) = jobmeter(&url, &["job", "start", "site:42", "--user", "nosuch"]);
    assert_eq!((code, &*out), (0, "site:42\n"));
    assert!(error.starts_with("jobmeter: the server does not know the user `nosuch`"), "{error}");
}

#[test]
fn an_end_that_changes_nothing_is_reported_as_such() {
    let url = serve(&[(
        "/end ",
        r#"{"cluster":"slurm","id":7,"display_id":"7","user":null,"uid":null,"account":null,"project":null,
            "name":null,"queue":null,"state":"ended","state_word":null,"submit":null,"start":null,"stop":1.0,
            "exit_code":0,"part_of":null,"array_index":null,"types":[],"requested":{},"used":{},"devices":[],
            "changed":false}"#,
    )]);
    let (code, out, error) = jobmeter(&url, &["job", "end", "slurm:7"]);
    let messages = "jobmeter: job slurm:7 had already ended; nothing was changed\n";
    assert_eq!((code, &*out, &*error), (0, "", messages));
}

#[test]
fn a_node_with_two_agents_is_a_conflict() {
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        (
            "/api/v1/nodes",
            r#"[{"device":"n1","alive":true,"stopped":false,"conflict":true,"last_seen":1.0,"period_seconds":5.0,
                "clock_offset_seconds":null,"agent_version":null,"config_generation":null,"config_rejected":[],
                "source_errors":[],"sources_restricted":[],"series":1,"jobs":[],"cpu_cores_used":null,"cpu_cores":null,
                "memory_used_bytes":null,"memory_bytes":null}]"#,
        ),
        (
            "/api/v1/explain",
            r#"[{"device":"n1","metric":"load_1m","cluster":null,"job":null,"labels":{},"unit":"","kind":"gauge",
                "help":"","source":"load","source_errors":0.0,"last_error":null,"senders":[],"period_seconds":5.0,
                "samples":1,"time":1.0,"value":1.0,"counter_start":null,"gaps":[],"gaps_count":0}]"#,
        ),
        ("/api/v1/settings", "[]"),
    ]);
    let (code, out, error) = jobmeter(&url, &["nodes"]);
    assert_eq!(code, 1, "{error}");
    assert!(out.contains("n1    conflict  "), "{out}");
    assert!(out.contains("n1: several agents send under this name"), "{out}");
    let (_, out, error) = jobmeter(&url, &["explain", "load_1m"]);
    assert!(out.contains("\n  conflict several agents send under this name"), "{out}{error}");
}

#[test]
fn a_mistyped_filter_of_jobs_gets_the_near_name() {
    let url = serve(&[
        ("/api/v1/health", HEALTH),
        ("user=alcie", "[]"),
        ("account=slurm%3Aphysic", "[]"),
        ("cluster=slrum", "[]"),
        ("device=n1", "[]"),
        ("queue=long", "[]"),
        (
            "/api/v1/jobs?limit=1",
            r#"[{"cluster":"slurm","id":7,"display_id":"7","user":"alice","uid":1000,"account":"physics",
                "project":null,"name":null,"queue":null,"state":"running","state_word":null,"submit":null,"start":1.0,
                "stop":null,"exit_code":null,"part_of":null,"array_index":null,"types":[],"requested":{},"used":{},
                "devices":["n10"]}]"#,
        ),
        ("/api/v1/nodes", "[]"),
    ]);
    for (option, value, messages) in [
        ("--user", "alcie", "user `alcie`; did you mean `alice`?"),
        ("--account", "slurm:physic", "account `slurm:physic`; did you mean `slurm:physics`?"),
        ("--cluster", "slrum", "cluster `slrum`; did you mean `slurm`?"),
        ("--device", "n1", "device `n1`; did you mean `n10`?"),
        ("--queue", "long", "queue `long`"),
    ] {
        let (code, out, error) = jobmeter(&url, &["jobs", option, value]);
        assert_eq!((code, &*out), (1, ""));
        assert_eq!(error, format!("jobmeter: no job that is visible to you has the {messages}\n"));
        let (_, out, json) = jobmeter(&url, &["jobs", "--json", option, value]);
        assert_eq!((&*out, json), ("[]\n", error));
    }
    let (code, _, error) = jobmeter(&url, &["jobs", "--state", "runing"]);
    assert!(code == 2 && error.contains("'running'"), "{error}");
}

#[test]
fn a_mistyped_variable_is_not_ignored() {
    let list = ["sources", "--markdown"];
    let (code, out, messages) = jobmeter_with(&[("JOBMETER_SERVR", "http://127.0.0.1:1")], &list);
    assert_eq!((code, &*out), (2, ""), "{messages}");
    let want =
        "environment JOBMETER_SERVR: no setting has this name; did you mean `JOBMETER_SERVER`?";
    assert!(messages.contains(want), "{messages}");
    // Variables of another program, and variables that another tool created.
    let others = [("JOBMETER_PERID", "1s"), ("JOBMETER_PORT", "tcp://10.0.0.1:80")];
    let (code, _, messages) = jobmeter_with(&others, &list);
    assert_eq!(code, 0, "{messages}");
    assert_eq!(
        messages,
        "jobmeter: environment JOBMETER_PERID: no setting has this name; did you mean `JOBMETER_PERIOD`? (ignored)\n\
         jobmeter: environment JOBMETER_PORT: no setting has this name (ignored)\n"
    );
    let known = [("JOBMETER_PERIOD", "1s"), ("JOBMETER_SOURCES_CPU_CORES", "true")];
    assert_eq!(jobmeter_with(&known, &list).2, "");
}

#[test]
fn a_folder_of_ticks_is_ambiguous() {
    let hosts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/hosts/bare-6.18");
    for command in ["sources", "doctor"] {
        let (code, out, messages) = jobmeter_with(&[], &[command, "--root", hosts]);
        assert_eq!((code, &*out), (2, ""), "{messages}");
        let want = format!(
            "jobmeter: {hosts} contains several recorded machines or ticks: 1, 2; choose one of \
             them, such as {hosts}/1\n"
        );
        assert_eq!(messages, want);
    }
    let (code, _, messages) = jobmeter_with(&[], &["sources", "--root", "/nonexistent"]);
    assert_eq!(code, 2);
    assert!(messages.contains("/nonexistent: not there"), "{messages}");
}

#[test]
fn the_manual_of_a_source_shows_its_state() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/hosts/laptop-v2/1");
    let (code, out, messages) = jobmeter_with(&[], &["sources", "hwmon", "--root", root]);
    assert_eq!((code, &*messages), (0, ""));
    assert!(out.contains("\n  period = \"5s\"\n") && out.contains("\n  include = []"), "{out}");
    let (_, stands) = out.split_once(&format!("\n{root}:\n")).unwrap();
    let (_, line) = stands.trim_end().split_once('\n').unwrap();
    assert!(line.starts_with("hwmon ") && line.contains("absent"), "{stands}");
    let (_, csv, _) = jobmeter_with(&[], &["sources", "hwmon", "--root", root, "--csv"]);
    assert!(csv.starts_with("source,state,") && csv.lines().count() == 2, "{csv}");
    let (_, json, _) = jobmeter_with(&[], &["sources", "hwmon", "--root", root, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["source"], json.as_array().unwrap().len()), (&"hwmon".into(), 1));
}

#[test]
fn a_check_lists_every_file_that_the_program_would_reject() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("token"), "two words\n").unwrap();
    std::fs::write(path("ca.pem"), "no certificate\n").unwrap();
    let files = format!(
        "token_file = '{}'\nca = '{}'\ncert = '{}'\nkey = '{}'\n",
        path("token"),
        path("ca.pem"),
        path("cert.pem"),
        path("key.pem")
    );
    for program in ["agent", "client"] {
        let file = path(&format!("{program}.toml"));
        // Errors in the text do not hide errors of the files, even that of a mistyped key.
        let log = format!("server = 'nowhere'\n[log]\nfil = '{}'\n", path("missing/log"));
        std::fs::write(&file, format!("{files}nosuch = 1\n{log}")).unwrap();
        let (code, json, _) = jobmeter_with(&[], &["check", &file, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let lines = json["errors"].as_array().unwrap().iter().map(|error| error["line"].as_u64());
        let mut lines: Vec<u64> = lines.map(Option::unwrap).collect();
        lines.sort_unstable();
        let want = [1, 2, 3, 5, 6, 8, 8];
        assert_eq!((code, &json["good"], &*lines), (1, &false.into(), &want[..]), "{json}");
        let (code, out, errors) = jobmeter_with(&[], &["check", &file]);
        assert_eq!((code, &*out), (1, ""), "{errors}");
        for (line, name) in [(1, "token"), (2, "ca.pem"), (3, "cert.pem")] {
            let place = format!("{file}:{line}:");
            let found = errors.lines().find(|messages| messages.starts_with(&place));
            assert!(found.is_some_and(|messages| messages.contains(name)), "{name}: {errors}");
        }
        assert!(errors.contains("missing does not exist"), "{errors}");
    }
    let file = path("agent.toml");
    std::fs::write(&file, format!("spool = '{}'\n", path("token"))).unwrap();
    let (code, _, errors) = jobmeter_with(&[], &["check", &file]);
    assert!(code == 1 && errors.starts_with(&format!("{file}:1:9: spool ")), "{errors}");
}

#[test]
fn a_folder_without_a_store_differs_from_a_file_and_from_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("file"), "").unwrap();
    std::fs::create_dir(path("empty")).unwrap();
    for (name, why) in [
        ("file", "Not a directory"),
        ("nowhere", "No such file or directory"),
        ("empty", "it contains no `samples`"),
    ] {
        let (data, copy) = (path(name), path("copy"));
        for words in [&["verify", "--data", &data][..], &["backup", "--to", &copy, "--data", &data]]
        {
            let (code, out, error) = jobmeter_with(&[], words);
            assert_eq!((code, &*out), (2, ""), "{error}");
            assert!(error.starts_with(&format!("jobmeter: {data}: {why}")), "{error}");
        }
    }
}
