//! Labels are the text that a real PostgreSQL prints for the same `jsonb`, and their values its `->>`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests end at the first surprise, and start PostgreSQL"
)]

use model::Labels;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Generated texts.
const TEXTS: usize = 4000;

/// Runs the other script as an ordinary user: PostgreSQL refuses to run as root.
const AS_USER: &str = r#"
[ "$(id -u)" = 0 ] && exec setpriv --reuid=postgres --regid=postgres --clear-groups sh -c "$SCRIPT"
exec sh -c "$SCRIPT"
"#;

/// Makes a database in a folder of its own, and runs it without a server. Each line is one command.
const SCRIPT: &str = r#"
set -eu
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/in"
"$bin/initdb" --no-sync -D "$dir/data" -E UTF8 --locale=C.UTF-8 >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
"$bin/postgres" --single -D "$dir/data" -c fsync=off postgres >"$dir/log" 2>&1 <<SQL
create table given (id int, hex text)
copy given from '$dir/in'
create function canonical(hex text) returns text language plpgsql as 'begin return convert_from(decode(hex, ''hex''), ''UTF8'')::jsonb::text; exception when others then return null; end'
create table printed as select id, canonical(hex) as text from given
copy (select id, coalesce(encode(convert_to(text, 'UTF8'), 'hex'), '-'), coalesce(encode(convert_to(text::jsonb ->> 'a', 'UTF8'), 'hex'), '-') from printed order by id) to '$dir/out'
SQL
cat "$dir/out" || { cat "$dir/log" >&2; exit 1; }
"#;

#[test]
fn labels_are_what_postgresql_prints() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let members = prop::collection::vec(("\"[ab]{1,2}\"", "[ \n]{0,1}", json()), 0..5);
    let texts: Vec<String> =
        (0..TEXTS).map(|_| object(&members.new_tree(&mut runner).unwrap().current())).collect();
    let rows: String = texts.iter().enumerate().fold(String::new(), |mut rows, (id, text)| {
        writeln!(rows, "{id}\t{}", hex(text)).unwrap();
        rows
    });
    let (mut accepted, mut rejected) = (0, 0);
    for (line, text) in postgresql(&rows).lines().zip(&texts) {
        let fields: Vec<_> = line.split('\t').collect();
        let [_, printed, value] = fields[..] else { panic!("{line}") };
        let ours = Labels::from_json(text);
        if let Some(printed) = of_hex(printed) {
            accepted += 1;
            let ours = ours.unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(ours.as_str(), printed, "{text}");
            assert_eq!(ours.get("a"), of_hex(value), "{text}");
            assert_eq!(Labels::from_canonical(&printed).as_ref(), Ok(&ours), "{text}");
        } else {
            rejected += 1;
            // Only U+0000 is accepted by us and rejected by PostgreSQL.
            assert!(ours.is_err() || text.contains("\\u0000"), "{text}");
        }
    }
    assert_eq!(accepted + rejected, TEXTS, "an answer for each text");
    assert!(accepted > TEXTS / 3 && rejected > TEXTS / 50, "{accepted} {rejected}");
}

/// A JSON value with blanks, escapes, exponents and nested values; a small part is no JSON.
fn json() -> impl Strategy<Value = String> {
    let text = "([a-z]|é|😀|\\\\u00e9|\\\\ud83d\\\\ude00|\\\\n|\\\\\"|\\\\\\\\|\\\\/|\\\\u0001|\u{7f}){0,4}";
    let leaf = prop_oneof![
        16 => "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,2})?",
        16 => text.prop_map(|text| format!("\"{text}\"")),
        8 => prop_oneof![Just("true"), Just("false"), Just("null")].prop_map(str::to_owned),
        1 => "[0-9eE+.\\[\\]{}:,-]{1,4}",
        1 => "\"\\\\u?[0-9a-fx]{0,4}\"",
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let blank = "[ \n\t]{0,1}";
        let key = prop_oneof![3 => "\"[ab]{1,2}\"", 1 => "\"[a-c]{1,3}(\\\\u00e9)?\""];
        let items = prop::collection::vec((inner.clone(), blank), 0..4);
        let members = prop::collection::vec((key, blank, inner), 0..4);
        prop_oneof![
            items.prop_map(|items| {
                let items: Vec<_> =
                    items.iter().map(|(item, blank)| format!("{blank}{item}")).collect();
                format!("[{}]", items.join(","))
            }),
            members.prop_map(|members| object(&members)),
        ]
    })
}

fn object(members: &[(String, String, String)]) -> String {
    let members: Vec<_> =
        members.iter().map(|(key, blank, value)| format!("{blank}{key}:{blank}{value}")).collect();
    format!("{{{}}}", members.join(" ,"))
}

fn postgresql(rows: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", AS_USER]).env("SCRIPT", SCRIPT).env("LC_ALL", "C.UTF-8");
    command.current_dir("/").env_remove("TMPDIR").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(rows.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "PostgreSQL failed; `make test` installs it");
    String::from_utf8(output.stdout).unwrap()
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        write!(all, "{byte:02x}").unwrap();
        all
    })
}

fn of_hex(digits: &str) -> Option<String> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes = || digits.as_bytes().chunks(2).map(byte).collect();
    (digits != "-").then(|| String::from_utf8(bytes()).unwrap())
}
