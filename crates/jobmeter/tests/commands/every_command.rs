//! Tests that every command ends normally or with a message, and that none panics because it reads an option
//! that it does not have.

use crate::serve::{HEALTH, serve};
use std::process::{Command, Output, Stdio};

const HOST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/hosts/bare-6.18/1");

/// Arguments that a command needs to work; commands without an entry need none. `OUT` is a folder that does not
/// exist.
const NEEDED: [(&str, &[&str]); 31] = [
    // No user can create this folder.
    ("up", &["--data", "/proc/nowhere"]),
    ("run", &["--", "true"]),
    ("job", &["1"]),
    ("job start", &["--name", "x"]),
    ("job end", &["local:1"]),
    ("get", &["--device", "n1"]),
    ("explain", &["load_1m"]),
    ("sql", &["SELECT 1"]),
    ("set", &["--list"]),
    ("flush", &["--nodes", "n1", "--source", "cpu"]),
    ("promote", &["--list"]),
    ("token", &["list"]),
    ("token revoke", &["7"]),
    ("account", &["list"]),
    ("account show", &["a"]),
    ("account allow", &["a", "all"]),
    ("account add", &["a", "ann"]),
    ("account remove", &["a", "ann"]),
    ("account create", &["a"]),
    ("account delete", &["a"]),
    ("sources", &["--root", HOST]),
    ("doctor", &["--root", HOST]),
    ("capture", &["load", "--root", HOST, "--agent", "/dev/null", "--out", "OUT"]),
    ("check", &["/dev/null", "--for", "agent"]),
    ("verify", &["--data", "OUT"]),
    ("backup", &["--data", "OUT", "--to", "OUT"]),
    ("completions", &["bash"]),
    ("man", &[]),
    ("server", &["--help"]),
    ("jobs", &["--check"]),
    ("top", &["--cluster"]),
];

fn jobmeter(words: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

/// The commands in a help text: lines with two blanks and a name, before the options.
fn commands_in(help: &str) -> Vec<String> {
    let list = help.split("\nOptions:").next().unwrap();
    let name = |line: &str| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase());
        (is_name && name != "help").then(|| name.to_owned())
    };
    list.lines().filter_map(name).collect()
}

/// All commands, such as `job start`.
fn all() -> Vec<String> {
    let help = |words: &[&str]| {
        let out = jobmeter(&[words, &["--help"]].concat());
        assert_eq!(out.status.code(), Some(0), "{words:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    let mut names = Vec::new();
    for name in commands_in(&help(&[])) {
        // The server is a separate program, which may be missing.
        if name != "server" {
            let inner = commands_in(&help(&[&name]));
            names.extend(inner.iter().map(|inner| format!("{name} {inner}")));
        }
        names.push(name);
    }
    names
}

#[test]
fn no_command_panics() {
    let names = all();
    assert!(names.len() > 30 && names.iter().any(|name| name == "job start"), "{names:?}");
    let url = serve(&[("/api/v1/health", HEALTH), ("", "[]")]);
    let dir = tempfile::tempdir().unwrap();
    for (place, name) in names.iter().enumerate() {
        let out = dir.path().join(place.to_string()).display().to_string();
        let words: Vec<&str> = name.split(' ').collect();
        let needed = NEEDED.iter().find(|(needs, _)| needs == name).map_or(&[][..], |it| it.1);
        let needed: Vec<&str> =
            needed.iter().map(|word| if *word == "OUT" { &*out } else { word }).collect();
        let server = ["--server", &*url];
        for arguments in [[&server[..], &words, &needed].concat(), [&server[..], &words].concat()] {
            // These start long-running programs, or measure this machine for 1 min.
            if arguments.len() == 3 && matches!(&**name, "up" | "server" | "doctor") {
                continue;
            }
            let output = jobmeter(&arguments);
            let errors = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            let is_well = matches!(code, Some(0..=2)) && !errors.contains("panicked");
            assert!(is_well, "{arguments:?}: {code:?}: {errors}");
        }
    }
}
