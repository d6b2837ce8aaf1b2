//! Tests that the programs accept every command in README and the guides, with its options and arguments.

use std::path::Path;

const DOCUMENTS: [&str; 7] = [
    "README.md",
    "docs/guide/user.md",
    "docs/guide/operator.md",
    "docs/guide/developer.md",
    "docs/guide/from-colmet.md",
    "docs/guide/from-fructosa.md",
    "docs/guide/from-kwollect.md",
];
/// Program names in the documents.
const PROGRAMS: [&str; 4] = ["./jobmeter", "jobmeter", "jobmeter-agent", "jobmeter-server"];

/// The words of the first command in a line, split as by a shell. Quotes preserve blanks; `#`, `|`, `;`, `&` and
/// `>` end the command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, '#' | '|' | ';' | '&' | '>') if !is_word => break,
            (None, ';' | '|' | ')') => break,
            (None, ' ') => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (_, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

/// The commands of the programs in a document's indented or fenced blocks, with their line numbers. A line that
/// ends with `\\` continues.
fn commands(text: &str) -> Vec<(usize, Vec<String>)> {
    let (mut found, mut is_fenced) = (Vec::new(), false);
    let mut lines = text.lines().enumerate();
    while let Some((place, line)) = lines.next() {
        is_fenced ^= line.starts_with("```");
        let line = if is_fenced { Some(line) } else { line.strip_prefix("    ") };
        let Some(line) = line else { continue };
        let mut command = line.trim().to_owned();
        while let Some(begun) = command.strip_suffix('\\') {
            let more = lines.next().map_or("", |(_, line)| line.trim());
            command = format!("{begun} {more}");
        }
        // A command's output may be assigned to a variable.
        let command = command.split_once("=$(").map_or(&*command, |(_, command)| command);
        let words = words(command.strip_prefix("sudo ").unwrap_or(command));
        if words.first().is_some_and(|first| PROGRAMS.contains(&&**first)) {
            found.push((place + 1, words));
        }
    }
    found
}

#[test]
fn the_commands_of_the_documents_are_taken() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut count, mut wrong) = (0, Vec::new());
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(repository.join(document)).unwrap();
        for (line, words) in commands(&text) {
            count += 1;
            let command = match &*words[0] {
                "jobmeter-agent" => config::agent_command(&agent::source_settings()),
                "jobmeter-server" => config::server_command(),
                _ => super::command(),
            };
            if let Err(error) = command.try_get_matches_from(&words)
                && error.use_stderr()
            {
                wrong.push(format!("{document}:{line}: {words:?}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 40, "{count}");
}

#[test]
fn a_line_is_split_as_a_shell_does() {
    assert_eq!(
        words("jobmeter sql \"SELECT 1\" --json | head"),
        ["jobmeter", "sql", "SELECT 1", "--json"]
    );
    assert_eq!(words("jobmeter promote 'perf_.*'   # why"), ["jobmeter", "promote", "perf_.*"]);
    let text = "    jobmeter jobs \\\n        --json\n    id=$(jobmeter job start)\n  jobmeter nope\n\
                ```sh run\njobmeter nodes\n```\njobmeter nope\n";
    let found: Vec<Vec<String>> = commands(text).into_iter().map(|(_, words)| words).collect();
    assert_eq!(
        found,
        [
            vec!["jobmeter", "jobs", "--json"],
            vec!["jobmeter", "job", "start"],
            vec!["jobmeter", "nodes"]
        ]
    );
}
