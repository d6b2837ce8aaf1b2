//! Characters that texts of nodes and users should not contain, because terminals and readers interpret them.

use std::borrow::Cow;

/// Whether a character is unprintable: a control character (including U+0080 to U+009F), a direction mark,
/// a zero-width character, a tag, a Hangul filler or a line end. It can move a cursor, reorder a text, or make
/// two names look the same.
pub const fn is_unprintable(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}'
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// A text with a space instead of each unprintable character.
pub fn printable(text: &str) -> Cow<'_, str> {
    match text.contains(is_unprintable) {
        true => Cow::Owned(text.replace(is_unprintable, " ")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_become_spaces() {
        assert_eq!(printable("a\u{1b}[2J\n\u{9b}b"), "a [2J  b");
        assert_eq!(printable("a\u{202e}b\u{200b}c\u{feff}\u{2066}"), "a b c  ");
        assert_eq!(printable("a\u{e0041}\u{3164}\u{115f}\u{1160}\u{ffa0}b"), "a     b");
        assert_eq!(
            printable("a\u{ad}\u{34f}\u{17b4}\u{2800}\u{fff9}\u{1d173}\u{e0100}b"),
            "a       b"
        );
        assert!(matches!(printable("solve é 名"), Cow::Borrowed("solve é 名")));
    }
}
