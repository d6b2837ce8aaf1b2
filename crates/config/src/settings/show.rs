//! Prints a configuration, and the manual of its settings.

use crate::settings::load::Values;
use crate::settings::setting::{Kind, Setting};
use crate::settings::text::Raw;
use std::fmt::Write;

/// The configuration as a file that reproduces it, each line with the origin of its value.
pub(crate) fn show(values: &Values) -> String {
    let mut out = String::new();
    let mut table = String::new();
    // Keys without a table come first, as TOML requires.
    let (tables, top): (Vec<_>, Vec<_>) =
        values.settings().iter().partition(|s| s.key.contains('.'));
    for setting in top.into_iter().chain(tables) {
        let Some((raw, origin)) = values.raw(&setting.key) else { continue };
        let (here, name) = setting.key.rsplit_once('.').unwrap_or(("", &setting.key));
        if here != table {
            // Writing to a string cannot fail, here and below.
            writeln!(out, "\n[{here}]").ok();
            here.clone_into(&mut table);
        }
        let line = format!("{name} = {}", value(setting, raw));
        let unset = if is_empty(raw) && !setting.unset.is_empty() {
            format!(": {}", setting.unset)
        } else {
            String::new()
        };
        writeln!(out, "{line:<40} # {origin}{unset}").ok();
    }
    out
}

fn is_empty(raw: &Raw) -> bool {
    match raw {
        Raw::One(text) => text.is_empty(),
        Raw::Many(texts) => texts.is_empty(),
    }
}

impl Setting {
    /// Its default, in the syntax of a file.
    pub fn default_in_file(&self) -> String {
        value(self, &Raw::One(self.default.to_string()))
    }

    /// Its default in a manual: the text, or the meaning of an empty value.
    pub fn default_in_words(&self) -> String {
        match &*self.default {
            "" => self.unset.to_owned(),
            default => format!("`{default}`"),
        }
    }
}

fn value(setting: &Setting, raw: &Raw) -> String {
    match (setting.kind, raw) {
        // A boolean in place of a list.
        (kind, raw) if kind.is_list() && matches!(&raw.list()[..], [one] if is_truth(one)) => {
            raw.list().concat()
        }
        (kind, raw) if kind.is_list() => {
            let texts: Vec<_> = raw.list().iter().map(|text| quoted(text)).collect();
            format!("[{}]", texts.join(", "))
        }
        (Kind::Command(_), Raw::One(text)) if text.is_empty() => "[]".to_owned(),
        (Kind::Command(_), Raw::Many(texts)) => {
            let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
            format!("[{}]", texts.join(", "))
        }
        (_, Raw::Many(texts)) => texts.first().map_or_else(|| quoted(""), |text| quoted(text)),
        (Kind::Switch | Kind::Number { .. }, Raw::One(text)) if !text.is_empty() => text.clone(),
        (_, Raw::One(text)) => quoted(text),
    }
}

fn is_truth(text: &str) -> bool {
    matches!(text, "true" | "false")
}

fn unless_in_file_only(setting: &Setting, name: fn(&Setting) -> String) -> String {
    if setting.in_file_only { "none".to_owned() } else { format!("`{}`", name(setting)) }
}

/// A basic string of TOML.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if model::is_unprintable(c) => {
                write!(out, "\\u{:04X}", u32::from(c)).ok();
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The manual of settings, in Markdown.
pub fn reference(settings: &[Setting]) -> String {
    let mut out = String::new();
    let mut topic = "";
    for setting in settings {
        if setting.topic != topic {
            topic = &setting.topic;
            // Writing to a string cannot fail, here and below.
            writeln!(out, "\n## {topic}\n\n| key | flag | variable | value | default | meaning |")
                .ok();
            writeln!(out, "|---|---|---|---|---|---|").ok();
        }
        let cells = [
            format!("`{}`", setting.key),
            unless_in_file_only(setting, Setting::flag),
            unless_in_file_only(setting, Setting::variable),
            setting.kind.wants(),
            setting.default_in_words(),
            setting.help.trim().to_owned(),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        writeln!(out, "| {} |", cells.join(" | ")).ok();
    }
    out
}
