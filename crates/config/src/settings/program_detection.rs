//! Detects the program of a file by its keys.

use crate::settings::setting::Setting;
use toml::de::{DeTable, DeValue};

/// The program of the settings in a text: the only one that knows some of its keys.
/// `None` if no key is specific to one program, or several programs have such keys.
pub fn detect_program<'a>(text: &str, programs: &[(&'a str, Vec<Setting>)]) -> Option<&'a str> {
    let (table, _) = DeTable::parse_recoverable(text);
    let mut keys = Vec::new();
    collect("", table.get_ref(), &mut keys);
    let mut found = None;
    for key in keys {
        let mut knowing = programs.iter().filter(|(_, settings)| knows(settings, &key));
        let (Some((program, _)), None) = (knowing.next(), knowing.next()) else { continue };
        if found.is_some_and(|found| found != *program) {
            return None;
        }
        found = Some(*program);
    }
    found
}

/// Collects every key of a table and of its subtables, in order.
fn collect(prefix: &str, table: &DeTable<'_>, keys: &mut Vec<String>) {
    for (name, value) in table {
        let key = match prefix {
            "" => name.get_ref().to_string(),
            _ => format!("{prefix}.{}", name.get_ref()),
        };
        if let DeValue::Table(table) = value.get_ref() {
            collect(&key, table, keys);
        }
        keys.push(key);
    }
}

/// Whether a key is one of these settings, or a table of them.
fn knows(settings: &[Setting], key: &str) -> bool {
    settings.iter().any(|setting| {
        let rest = setting.key.strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SourceSettings, agent_settings, client_settings, server_settings};

    #[test]
    fn a_specific_key_identifies_the_program() {
        let load = SourceSettings { name: "load", help: "Load.", period: None, options: &[] };
        let programs = [
            ("agent", agent_settings(&[load])),
            ("server", server_settings()),
            ("client", client_settings()),
        ];
        for (text, program) in [
            ("period = \"1s\"", Some("agent")),
            ("[sources.load]\nperid = 1", Some("agent")),
            ("listen = \"127.0.0.1:1\"\n[query]\nrows_max = 1", Some("server")),
            ("data = \"/a\"\nnonsense = ", Some("server")),
            ("nonsense = 1\nquery.rows_max = 1", Some("server")),
            // Keys common to several programs, specific to two programs, and unknown.
            ("[log]\nlevel = \"info\"", None),
            ("token_file = \"/a\"", None),
            ("period = \"1s\"\nlisten = \"127.0.0.1:1\"", None),
            ("nonsense = 1", None),
            ("", None),
            ("[[[", None),
        ] {
            assert_eq!(detect_program(text, &programs), program, "{text}");
        }
    }
}
