//! What the command tells to shells, and where it writes its pages.
#![expect(clippy::unwrap_used, reason = "tests end at the first surprise")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn jobmeter(words: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    // What tells of the programs reads no settings, also none that are wrong.
    command.env("JOBMETER_CLIENT_FILE", "/nonexistent").args(words).output().unwrap()
}

fn told(words: &[&str]) -> String {
    let output = jobmeter(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Gives a shell a script and lines after it; what it prints.
fn bash(arguments: &[&str], text: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "a shell reads what is for a shell")]
    let mut bash = Command::new("bash");
    let mut bash = bash
        .args(["--norc", "--noprofile"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_and_flags() {
    for program in ["jobmeter", "jobmeter-agent", "jobmeter-server"] {
        let script = told(&["completions", "bash", program]);
        bash(&["-n"], &script);
        let last = format!(" -o bashdefault -o default {program}\n");
        assert!(script.contains(&last), "{script}");
    }
    let complete = |words: &str, last: usize| {
        let ask = format!(
            "\nCOMP_WORDS=({words}); COMP_CWORD={last}\n_jobmeter jobmeter \"${{COMP_WORDS[{last}]}}\"\n\
             echo \"${{COMPREPLY[@]}}\"\n"
        );
        bash(&[], &(told(&["completions", "bash"]) + &ask)).trim().to_owned()
    };
    assert_eq!(complete("jobmeter comp", 1), "completions");
    assert_eq!(complete("jobmeter sql --form", 2), "--format");
    assert_eq!(complete("jobmeter job st", 2), "start");
}

#[test]
fn other_shells_have_their_scripts() {
    let zsh = told(&["completions", "zsh", "jobmeter-server"]);
    assert!(zsh.starts_with("#compdef jobmeter-server\n"), "{zsh}");
    let fish = told(&["completions", "fish", "jobmeter-agent"]);
    assert!(fish.contains("complete -c jobmeter-agent -l sources-cpu-enabled "), "{fish}");
    assert_eq!(jobmeter(&["completions", "csh"]).status.code(), Some(2));
}

#[test]
fn pages_are_written_to_a_folder_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(told(&["man", path]), "");
    let page = std::fs::read_to_string(dir.path().join("jobmeter.1")).unwrap();
    assert_eq!(told(&["man"]), page);
    let agent = std::fs::read_to_string(dir.path().join("jobmeter-agent.1")).unwrap();
    assert!(agent.contains("How often it is read"), "{agent}");
    let output = jobmeter(&["man", "/nonexistent/folder"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(told.contains("/nonexistent/folder/"), "{told}");
}
