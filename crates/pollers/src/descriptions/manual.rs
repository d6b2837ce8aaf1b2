//! The manual of a protocol for a terminal, and the reference of the description files.

use super::key_list::KEYS;
use crate::protocols::{PROTOCOLS, ProtocolSpec};
use model::Unit;
use std::fmt::Write as _;

/// The manual of a protocol for a terminal. Writing to a string cannot fail.
pub fn manual(spec: &ProtocolSpec) -> String {
    let mut out =
        format!("{}: {}\n\n  read by  pollers (`jobmeter poll DIR`)\n", spec.name, spec.help);
    let row = |out: &mut String, name: &str, text: &str| {
        writeln!(out, "  {name}\n      {text}").ok();
    };
    out.push_str("\nURLs:\n");
    spec.urls.iter().for_each(|(form, meaning)| row(&mut out, form, meaning));
    out.push_str("\nparts of a URL:\n");
    for (name, default, help) in spec.parts {
        row(&mut out, &with_default(name, default), help);
    }
    writeln!(out, "\nvalues:\n  {}", spec.values).ok();
    out.push_str("\nfailures, by the cause of the gap:\n");
    spec.failures.iter().for_each(|(cause, text)| row(&mut out, cause.words(), text));
    out.push_str("\nkeys of an entry:\n");
    for key in &KEYS {
        row(
            &mut out,
            &format!("{}  ({})", with_default(key.name, key.default), key.value),
            key.help,
        );
    }
    out.push_str("\nexamples:\n");
    for line in spec.examples.iter().flat_map(|example| example.lines()) {
        writeln!(out, "  {line}").ok();
    }
    out
}

fn with_default(name: &str, default: &str) -> String {
    if default.is_empty() { name.to_owned() } else { format!("{name} [default: {default}]") }
}

/// The reference of the description files as Markdown.
pub fn reference() -> String {
    let mut out = String::from(
        "# Description files

A description file names metrics, their devices, and the URLs by which a poller reads them. It is a list of entries, or one entry, in
YAML 1.1 as PyYAML reads it. A folder of such files is the argument of `jobmeter poll`, and `jobmeter check DIR` lists their errors.
`jobmeter sources PROTOCOL` prints the part of a protocol. Generated from the programs by `make docs`.

## Keys of an entry

Kwollect 1.3.1 ends at a file with a key that it does not accept. A wrong value drops its entry, an unknown key is a warning.

| key | value | default | meaning | Kwollect |
|---|---|---|---|---|
",
    );
    for key in &KEYS {
        let default = if key.default.is_empty() { "mandatory" } else { key.default };
        let accepts = if key.is_of_kwollect { "yes" } else { "no" };
        cells(&mut out, &[&code(key.name), key.value, default, key.help, accepts]);
    }
    let units = Unit::ALL.map(|unit| if unit.word().is_empty() { "count" } else { unit.word() });
    writeln!(out, "\nUnits are `{}`.", units.join("`, `")).ok();
    out.push_str(
        "\nEvery part of a URL is percent-decoded. Write `/`, `?`, `#`, `@` and `:` in a user or password as `%2F`, `%3F`, `%23`, `%40` and `%3A`, and an
IPv6 address in brackets. No message shows a URL, because it may have a password.\n",
    );
    PROTOCOLS.iter().for_each(|spec| section(&mut out, spec));
    out
}

fn section(out: &mut String, spec: &ProtocolSpec) {
    write!(out, "\n## {}\n\n{}\n", spec.name, spec.help).ok();
    out.push_str("\n| URL | meaning |\n|---|---|\n");
    spec.urls.iter().for_each(|(form, meaning)| cells(out, &[&code(form), meaning]));
    out.push_str("\n| part | default | meaning |\n|---|---|---|\n");
    spec.parts.iter().for_each(|(name, default, help)| cells(out, &[&code(name), default, help]));
    write!(out, "\nValues: {}\n", spec.values).ok();
    out.push_str("\n| cause of the gap | failure |\n|---|---|\n");
    spec.failures.iter().for_each(|(cause, text)| cells(out, &[cause.words(), text]));
    out.push('\n');
    for line in spec.examples.iter().flat_map(|example| example.lines()) {
        writeln!(out, "    {line}").ok();
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn cells(out: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    writeln!(out, "| {} |", cells.join(" | ")).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;

    #[test]
    fn both_manuals_have_every_form_part_key_and_example() {
        let reference = reference().replace("\\|", "|");
        for spec in PROTOCOLS {
            let manual = manual(spec);
            let rows = spec.urls.iter().map(|(form, _)| *form);
            let rows = rows.chain(spec.parts.iter().map(|(name, ..)| *name));
            for name in rows.chain(KEYS.iter().map(|key| key.name)) {
                assert!(manual.contains(&format!("\n  {name}")), "{name}\n{manual}");
                assert!(reference.contains(&format!("\n| `{name}` |")), "{name}");
            }
            for line in spec.examples.iter().flat_map(|example| example.lines()) {
                assert!(manual.contains(line) && reference.contains(line), "{line}");
            }
        }
    }

    #[test]
    fn stated_defaults_are_those_of_an_entry() {
        let [entry] = &entries_of("{name: a, device_id: d, url: 'snmp://h/1.3'}")[..] else {
            panic!("one entry");
        };
        let default = |name: &str| KEYS.iter().find(|key| key.name == name).unwrap().default;
        assert_eq!(default("update_every"), entry.period.as_millis().to_string());
        assert_eq!(
            default("timeout"),
            format!("the period, {} at most", entry.timeout.as_millis())
        );
        assert_eq!(default("optional"), entry.is_optional.to_string());
        assert_eq!(default("labels"), entry.labels.to_string());
        for key in KEYS.iter().filter(|key| key.default.is_empty()) {
            assert!(["name", "device_id", "url"].contains(&key.name), "{}", key.name);
        }
    }
}
