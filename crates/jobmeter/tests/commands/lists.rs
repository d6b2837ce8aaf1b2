//! Tests of lists: what is missing in them, and why.

use crate::exits::jobmeter_with;
use crate::serve::{HEALTH, serve};

const JOB: &str = r#"{"cluster":"slurm","id":8,"display_id":"8","user":"alice","uid":1000,"account":null,
    "project":null,"name":null,"queue":null,"state":"running","state_word":null,"submit":null,"start":0.5,
    "stop":null,"exit_code":null,"part_of":null,"array_index":null,"types":[],"requested":{},"used":{},
    "devices":["n1"]}"#;

fn jobmeter(url: &str, words: &[&str]) -> (i32, String, String) {
    jobmeter_with(&[], &[&["--server", url], words].concat())
}

/// Text that lives as long as the test server's thread.
fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn node(last_seen: &str) -> String {
    format!(
        r#"[{{"device":"n1","alive":true,"stopped":false,"last_seen":{last_seen},"period_seconds":5,
            "clock_offset_seconds":0,"agent_version":"","config_generation":"0","config_rejected":[],
            "source_errors":[],"sources_restricted":[],"series":1,"jobs":[],"cpu_cores_used":null,"cpu_cores":null,
            "memory_used_bytes":null,"memory_bytes":null}}]"#
    )
}

#[test]
fn a_full_list_for_scripts_states_that_there_may_be_more() {
    let entry = r#"[{"time":1,"actor":"uid 0","address":"::1","action":"POST /api/v1/flushes"}]"#;
    let url = serve(kept_table([
        ("/api/v1/health", HEALTH),
        ("/api/v1/jobs?", kept(format!("[{JOB}]"))),
        ("/api/v1/audit", entry),
    ]));
    for format in ["--json", "--csv"] {
        let (code, _, error) = jobmeter(&url, &["jobs", format, "--limit", "1"]);
        assert!(code == 0 && error.contains("there may be more"), "{error}");
        assert!(error.contains("--after slurm:8@0.5"), "{error}");
        assert_eq!(jobmeter(&url, &["jobs", format]).2, "", "50 jobs would be a full list");
        let (_, _, error) = jobmeter(&url, &["audit", format, "--limit", "1"]);
        assert!(error.contains("there may be older ones"), "{error}");
        assert_eq!(jobmeter(&url, &["audit", format]).2, "");
    }
}

#[test]
fn an_empty_list_of_nodes_has_its_reason() {
    let nodes = |sees: &str| {
        let me = format!(
            r#"{{"caller":"uid 7","role":"user","uid":7,"user":null,"sees_jobs":"own","sees_nodes":"{sees}"}}"#
        );
        let url = serve(kept_table([
            ("/api/v1/health", HEALTH),
            ("/api/v1/nodes", "[]"),
            ("/api/v1/me", kept(me)),
        ]));
        jobmeter(&url, &["nodes"]).1
    };
    assert!(nodes("own").contains("only the nodes of their own running jobs"));
    assert!(nodes("always").contains("no node has reported"));
}

fn kept_table<const N: usize>(
    table: [(&'static str, &'static str); N],
) -> &'static [(&'static str, &'static str)] {
    Box::leak(Box::new(table))
}

#[test]
fn a_job_without_samples_is_explained_by_its_nodes() {
    let report = format!(
        r#"{{"job":{JOB},"runs":[],"allocations":[],"nodes":[],"steps":[],"totals":{{"wall_seconds":0}},
            "metrics":[],"series":[],"gaps":[],"end":null,"oom_kills":[]}}"#
    );
    let url = |last_seen: &str| {
        serve(kept_table([
            ("/api/v1/health", HEALTH),
            ("/rpc/get_metrics", "timestamp,device_id\n"),
            ("/api/v1/explain", "[]"),
            ("/api/v1/jobs/slurm%3A8", kept(report.clone())),
            ("/api/v1/nodes", kept(node(last_seen))),
            (
                "/api/v1/last",
                r#"[{"device":"n1","metric":"agent_source_working","cluster":null,"job":null,
                    "labels":{"source":"cgroup"},"unit":"","kind":"gauge","time":1,"value":1}]"#,
            ),
            ("/api/v1/settings", "[]"),
            ("/api/v1/catalogue", "[]"),
        ]))
    };
    let words = ["explain", "cgroup_memory_bytes", "--job", "slurm:8"];
    let (code, out, error) = jobmeter(&url("1"), &words);
    assert_eq!((code, &*out), (1, ""), "{error}");
    let works = "jobmeter: n1: source cgroup works, but has no cgroup_memory_bytes of job slurm:8";
    assert!(error.starts_with(works) && error.contains("before the first reading"), "{error}");
    for words in [&words[..], &["get", "--job", "slurm:8", "--csv"]] {
        let (code, _, error) = jobmeter(&url("null"), words);
        assert!(code == 1 && error.contains("n1: this node has never reported"), "{error}");
    }
    let (_, _, error) = jobmeter(&url("1"), &["get", "--job", "slurm:8", "--csv"]);
    assert!(error.contains("`jobmeter explain cgroup_memory_bytes --job slurm:8`"), "{error}");
}

#[test]
fn a_table_of_rows_is_not_guarded_against_spreadsheets() {
    let url = serve(&[("/api/v1/sql", "at,formula\n,'=1+1\n")]);
    let (_, table, _) = jobmeter(&url, &["sql", "SELECT"]);
    assert!(table.contains("=1+1") && !table.contains('\''), "{table}");
    let (_, csv, _) = jobmeter(&url, &["sql", "--csv", "SELECT"]);
    assert!(csv.contains(",'=1+1"), "{csv}");
}

#[test]
fn an_unknown_node_of_a_change_is_named() {
    let url = serve(kept_table([
        ("/api/v1/settings", r#"{"id":3,"nodes_known":1,"nodes_reporting":1,"nodes_full":0}"#),
        ("/api/v1/nodes", kept(node("1"))),
    ]));
    let set = |nodes| {
        jobmeter(
            &url,
            &["set", "--nodes", nodes, "--source", "load", "--period", "1s", "--for", "1m"],
        )
    };
    let (code, out, error) = set("n1,nosuch,x[1-3]");
    assert_eq!((code, &*out), (1, "change 3 is active, for 1 reporting node\n"));
    assert_eq!(
        error,
        "jobmeter: no node `nosuch` has ever reported; change 3 is active for the others\n\
         jobmeter: after two periods, `jobmeter set --list` shows which nodes apply it or reject a part of it\n"
    );
    assert_eq!(set("n1").0, 0);
}

#[test]
fn a_job_with_an_id_that_cannot_be_printed_is_not_registered() {
    let (code, _, error) =
        jobmeter("http://127.0.0.1:1", &["job", "start", "local:5", "--user", "x"]);
    assert!(code == 2 && error.contains("omit the ID") && !error.contains("--cluster"), "{error}");
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut shell = std::process::Command::new("sh");
    let start =
        concat!(env!("CARGO_BIN_EXE_jobmeter"), " --server http://127.0.0.1:1 job start >&-");
    let output = shell.args(["-c", start]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("jobmeter: standard output is closed: "), "{error}");
}
