//! Configuration files of Python's configparser: sections, keys and values with their lines.

use std::path::Path;

/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A key with its value.
pub(super) struct Entry {
    pub(super) section: String,
    /// In lower case, as configparser reads it.
    pub(super) key: String,
    pub(super) value: String,
    /// File and line.
    pub(super) place: String,
}

/// Reads a file. A wrong line is an error, and hides no other line.
pub(super) fn read(file: &Path, errors: &mut Vec<String>) -> Vec<Entry> {
    let text = config::read_small(file, FILE_BYTES_MAX).and_then(config::as_text);
    match text {
        Ok(text) => entries(&file.display().to_string(), &text, errors),
        Err(error) => {
            errors.push(format!("{}: {error}", file.display()));
            Vec::new()
        }
    }
}

fn entries(file: &str, text: &str, errors: &mut Vec<String>) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let mut sections: Vec<&str> = Vec::new();
    let mut has_key = false;
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{file}:{number}");
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        let is_continued = line.starts_with(char::is_whitespace) && has_key;
        if let Some(last) = found.last_mut().filter(|_| is_continued) {
            last.value = format!("{}\n{content}", last.value);
        } else if let Some(inner) = content.strip_prefix('[') {
            has_key = false;
            let Some((name, _)) = inner.split_once(']') else {
                errors.push(format!("{place}: the section has no `]`"));
                continue;
            };
            if sections.contains(&name) {
                errors.push(format!(
                    "{place}: the section [{name}] is there twice; FrUCToSA does not start with it"
                ));
            }
            sections.push(name);
        } else {
            let section = sections.last().copied();
            let entry = section.ok_or("the key is in no section").and_then(|section| {
                let (key, value) =
                    content.split_once(['=', ':']).ok_or("a line `key = value` is expected")?;
                let (key, value) = (key.trim().to_lowercase(), value.trim().to_owned());
                Ok(Entry { section: section.to_owned(), key, value, place: place.clone() })
            });
            match entry {
                Ok(entry)
                    if found
                        .iter()
                        .any(|it| it.section == entry.section && it.key == entry.key) =>
                {
                    errors.push(format!(
                        "{place}: {} is there twice in [{}]",
                        entry.key, entry.section
                    ));
                }
                Ok(entry) => {
                    has_key = true;
                    found.push(entry);
                }
                Err(what) => errors.push(format!("{place}: {what}")),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_configparser_reads_them_and_errors_hide_no_key() {
        let text = "stray = 1\n[a b]\n# comment\nKey One : x = y\n  more\n\n; comment\nno\nkey one = z\n[c\n[a b]\nlast=\n";
        let mut errors = Vec::new();
        let found = entries("f", text, &mut errors);
        let found: Vec<_> =
            found.iter().map(|it| (&*it.section, &*it.key, &*it.value, &*it.place)).collect();
        assert_eq!(found, [("a b", "key one", "x = y\nmore", "f:4"), ("a b", "last", "", "f:12")]);
        let places: Vec<&str> = errors.iter().filter_map(|it| it.split(": ").next()).collect();
        assert_eq!(places, ["f:1", "f:8", "f:9", "f:10", "f:11"]);
    }
}
