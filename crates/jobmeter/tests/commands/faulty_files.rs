//! Tests of commands with settings files: of the command itself, and of the node's agent.

use crate::exits::jobmeter_with;
use crate::serve::serve_with;
use std::path::Path;

fn written(dir: &Path, name: &str, text: &str) -> String {
    std::fs::write(dir.join(name), text).unwrap();
    dir.join(name).display().to_string()
}

#[test]
fn a_faulty_settings_file_does_not_stop_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing").display().to_string();
    let faulty = written(dir.path(), "faulty.toml", "sever = 'http://h'\n");
    let token = written(dir.path(), "token.toml", &format!("token_file = '{missing}'\n"));
    for file in [&missing, &faulty, &token] {
        let words = ["run", "--json", "--", "sh", "-c", "exit 3"];
        let (code, out, error) = jobmeter_with(&[("JOBMETER_CLIENT_FILE", file)], &words);
        assert!(code == 3 && out.contains("\"exit_code\":3"), "{file}: {code}: {error}");
        assert!(error.contains("the command runs without a server"), "{error}");
        let (code, _, error) = jobmeter_with(&[("JOBMETER_CLIENT_FILE", file)], &["nodes"]);
        assert_eq!(code, 2, "other commands need their settings: {error}");
    }
    // An option of this call is corrected by its user.
    let (code, out, error) = jobmeter_with(&[], &["--server", "h", "run", "--", "echo", "ran"]);
    assert!(code == 2 && !out.contains("ran"), "{error}");
}

#[test]
fn sources_are_read_as_the_agent_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/hosts/laptop-v2/1");
    let text = "[sources.load]\nenabled = false\n[sources.uptime]\noptional = true\n\
                [sources.disk]\ninclude = [\"nosuch\"]\n";
    let file = written(dir.path(), "agent.toml", text);
    let sources = |variables: &[(&str, &str)], words: &[&str]| {
        let (code, out, error) =
            jobmeter_with(variables, &[&["sources", "--root", root, "--csv"], words].concat());
        assert_eq!(code, 0, "{error}");
        let line = |name: &str| {
            let start = format!("{name},");
            out.lines().find(|line| line.starts_with(&start)).unwrap().to_owned()
        };
        (["load", "uptime", "disk"].map(line), error)
    };
    let ([load, uptime, disk], error) = sources(&[], &["--agent", &file]);
    assert!(
        load.starts_with("load,off,") && load.contains("sources.load.enabled is false"),
        "{load}"
    );
    assert!(uptime.starts_with("uptime,off,") && uptime.contains("optional"), "{uptime}");
    let ([.., all_disks], _) = sources(&[], &["--agent", "/dev/null"]);
    let is_empty = |line: &str| line.ends_with(",0,,0");
    assert!(is_empty(&disk) && !is_empty(&all_disks), "{disk} {all_disks}");
    assert_eq!(error, "");
    assert_eq!(sources(&[("JOBMETER_AGENT_FILE", &file)], &[]).0[..2], [load, uptime]);
    let faulty = written(dir.path(), "faulty.toml", "perod = 1\n");
    let ([.., disk], error) = sources(&[], &["--agent", &faulty]);
    assert!(disk.starts_with("disk,ok,") && !is_empty(&disk), "{disk}");
    assert!(error.contains("unknown key `perod`") && error.contains("use the defaults"), "{error}");
}

#[test]
fn an_unreadable_file_of_agent_settings_is_an_error_that_names_the_option() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/hosts/laptop-v2/1");
    for (file, why) in [
        ("/nonexistent.toml", "/nonexistent.toml: No such file or directory"),
        ("/dev/full", "/dev/full: it is not a regular file"),
    ] {
        let words = ["sources", "--root", root, "--agent", file];
        let (code, out, error) = jobmeter_with(&[], &words);
        assert_eq!((code, &*out), (2, ""), "{error}");
        assert!(error.contains(why) && !error.contains("--config"), "{error}");
    }
    let (_, _, error) = jobmeter_with(&[], &["sources", "--root", root, "--agent", "/nonexistent"]);
    assert!(error.contains("name another file with --agent"), "{error}");
}

#[test]
fn devices_are_no_files_of_settings_tokens_or_certificates() {
    let not = "/dev/full: it is not a regular file";
    for words in [
        &["check", "/dev/full"][..],
        &["check", "/dev/full", "--for", "agent"],
        &["--config", "/dev/full", "nodes"],
        &["--token-file", "/dev/full", "nodes"],
        &["--ca", "/dev/full", "nodes"],
    ] {
        let (code, out, error) = jobmeter_with(&[], words);
        assert!(code != 0 && out.is_empty() && error.contains(not), "{words:?}: {code}: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let long = written(dir.path(), "long.toml", &"#".repeat((1 << 20) + 1));
    let (code, _, error) = jobmeter_with(&[], &["check", &long, "--for", "client"]);
    let why = format!("{long}: it is longer than 1048576 bytes");
    assert!(code == 1 && error.contains(&why), "{code}: {error}");
}

#[test]
fn doctor_checks_the_named_server_with_the_named_files() {
    let dir = tempfile::tempdir().unwrap();
    let token = written(dir.path(), "token", "s3cret\n");
    let url = serve_with(|request| match request.line.starts_with("POST /v1/batches ") {
        true => ("415 Unsupported Media Type", String::new()),
        false => ("404 Not Found", String::new()),
    });
    let server = |words: &[&str]| {
        let common = ["doctor", "--agent", "/dev/null", "--for", "1ms", "--json"];
        let (_, out, error) = jobmeter_with(&[], &[&common, words].concat());
        let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        let facts = report["machine"].as_array().cloned().unwrap_or_default();
        let fact = facts.into_iter().find(|fact| fact["name"] == "server");
        let fact = fact.unwrap_or_else(|| panic!("{out}{error}"));
        (fact["state"].as_str().unwrap().to_owned(), fact["what"].as_str().unwrap().to_owned())
    };
    let (state, what) = server(&["--server", &url, "--token-file", &token]);
    assert_eq!((&*state, what), ("ok", format!("{url} accepts batches from this node")));
    let (state, what) = server(&["--server", "http://127.0.0.1:1"]);
    assert!(state == "broken" && what.starts_with("http://127.0.0.1:1: "), "{state} {what}");
    let (state, what) = server(&["--server", &url, "--token-file", "/dev/full"]);
    assert!(state == "broken" && what.contains("/dev/full"), "{state} {what}");
    let tls = url.replace("http:", "https:");
    let (state, what) = server(&["--server", &tls, "--ca", "/dev/full"]);
    assert!(state == "broken" && what.contains("/dev/full"), "{state} {what}");
}
