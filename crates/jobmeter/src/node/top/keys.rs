//! Parses bytes from a terminal as keys (ECMA-48; xterm's control sequences).

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Rubout,
    Up,
    Down,
    PageUp,
    PageDown,
    /// Ctrl-C.
    Interrupt,
}

/// The keys in the input; unknown sequences are skipped.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        let key = match first {
            0x1b => {
                let (key, rest) = escape(rest);
                bytes = rest;
                key
            }
            b'\r' | b'\n' => Some(Key::Enter),
            0x03 => Some(Key::Interrupt),
            0x08 | 0x7f => Some(Key::Rubout),
            b' '..=b'~' => Some(Key::Char(char::from(*first))),
            _ => None,
        };
        keys.extend(key);
    }
    keys
}

/// Parses the input after an escape: `ESC [ … letter`, `ESC O letter`, or the Escape key alone. A terminal sends
/// a sequence in one write, so a single escape was typed.
fn escape(rest: &[u8]) -> (Option<Key>, &[u8]) {
    let Some((b'[' | b'O', body)) = rest.split_first() else { return (Some(Key::Escape), rest) };
    let Some(end) = body.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
        return (None, &[]);
    };
    let (sequence, rest) = body.split_at_checked(end + 1).unwrap_or_default();
    let key = match sequence {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    };
    (key, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn letters_arrows_and_the_escape_key() {
        assert_eq!(keys(b"c\x1b[Aq"), [Key::Char('c'), Key::Up, Key::Char('q')]);
        assert_eq!(
            keys(b"\x1bOB\x1b[6~\x7f\r"),
            [Key::Down, Key::PageDown, Key::Rubout, Key::Enter]
        );
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1b\x1b[5~"), [Key::Escape, Key::PageUp]);
        assert_eq!(keys(b"\x1b[1;5Cx\x1b[200~\x03"), [Key::Char('x'), Key::Interrupt]);
        assert_eq!(keys(b"\x1b["), []);
        assert_eq!(keys("é".as_bytes()), []);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(keys(&bytes).len() <= bytes.len());
        }
    }
}
