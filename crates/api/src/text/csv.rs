//! Text cells of CSV that a spreadsheet does not interpret as a formula.

use model::is_unprintable;
use std::borrow::Cow;

/// First characters of a cell that a spreadsheet may take for a formula.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];

/// A text as a cell of CSV, before quoting: behind an apostrophe where it begins like a formula, and without unprintable
/// characters but line ends within. For texts only: a number may be negative.
pub fn csv_cell(text: &str) -> Cow<'_, str> {
    let dirty = |c: char| is_unprintable(c) && c != '\n';
    let text = match text.contains(dirty) {
        true => Cow::Owned(text.replace(dirty, "\u{fffd}")),
        false => Cow::Borrowed(text),
    };
    match is_formula(&text) {
        true => Cow::Owned(format!("'{text}")),
        false => text,
    }
}

/// The text of a cell of [`csv_cell`], without its apostrophe.
pub fn csv_text(cell: &str) -> &str {
    cell.strip_prefix('\'').filter(|text| is_formula(text)).unwrap_or(cell)
}

/// Whether a text begins like a formula, or like the cell of one: every apostrophe of [`csv_cell`] can be removed again.
fn is_formula(text: &str) -> bool {
    text.trim_start_matches('\'').starts_with(FORMULA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_its_text() {
        for text in ["=1", "'=1", "''-x", "'a", "a", "", "'"] {
            assert_eq!(csv_text(&csv_cell(text)), text);
        }
    }

    #[test]
    fn no_text_cell_begins_a_formula_or_holds_control_characters() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0"] {
            assert_eq!(csv_cell(text), format!("'{text}"));
        }
        assert_eq!(csv_cell("\t=1"), "\u{fffd}=1");
        assert_eq!(
            csv_cell("\r=1\u{1b}[2J\u{9b}x\u{202e}"),
            "\u{fffd}=1\u{fffd}[2J\u{fffd}x\u{fffd}"
        );
        for text in ["", "load_1m", "a=b", "two\nlines", "{\"cpu\": \"0\"}"] {
            assert_eq!(csv_cell(text), text);
        }
    }
}
