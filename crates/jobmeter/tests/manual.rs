//! Tests completion scripts and manual pages.
#![expect(clippy::unwrap_used, reason = "tests end at the first surprise")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn jobmeter(words: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobmeter"));
    // These commands read no settings, not even invalid ones.
    command.env("JOBMETER_CLIENT_FILE", "/nonexistent").args(words).output().unwrap()
}

fn output_of(words: &[&str]) -> String {
    let output = jobmeter(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script and further lines in bash; returns the output.
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
        let script = output_of(&["completions", "bash", program]);
        bash(&["-n"], &script);
        let last = format!(" -o bashdefault -o default {program}\n");
        assert!(script.contains(&last), "{script}");
    }
    let complete = |words: &str, last: usize| {
        let completion_script = format!(
            "\nCOMP_WORDS=({words}); COMP_CWORD={last}\n_jobmeter jobmeter \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"\n\
             echo \"${{COMPREPLY[@]}}\"\n"
        );
        bash(&[], &(output_of(&["completions", "bash"]) + &completion_script)).trim().to_owned()
    };
    assert_eq!(complete("jobmeter compl", 1), "completions");
    assert_eq!(complete("jobmeter sql --form", 2), "--format");
    assert_eq!(complete("jobmeter job st", 2), "start");
    assert_eq!(complete("jobmeter jobs --state run", 3), "running");
}

/// Whether a shell is installed; a test that needs a missing shell prints a message and ends.
fn has_shell(name: &str) -> bool {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&dirs).any(|dir| dir.join(name).is_file());
    if !found {
        eprintln!(
            "{name} is not installed: its completion is not executed; `apt-get install {name}` lets it be"
        );
    }
    found
}

/// Output of a shell command with this program's directory first in `PATH`.
fn shell(program: &str, arguments: &[&str]) -> String {
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_jobmeter")).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([own].into_iter().chain(std::env::split_paths(&path))).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a shell reads what is for a shell")]
    let mut command = Command::new(program);
    // The test uses no file of the user, and no server.
    let home = tempfile::tempdir().unwrap();
    command.env("HOME", home.path()).env("JOBMETER_SERVER", "http://127.0.0.1:1").env("PATH", path);
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Command lines, each with a word that a shell must offer.
const OFFERED: [(&str, &str); 6] = [
    ("jobmeter comp", "completions"),
    ("jobmeter sql --form", "--format"),
    ("jobmeter job st", "start"),
    ("jobmeter jobs --state run", "running"),
    ("jobmeter set --source taskst", "taskstats"),
    ("jobmeter sources cgro", "cgroup"),
];

#[test]
fn fish_completes_commands_flags_and_values() {
    if !has_shell("fish") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("jobmeter.fish");
    std::fs::write(&script, output_of(&["completions", "fish"])).unwrap();
    for (line, word) in OFFERED {
        let completion_script = format!("source {}; complete -C '{line}'", script.display());
        let answer = shell("fish", &["--no-config", "-c", &completion_script]);
        let mut words = answer.lines().map(|line| line.split('\t').next().unwrap());
        assert!(words.any(|offered| offered == word), "{line}: {answer}");
    }
}

/// Prints the completions that zsh offers for a line on its own terminal: `zsh -f -c ZSH_OFFERS zsh SCRIPT
/// LINE`.
const ZSH_OFFERS: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= PS2= RPS1=; stty -echo; autoload -Uz compinit; compinit -D -u"
zpty -w shell "source $1"
zpty -w shell 'bindkey "^I" complete-word
compadd () {
  [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]] && { builtin compadd "$@"; return }
  local -a offered; builtin compadd -A offered "$@"; builtin compadd "$@"
  for one in $offered; do print -r -- "<offered>$one</offered>"; done
}
finish () { print -r -- "<end>"; zle kill-whole-line }
zle -N finish; bindkey "^X" finish; print -r -- "<ready"">"'
zpty -r shell ready '*<ready>*'
zpty -w -n shell "$2"$'\t\x18'
zpty -r shell answer '*<end>*'
zpty -d shell
print -r -- $answer
"#;

#[test]
fn zsh_completes_commands_flags_and_values() {
    if !has_shell("zsh") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("_jobmeter");
    std::fs::write(&script, output_of(&["completions", "zsh"])).unwrap();
    for (line, word) in OFFERED {
        let script = script.to_str().unwrap();
        let answer = shell("zsh", &["-f", "-c", ZSH_OFFERS, "zsh", script, line]);
        assert!(answer.contains(&format!("<offered>{word}</offered>")), "{line}: {answer}");
    }
}

#[test]
fn other_shells_have_their_scripts() {
    let zsh = output_of(&["completions", "zsh", "jobmeter-server"]);
    assert!(zsh.starts_with("#compdef jobmeter-server\n"), "{zsh}");
    let fish = output_of(&["completions", "fish", "jobmeter-agent"]);
    assert!(fish.contains("complete -c jobmeter-agent -l sources-cpu-enabled "), "{fish}");
    assert_eq!(jobmeter(&["completions", "csh"]).status.code(), Some(2));
}

#[test]
fn pages_are_written_to_a_folder_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(output_of(&["man", path]), "");
    let page = std::fs::read_to_string(dir.path().join("jobmeter.1")).unwrap();
    assert_eq!(output_of(&["man"]), page);
    let agent = std::fs::read_to_string(dir.path().join("jobmeter-agent.1")).unwrap();
    assert!(agent.contains("How often the agent reads"), "{agent}");
    let output = jobmeter(&["man", "/nonexistent/folder"]);
    let output_of = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output_of.contains("/nonexistent/folder/"), "{output_of}");
}
