//! Numbers and tables for terminals.

use crate::client::plain::plain;
use rustix::termios::tcgetwinsize;
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write};

/// Headings of columns with states, whose cells are coloured.
const STATE_COLUMNS: [&str; 2] = ["state", "difference"];

/// Maximum width of a cell on a terminal. The last column may take the rest of the line.
const CELL_MAX: usize = 40;

/// A table: columns as wide as their widest cell, numbers right-aligned. On a terminal, longer cells are cut; CSV and
/// JSON have them whole.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    is_last_whole: bool,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(header: &[&str]) -> Self {
        Self {
            header: header.iter().map(|cell| plain(cell).into_owned()).collect(),
            rows: Vec::new(),
            is_last_whole: false,
        }
    }

    /// A table with a last column that is never cut: instructions of this program.
    pub(crate) fn with_instructions(header: &[&str]) -> Self {
        Self { is_last_whole: true, ..Self::new(header) }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| plain(cell).into_owned()).collect());
    }

    /// Whether the table has no rows.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the table, with colours if standard output is a terminal.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let variable = |name: &str| std::env::var_os(name);
        let is_terminal = !cfg!(test) && io::stdout().is_terminal();
        let is_coloured = is_terminal && may_colour(variable("NO_COLOR"), variable("TERM"));
        let size = || tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
        self.write_as(is_coloured, is_terminal.then(size), out)
    }

    /// Maximum width of the cells of each column, for a terminal with so many columns.
    fn limits(&self, widths: &[usize], columns: usize) -> Vec<usize> {
        let mut limits = vec![CELL_MAX; widths.len()];
        if let Some((last, others)) = limits.split_last_mut() {
            let used: usize =
                widths.iter().zip(others).map(|(width, max)| width.min(max) + 2).sum();
            let rest = columns.saturating_sub(used).max(CELL_MAX);
            *last = if self.is_last_whole { usize::MAX } else { rest };
        }
        limits
    }

    /// Writes the table, on a terminal with so many columns or elsewhere.
    fn write_as(
        &self,
        is_coloured: bool,
        columns: Option<usize>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut widths: Vec<usize> = self.header.iter().map(|cell| width(cell)).collect();
        for row in &self.rows {
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = (*wide).max(width(cell));
            }
        }
        let limits = match columns {
            Some(columns) => self.limits(&widths, columns),
            None => vec![usize::MAX; widths.len()],
        };
        widths.iter_mut().zip(&limits).for_each(|(wide, max)| *wide = (*wide).min(*max));
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let mut line = String::new();
            let cells: Vec<Cow<'_, str>> =
                row.iter().zip(&limits).map(|(cell, max)| cut(cell, *max)).collect();
            for ((cell, wide), heading) in cells.iter().zip(&widths).zip(&self.header) {
                let number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                let pad = " ".repeat(wide.saturating_sub(width(cell)));
                let (left, right) = if number { (&*pad, "") } else { ("", &*pad) };
                let is_state = is_coloured && STATE_COLUMNS.contains(&heading.as_str());
                match colour(cell).filter(|_| is_state) {
                    Some(colour) => {
                        line.push_str(&format!("\x1b[{colour}m{left}{cell}{right}\x1b[0m  "))
                    }
                    None => line.push_str(&format!("{left}{cell}{right}  ")),
                }
            }
            let line = line.trim_end();
            if is_coloured && std::ptr::eq(row, &self.header) {
                writeln!(out, "\x1b[1m{line}\x1b[0m")?;
            } else {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}

/// Whether a terminal may show colours: <https://no-color.org>.
fn may_colour(no_color: Option<OsString>, term: Option<OsString>) -> bool {
    no_color.is_none_or(|text| text.is_empty()) && term.is_none_or(|term| term != "dumb")
}

/// Cuts a text to a number of terminal columns; the last one shows that it was cut.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if width(text) <= max {
        return Cow::Borrowed(text);
    }
    let mut end = String::new();
    for c in text.chars() {
        end.push(c);
        if width(&end) >= max {
            end.pop();
            break;
        }
    }
    Cow::Owned(end + "…")
}

/// Width of a text in terminal columns.
pub(crate) fn width(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

/// The colour of a state: red for trouble, yellow for an early end, green for a good state.
fn colour(cell: &str) -> Option<&'static str> {
    match cell.split(' ').next()? {
        "failed" | "silent" | "broken" | "denied" | "conflict" => Some("31"),
        "revoked" | "expired" | "stopped" => Some("33"),
        "running" | "alive" | "ok" | "good" => Some("32"),
        _ => None,
    }
}

/// Bytes with a binary prefix: `1.5 GiB`.
pub(crate) fn bytes(value: f64) -> String {
    let mut scaled = value;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if scaled.abs() < 1024.0 {
            break;
        }
        (scaled, unit) = (scaled / 1024.0, next);
    }
    if unit == "B" { format!("{scaled:.0} B") } else { format!("{scaled:.1} {unit}") }
}

/// A duration: `1.23 s`, `2 min 3 s`, `1 h 2 min`; from two days on `2 d 3 h` or `365 d`.
pub(crate) fn seconds(value: f64) -> String {
    if value < 60.0 {
        let digits = if value < 10.0 { 3 } else { 1 };
        return format!("{value:.digits$} s");
    }
    let minutes = (value / 60.0).floor();
    if minutes < 60.0 {
        return format!("{minutes:.0} min {:.0} s", (value - minutes * 60.0).floor());
    }
    let hours = (minutes / 60.0).floor();
    if hours < 48.0 {
        return format!("{hours:.0} h {:.0} min", minutes - hours * 60.0);
    }
    let days = (hours / 24.0).floor();
    match hours - days * 24.0 {
        rest if rest >= 1.0 && days < 100.0 => format!("{days:.0} d {rest:.0} h"),
        _ => format!("{days:.0} d"),
    }
}

/// A number of things: `1 node`, `2 nodes`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A count in groups of three digits: `1 234 567`.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        let left = digits.len() - place;
        if place > 0 && left.is_multiple_of(3) && grouped != "-" {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// The offset of a clock: `-0.012 s`.
pub(crate) fn offset(seconds: f64) -> String {
    // `+ 0.0` removes the sign of a negative zero.
    format!("{:+.3} s", (seconds * 1e3).round() / 1e3 + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_of_nothing_has_no_minus() {
        assert_eq!([-0.0004, 0.0004, -0.0123].map(offset), ["+0.000 s", "+0.000 s", "-0.012 s"]);
    }

    #[test]
    fn numbers() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(3.0 * 1024.0 * 1024.0 * 1024.0), "3.0 GiB");
        assert_eq!(seconds(1.2345), "1.234 s");
        assert_eq!(seconds(125.0), "2 min 5 s");
        assert_eq!(seconds(3725.0), "1 h 2 min");
        assert_eq!(seconds(47.5 * 3600.0), "47 h 30 min");
        assert_eq!(seconds(50.0 * 3600.0), "2 d 2 h");
        assert_eq!(seconds(365.0 * 86_400.0), "365 d");
        assert_eq!(count(1_234_567.0), "1 234 567");
        assert_eq!(count(12.0), "12");
        assert_eq!([counted(1, "node"), counted(0, "node")], ["1 node", "0 nodes"]);
    }

    #[test]
    fn a_terminal_has_colours_unless_it_wants_none() {
        let mut table = Table::new(&["job", "state"]);
        table.row(vec!["x".to_owned(), "failed".to_owned()]);
        // A state's word in a column without states is not coloured.
        table.row(vec!["alive".to_owned(), "failed".to_owned()]);
        let mut out = Vec::new();
        table.write_as(true, Some(80), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "\x1b[1mjob    state\x1b[0m\nx      \x1b[31mfailed\x1b[0m\nalive  \x1b[31mfailed\x1b[0m\n"
        );
        let no = |no_color: &str, term: &str| may_colour(Some(no_color.into()), Some(term.into()));
        assert!(no("", "xterm") && may_colour(None, None));
        assert!(!no("1", "xterm") && !no("", "dumb"));
    }

    #[test]
    fn long_cells_are_cut_on_a_terminal_only() {
        let long = "x".repeat(1000);
        let mut table = Table::new(&["name", "user", "note"]);
        table.row(vec![long.clone(), "ann".to_owned(), long.clone()]);
        table.row(vec!["計".repeat(30), long.clone(), "short".to_owned()]);
        let lines = |columns: Option<usize>| {
            let mut out = Vec::new();
            table.write_as(false, columns, &mut out).unwrap();
            String::from_utf8(out).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let forty = format!("{}…", "x".repeat(39));
        let cut = lines(Some(80));
        assert_eq!(cut[1], format!("{forty}  ann{}  {forty}", " ".repeat(37)));
        assert_eq!(cut[2], format!("{}…   {forty}  short", "計".repeat(19)));
        // The last column takes the rest of a wide terminal.
        assert_eq!(width(&lines(Some(200))[1]), 200);
        for line in lines(None).iter().skip(1) {
            assert!(line.contains(&long) && !line.contains('…'), "{line}");
        }
        let mut whole = Table::with_instructions(&["name", "state"]);
        whole.row(vec![long.clone(), long.clone()]);
        let mut out = Vec::new();
        whole.write_as(false, Some(80), &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains(&format!("{forty}  {long}")));
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", "cpu"]);
        table.row(vec!["a".to_owned(), "1.5".to_owned()]);
        table.row(vec!["longer".to_owned(), "10.25".to_owned()]);
        table.row(vec!["計算".to_owned(), "2.5".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "name    cpu\na         1.5\nlonger  10.25\n計算      2.5\n");
    }
}
