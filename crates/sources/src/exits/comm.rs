//! Names of tasks.

/// A process's name, as text that a label may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Comm {
    bytes: [u8; 16],
    length: usize,
}

impl Comm {
    /// Its start; whatever is no printable text of a name in ASCII or UTF-8 becomes `?`.
    pub(crate) fn of(name: &[u8]) -> Self {
        let is_text = std::str::from_utf8(name).is_ok();
        let mut comm = Self { bytes: [0; 16], length: name.len().min(15) };
        for (to, from) in comm.bytes.iter_mut().zip(name.iter().take(15)) {
            let plain = from.is_ascii_graphic() || *from == b' ' || (is_text && !from.is_ascii());
            *to = if plain { *from } else { b'?' };
        }
        // What is cut within a letter is no part of the name.
        comm.length = comm.as_str().len();
        comm.bytes.iter_mut().skip(comm.length).for_each(|byte| *byte = 0);
        comm
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        let name = self.bytes.get(..self.length).unwrap_or_default();
        match std::str::from_utf8(name) {
            Ok(name) => name,
            // Cut within a letter.
            Err(error) => {
                let good = name.get(..error.valid_up_to()).unwrap_or_default();
                std::str::from_utf8(good).unwrap_or_default()
            }
        }
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
            (b"\xff\xfe", "??"),
            (b"kworker/0:1-events", "kworker/0:1-eve"),
            ("ééééééééé".as_bytes(), "ééééééé"),
        ] {
            assert_eq!(Comm::of(name).as_str(), label);
        }
    }
}
