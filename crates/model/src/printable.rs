//! Texts of nodes and users without control characters.

use std::borrow::Cow;

/// A text with a space for each control character: it is shown in terminals and written to files line by line.
pub fn printable(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => Cow::Owned(text.replace(char::is_control, " ")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(printable("a\u{1b}[2J\n\u{9b}b"), "a [2J  b");
        assert!(matches!(printable("solve é"), Cow::Borrowed("solve é")));
    }
}
