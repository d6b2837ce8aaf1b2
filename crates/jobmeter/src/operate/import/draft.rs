//! The configuration that `import` prints: a part for each program, with comments.

use super::secret_files::{SecretFiles, Written};
use crate::client::plain::plain;
use config::{Raw, quoted};
use std::fmt::Write as _;

/// Programs with a part, in the order of the output.
pub(super) const PROGRAMS: [&str; 3] = ["agent", "server", "poller"];

/// What an import found.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) agent: Part,
    pub(super) server: Part,
    pub(super) poller: Part,
    pub(super) secrets: SecretFiles,
    /// Errors of the input, with their places.
    pub(super) errors: Vec<String>,
}

/// The settings of one program.
#[derive(Default)]
pub(super) struct Part {
    comments: Vec<String>,
    settings: Vec<(String, Value)>,
}

enum Value {
    Raw(Raw),
    /// The path of the file with this secret.
    SecretFile(&'static str),
}

impl Draft {
    /// The text of all parts, or of one.
    pub(super) fn text(&self, written: &Written, only: Option<&str>) -> String {
        let parts = [&self.agent, &self.server, &self.poller];
        let parts = PROGRAMS
            .into_iter()
            .zip(parts)
            .filter(|(program, part)| only.is_none_or(|only| only == *program) && !part.is_empty());
        let texts: Vec<String> = parts
            .map(|(program, part)| {
                format!("# {program}: /etc/jobmeter/{program}.toml\n{}", part.text(written))
            })
            .collect();
        texts.join("\n")
    }
}

impl Part {
    /// Sets a key. A text of digits, `true` and `false` stand without quotes.
    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.settings.push((key.to_owned(), Value::Raw(Raw::One(value.to_owned()))));
    }

    pub(super) fn set_list(&mut self, key: &str, values: Vec<String>) {
        self.settings.push((key.to_owned(), Value::Raw(Raw::Many(values))));
    }

    pub(super) fn set_raw(&mut self, key: &str, value: Raw) {
        self.settings.push((key.to_owned(), Value::Raw(value)));
    }

    /// Sets a key to the path of the file with this secret.
    pub(super) fn set_secret_file(&mut self, key: &str, name: &'static str) {
        self.settings.push((key.to_owned(), Value::SecretFile(name)));
    }

    /// Adds a comment of one line.
    pub(super) fn comment(&mut self, text: impl Into<String>) {
        self.comments.push(text.into());
    }

    fn is_empty(&self) -> bool {
        self.comments.is_empty() && self.settings.is_empty()
    }

    /// Comments, then keys without a table, then each table once: TOML allows no other order.
    fn text(&self, written: &Written) -> String {
        let mut out = String::new();
        for comment in &self.comments {
            // Writing to a string cannot fail, here and below.
            writeln!(out, "# {}", plain(comment)).ok();
        }
        let mut tables: Vec<&str> = Vec::new();
        for (key, _) in &self.settings {
            let table = key.rsplit_once('.').map_or("", |(table, _)| table);
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        tables.sort_by_key(|table| !table.is_empty());
        for table in tables {
            if !table.is_empty() {
                writeln!(out, "\n[{table}]").ok();
            }
            for (key, value) in &self.settings {
                let (of, name) = key.rsplit_once('.').unwrap_or(("", key));
                if of == table {
                    writeln!(out, "{name} = {}", value.text(written)).ok();
                }
            }
        }
        out
    }
}

impl Value {
    fn text(&self, written: &Written) -> String {
        match self {
            Self::Raw(Raw::One(text)) if is_bare(text) => text.clone(),
            Self::Raw(Raw::One(text)) => quoted(text),
            Self::Raw(Raw::Many(texts)) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                format!("[{}]", texts.join(", "))
            }
            Self::SecretFile(name) => quoted(&written.path(name)),
        }
    }
}

/// Whether a text is a number or a truth value of TOML.
fn is_bare(text: &str) -> bool {
    let is_number = text.len() < 18
        && text.chars().all(|c| c.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'));
    matches!(text, "true" | "false") || is_number && !text.is_empty()
}
