//! Which program a file is for, by what stands in it.

use crate::settings::setting::Setting;
use toml::de::{DeTable, DeValue};

/// The program whose settings a text holds: the one that alone knows some of its keys. `None` where no
/// key is of one program alone, or several programs have such keys.
pub fn whose<'a>(text: &str, programs: &[(&'a str, Vec<Setting>)]) -> Option<&'a str> {
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

/// Every key of a table and of those in it, with those before it.
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

/// Whether a key is one of these settings, or a table of some.
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
    fn a_key_of_one_program_alone_tells_whose_file_it_is() {
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
            // Of several, of two at once, of none.
            ("[log]\nlevel = \"info\"", None),
            ("token_file = \"/a\"", None),
            ("period = \"1s\"\nlisten = \"127.0.0.1:1\"", None),
            ("nonsense = 1", None),
            ("", None),
            ("[[[", None),
        ] {
            assert_eq!(whose(text, &programs), program, "{text}");
        }
    }
}
