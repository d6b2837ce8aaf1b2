//! Names of tasks.

use model::is_unprintable;

/// Maximum length of the kernel's names.
const BYTES_MAX: usize = 15;

/// A process's name, as valid text for a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Comm {
    bytes: [u8; 16],
    length: usize,
}

impl Comm {
    /// The start of the name; everything that is not printable ASCII or UTF-8 becomes `?`.
    pub(crate) fn of(name: &[u8]) -> Self {
        let mut comm = Self::default();
        // The first character that does not fit ends the name.
        match std::str::from_utf8(name) {
            Ok(text) => text.chars().all(|c| comm.push(c)),
            Err(_) => name
                .iter()
                .all(|byte| comm.push(if byte.is_ascii() { char::from(*byte) } else { '?' })),
        };
        comm
    }

    fn push(&mut self, c: char) -> bool {
        let c = if is_unprintable(c) { '?' } else { c };
        let end = self.length + c.len_utf8();
        match self.bytes.get_mut(self.length..end).filter(|_| end <= BYTES_MAX) {
            Some(place) => {
                c.encode_utf8(place);
                self.length = end;
                true
            }
            None => false,
        }
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        let name = self.bytes.get(..self.length).unwrap_or_default();
        std::str::from_utf8(name).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_labels() {
        for (name, label) in [
            (&b"cat"[..], "cat"),
            (b"a b", "a b"),
            (b"a\nb\x7f", "a?b?"),
            ("é".as_bytes(), "é"),
            ("a\u{202e}b\u{9b}\u{200b}".as_bytes(), "a?b??"),
            (b"\xff\xfe", "??"),
            (b"kworker/0:1-events", "kworker/0:1-eve"),
            ("ééééééééé".as_bytes(), "ééééééé"),
        ] {
            assert_eq!(Comm::of(name).as_str(), label);
        }
    }
}
