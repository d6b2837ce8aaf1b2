//! Tests: every option of the command lines of Colmet's collectors, and what it changes in the server's settings.

use super::*;
use crate::node::colmet_node::verbosity::with_levels;
use clap::Parser as _;
use config::{ConfigFile, ConfigInputs, ServerConfig};
use std::ffi::OsString;

fn options(words: &[&str]) -> Result<Options, clap::Error> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let name = OsString::from("colmet-collector");
    Options::try_parse_from([name].iter().chain(&with_levels(&words)))
}

const LOCAL: [&str; 2] = ["--zeromq-bind-uri", "tcp://127.0.0.1:5556"];
const STDOUT: &str = "--enable-stdout-backend";

/// The settings of a server with these options, as it reads them from the file.
fn config(words: &[&str]) -> ServerConfig {
    let dir = tempfile::tempdir().unwrap();
    let text = text(&options(words).unwrap(), Path::new("/data")).unwrap();
    let file = dir.path().join("server.toml");
    std::fs::write(&file, &text).unwrap();
    let file = ConfigFile::Given(file);
    let given = ConfigInputs { file, environment: &|_| None, flags: Vec::new() };
    match config::load_server(&given, &outputs::kinds()) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

/// The lines of the settings that these words change.
fn lines(base: &[&str], words: &[&str]) -> Vec<String> {
    let text = |words: &[&str]| text(&options(words).unwrap(), Path::new("/data")).unwrap();
    let before = text(base);
    let before: Vec<&str> = before.lines().collect();
    let after = text(&[base, words].concat());
    config(&[base, words].concat());
    after.lines().filter(|line| !before.contains(line)).map(str::to_owned).collect()
}

/// Every option of colmet-collector 0.6.10 (`-s`, `--buffer-size`, …), of the collector in Rust and of that of colmet-rs, in each
/// of its forms: the options beside it, and the settings that it changes.
const CASES: [(&str, &[&str], &[&str]); 35] = [
    ("stdout", &["-v"], &["level = \"info\""]),
    ("stdout", &["--verbose"], &["level = \"info\""]),
    ("stdout", &["-v", "-v"], &["level = \"debug\""]),
    ("stdout", &["-vvv"], &["level = \"debug\""]),
    ("stdout", &["-v", "0"], &["level = \"error\""]),
    ("stdout", &["-v2"], &["level = \"info\""]),
    ("stdout", &["--verbose=4"], &["level = \"trace\""]),
    ("stdout", &["-s", "3"], &[]),
    ("stdout", &["--sample-period", "0.5"], &[]),
    ("stdout", &["--buffer-size", "5000"], &[]),
    ("stdout", &["--zeromq-hwm", "0"], &[]),
    ("stdout", &["--zeromq-linger", "-1"], &[]),
    (
        "hdf5",
        &[STDOUT],
        &["[outputs.stdout]", "kind = \"file\"", "path = \"-\"", "format = \"colmet\""],
    ),
    ("hdf5", &["--enable-stdout", "false"], &[]),
    (
        "hdf5",
        &["--enable-stdout", "true"],
        &["[outputs.stdout]", "kind = \"file\"", "path = \"-\"", "format = \"colmet\""],
    ),
    ("bare", &["--zeromq-bind-uri", "tcp://127.0.0.1:1"], &["listen = [\"tcp://127.0.0.1:1\"]"]),
    ("bare", &["--zeromq-uri", "tcp://[::1]:1"], &["listen = [\"tcp://[::1]:1\"]"]),
    (
        "stdout",
        &["--hdf5-filepath", "/h/data"],
        &[
            "[outputs.hdf5]",
            "kind = \"hdf5\"",
            "path = \"/h/data\"",
            "complevel = \"0\"",
            "mode = \"0640\"",
        ],
    ),
    ("hdf5", &["--hdf5-complevel", "5"], &["complevel = \"5\"", "complib = \"zlib\""]),
    ("hdf5", &["--hdf5-complib", "zlib"], &[]),
    ("hdf5", &["--hdf5-complib", "blosc"], &[]),
    (
        "stdout",
        &["--elastic-host", "http://es:9200"],
        &[
            "[outputs.elasticsearch]",
            "kind = \"elasticsearch\"",
            "address = \"http://es:9200\"",
            "layout = \"colmet\"",
            "index = \"colmet_\"",
        ],
    ),
    ("elastic", &["--elastic-index-prefix", "my_"], &["index = \"my_\""]),
    ("elastic", &["-P", "/p"], &["auth = \"basic\"", "auth_file = \"/p\""]),
    ("elastic", &["--http-credentials", "/p"], &["auth = \"basic\"", "auth_file = \"/p\""]),
    ("elastic", &["--no-check-certificates"], &["verify = false"]),
    ("elastic", &["--elastic-server-uids", "7,8"], &["server_uids = [\"7\", \"8\"]"]),
    ("stdout", &["--hosts", "n-[1-9]"], &["hosts = \"n-[1-9]\""]),
    (
        "stdout",
        &["--networks", "10.1.0.0/16,fd00::/8"],
        &["networks = [\"10.1.0.0/16\", \"fd00::/8\"]"],
    ),
    ("stdout", &["--cluster", "paris"], &["cluster = \"paris\"", "cluster = \"paris\""]),
    ("stdout", &["--domain", "example.org"], &["domain = \"example.org\""]),
    ("stdout", &["--mapping-dir", "/m"], &["mapping_dir = \"/m\""]),
    ("hdf5", &["--hdf5-mode", "0644"], &["mode = \"0644\""]),
    ("hdf5", &["--hdf5-group", "0"], &["group = \"0\""]),
    ("stdout", &["--listen", "127.0.0.1:9"], &["listen = [\"127.0.0.1:9\"]"]),
];

fn beside(name: &str) -> Vec<&'static str> {
    let more: &[&str] = match name {
        "stdout" => &[STDOUT],
        "hdf5" => &["--hdf5-filepath", "/h/data"],
        "elastic" => &["--elastic-host", "http://es:9200"],
        _ => return vec![STDOUT],
    };
    [&LOCAL[..], more].concat()
}

#[test]
fn every_option_has_its_meaning() {
    for (base, words, changed) in CASES {
        let is_bare = base == "bare";
        let base = beside(base);
        if is_bare {
            let given = [&base, words].concat();
            let text = text(&options(&given).unwrap(), Path::new("/data")).unwrap();
            assert!(changed.iter().all(|line| text.contains(line)), "{words:?}: {text}");
            config(&given);
            continue;
        }
        assert_eq!(lines(&base, words), changed, "{words:?}");
    }
    let help = options(&["--help"]).unwrap_err().to_string();
    let tested = CASES.iter().flat_map(|(_, words, _)| *words).copied();
    let tested: Vec<&str> = tested.collect();
    for word in help.split_whitespace().filter(|word| word.starts_with("--")) {
        let name = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-');
        let elsewhere = ["--help", "--version", "--data"];
        let is_tested = tested.iter().any(|one| one.split('=').next() == Some(name));
        assert!(is_tested || elsewhere.contains(&name), "{name} is in no line of the table");
    }
}
