//! Tests of commands with settings files: of the command itself, and of the node's agent.

use crate::exits::jobmeter_with;
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
