//! A TOML file as a layer of values, each with its line and column.

use crate::settings::load::{ConfigError, ValueOrigin, meant, unknown};
use crate::settings::setting::Setting;
use crate::settings::text::Raw;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// The values of a file, each with its key and place.
#[derive(Debug, Default)]
pub(crate) struct FileValues {
    pub(crate) found: Vec<(String, Raw, ValueOrigin)>,
    /// Values of mistyped keys, each with the key that is probably meant.
    pub(crate) guessed: Vec<(String, Raw, ValueOrigin)>,
}

/// The values of a file. Adds every syntax error and every unknown key to `errors`.
pub(crate) fn read(
    path: &Path,
    text: &str,
    TableSettings { settings, wrong_keys }: TableSettings<'_>,
    errors: &mut Vec<ConfigError>,
) -> FileValues {
    let (table, wrong) = DeTable::parse_recoverable(text);
    let (values, before) = (FileValues::default(), errors.len());
    let mut reader = Reader {
        path: Arc::from(path),
        text,
        settings,
        wrong_keys,
        errors,
        values,
        guesses: false,
    };
    for error in wrong {
        let what = error.message().replace('\n', ", ");
        reader.error(error.span().unwrap_or_default(), what);
    }
    let broken: Vec<ValueOrigin> =
        reader.errors.iter().skip(before).map(|error| error.place.clone()).collect();
    reader.table("", table.get_ref());
    let mut values = reader.values;
    // A value with a syntax error has this error alone.
    values.found.retain(|(_, _, place)| !broken.contains(place));
    values.guessed.retain(|(_, _, place)| !broken.contains(place));
    values
}

/// A key of a file that is no setting, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrongKey {
    pub(crate) key: String,
    pub(crate) what: String,
}

/// What a file may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSettings<'a> {
    pub(crate) settings: &'a [Setting],
    pub(crate) wrong_keys: &'a [WrongKey],
}

struct Reader<'a> {
    path: Arc<Path>,
    text: &'a str,
    settings: &'a [Setting],
    wrong_keys: &'a [WrongKey],
    errors: &'a mut Vec<ConfigError>,
    values: FileValues,
    /// Whether the values are below a mistyped key.
    guesses: bool,
}

impl Reader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        // The parser orders by key; errors and values are reported in the file's order.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let key = match prefix {
                "" => name.get_ref().to_string(),
                _ => format!("{prefix}.{}", name.get_ref()),
            };
            if self.is_known(&key) {
                self.value(key, value);
                continue;
            }
            if let Some(WrongKey { what, .. }) = self.wrong_keys.iter().find(|one| one.key == key) {
                self.error(name.span(), what.clone());
                continue;
            }
            self.error(name.span(), unknown(&key, self.settings));
            if let Some(meant) = meant(&key, self.settings).filter(|key| self.is_known(key)) {
                let outer = std::mem::replace(&mut self.guesses, true);
                self.value(meant, value);
                self.guesses = outer;
            }
        }
    }

    /// Whether this is the key of a setting, or of a table of settings or of wrong keys.
    fn is_known(&self, key: &str) -> bool {
        let is_in_it = |rest: &str| rest.starts_with('.');
        let is_it = |rest: &str| rest.is_empty() || is_in_it(rest);
        self.settings.iter().any(|setting| setting.key.strip_prefix(key).is_some_and(is_it))
            || self.wrong_keys.iter().any(|one| one.key.strip_prefix(key).is_some_and(is_in_it))
    }

    fn value(&mut self, key: String, value: &Spanned<DeValue<'_>>) {
        if self.settings.iter().any(|setting| setting.key == key) {
            match raw(value.get_ref()) {
                Ok(raw) => {
                    let one = (key, raw, self.origin(value.span()));
                    let FileValues { found, guessed } = &mut self.values;
                    if self.guesses { guessed.push(one) } else { found.push(one) }
                }
                Err(is) => self.error(value.span(), format!("`{key}` cannot be {is}")),
            }
            return;
        }
        match value.get_ref() {
            DeValue::Table(table) => self.table(&key, table),
            DeValue::Array(array) if self.is_numbered(&key, 0) => self.array(&key, array),
            other => {
                let what = format!("`{key}` is a table of settings, not {}", other.type_str());
                self.error(value.span(), what);
            }
        }
    }

    /// Repeated tables of one name: the settings of the first are `NAME.0.…`.
    fn array(&mut self, key: &str, array: &DeArray<'_>) {
        for (number, value) in array.iter().enumerate() {
            match value.get_ref() {
                _ if !self.is_numbered(key, number) => {
                    let what = format!("`{key}` has more than {number} entries");
                    return self.error(value.span(), what);
                }
                DeValue::Table(table) => self.table(&format!("{key}.{number}"), table),
                other => {
                    let what = format!("`{key}` has tables of settings, not {}", other.type_str());
                    self.error(value.span(), what);
                }
            }
        }
    }

    fn is_numbered(&self, key: &str, number: usize) -> bool {
        let prefix = format!("{key}.{number}.");
        self.settings.iter().any(|setting| setting.key.starts_with(&prefix))
    }

    fn error(&mut self, span: Range<usize>, what: String) {
        let place = self.origin(span);
        self.errors.push(ConfigError { place, what });
    }

    fn origin(&self, span: Range<usize>) -> ValueOrigin {
        let mut end = span.start.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = self.text.get(..end).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        ValueOrigin::File { path: Arc::clone(&self.path), line, column }
    }
}

/// A value as the text that an environment variable would have.
///
/// # Errors
/// The name of its type, if it cannot be a text.
fn raw(value: &DeValue<'_>) -> Result<Raw, &'static str> {
    match value {
        DeValue::Array(array) => {
            let texts = array.iter().map(|value| one(value.get_ref()));
            Ok(Raw::Many(texts.collect::<Result<_, _>>()?))
        }
        other => one(other).map(Raw::One),
    }
}

fn one(value: &DeValue<'_>) -> Result<String, &'static str> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(is) => Ok(is.to_string()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            number.map(|n| n.to_string()).map_err(|_| "an integer beyond 64 bits")
        }
        DeValue::Datetime(time) => Ok(time.to_string()),
        DeValue::Float(_) => Err("a number with a fraction"),
        DeValue::Array(_) => Err("a list of lists"),
        DeValue::Table(_) => Err("a table"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::setting::Kind;
    use proptest::prelude::*;

    fn settings() -> Vec<Setting> {
        let setting = |key: &'static str| Setting {
            key: key.into(),
            kind: Kind::Text("X"),
            default: "".into(),
            unset: "",
            help: "".into(),
            topic: "".into(),
            in_file_only: false,
        };
        vec![
            setting("period"),
            setting("log.level"),
            setting("log.file"),
            setting("sources.load.period"),
        ]
    }

    fn read_text(text: &str) -> (Vec<(String, Raw, ValueOrigin)>, Vec<String>) {
        let mut errors = Vec::new();
        let found = read(
            Path::new("f"),
            text,
            TableSettings { settings: &settings(), wrong_keys: &[] },
            &mut errors,
        )
        .found;
        (found, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_error_has_line_column_and_nearest_name() {
        let text = "perod = 1\n[log]\nlevle = \"info\"\nfile = 1.5\n[sources.lod]\nperiod = 1\n\
                    [sources]\nload = 3\n";
        let (found, errors) = read_text(text);
        assert_eq!(found, []);
        assert_eq!(
            errors,
            [
                "f:1:1: unknown key `perod`; did you mean `period`?",
                "f:3:1: unknown key `log.levle`; did you mean `log.level`?",
                "f:4:8: `log.file` cannot be a number with a fraction",
                "f:5:10: unknown key `sources.lod`; did you mean `sources.load`?",
                "f:8:8: `sources.load` is a table of settings, not integer",
            ]
        );
    }

    #[test]
    fn a_mistyped_key_keeps_its_value_for_further_checks() {
        let text = "perod = 1\n[lgo]\nlevel = \"loud\"\nfil = \"x\"\n";
        let mut errors = Vec::new();
        let (settings, wrong_keys) = (&*settings(), &[][..]);
        let of_file = TableSettings { settings, wrong_keys };
        let FileValues { found, guessed } = read(Path::new("f"), text, of_file, &mut errors);
        assert_eq!((found.len(), errors.len()), (0, 3), "{errors:?}");
        let guessed: Vec<_> =
            guessed.iter().map(|(key, _, place)| format!("{key} {place}")).collect();
        assert_eq!(guessed, ["period f:1", "log.level f:3", "log.file f:4"]);
    }

    #[test]
    fn syntax_errors_do_not_hide_each_other() {
        let (found, errors) = read_text("period = \nlog.level = \"a\nlog.file = \"b\"\n");
        assert!(errors.len() >= 2, "{errors:?}");
        assert!(errors[0].starts_with("f:1:"), "{errors:?}");
        assert!(found.iter().any(|(key, ..)| key == "log.file"), "{found:?}");
        assert!(!found.iter().any(|(key, ..)| key == "period"), "no second error: {found:?}");
    }

    #[test]
    fn values_are_texts() {
        let (found, errors) =
            read_text("period = 5\nlog = { level = true, file = [\"a\", \"b\"] }");
        assert_eq!(errors, [""; 0]);
        let texts: Vec<_> = found.iter().map(|(key, raw, _)| (&**key, raw.clone())).collect();
        assert_eq!(texts[0], ("period", Raw::One("5".to_owned())));
        assert_eq!(texts[1], ("log.level", Raw::One("true".to_owned())));
        assert_eq!(texts[2].1, Raw::Many(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(found[0].2.to_string(), "f:1");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\PC\n]{0,80}") {
            read_text(&text);
        }
    }
}
