//! Rows of COPY, as text, CSV or binary. `lines`: the ends of lines.

mod lines;

use self::lines::{LineEnd, LineEnds, Lines};
use crate::frontend::{Malformed, Reader};
use crate::oid;
use crate::parameters::text;

/// Columns of the table `metrics` that a client writes, in their order, with their types.
pub const COLUMNS: [(&str, u32); 5] = [
    ("timestamp", oid::TIMESTAMPTZ),
    ("device_id", oid::TEXT),
    ("metric_id", oid::TEXT),
    ("value", oid::FLOAT8),
    ("labels", oid::JSONB),
];

/// The texts of a row in the order of [`COLUMNS`].
pub type Row = [Option<String>; COLUMNS.len()];

/// Form of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Tabs, and `\N` for null.
    #[default]
    Text,
    /// Comma-separated values.
    Csv,
    /// PostgreSQL's binary form.
    Binary,
}

/// Options of COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Form of the rows.
    pub format: Format,
    /// Whether the first line has the names.
    pub header: bool,
    /// Whether these names must be those of the columns.
    pub matches: bool,
    /// Character between two fields.
    pub delimiter: char,
    /// Text of null.
    pub null: String,
    /// Quote of CSV.
    pub quote: char,
    /// Character before a quote within quotes.
    pub escape: char,
}

impl Options {
    /// The defaults of a format.
    pub fn of(format: Format) -> Self {
        let (delimiter, null) = if format == Format::Csv { (',', "") } else { ('\t', "\\N") };
        Self {
            format,
            header: false,
            matches: false,
            delimiter,
            null: null.to_owned(),
            quote: '"',
            escape: '"',
        }
    }
}

/// Rows that cannot be read, with the number of the row, from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row}: {what}")]
pub struct BadRow {
    /// Number of the row.
    pub row: usize,
    /// The problem.
    pub what: String,
}

fn bad<T>(row: usize, what: impl Into<String>) -> Result<T, BadRow> {
    Err(BadRow { row, what: what.into() })
}

/// Reads the rows of a COPY to these columns, which are places in [`COLUMNS`]; at most `rows_max`, and one more.
///
/// # Errors
/// A row has another number of fields, or a value is none of its column.
pub fn rows(
    bytes: &[u8],
    options: &Options,
    columns: &[usize],
    rows_max: usize,
) -> Result<Vec<Row>, BadRow> {
    let rows = Rows { columns, rows_max, rows: Vec::new() };
    if options.format == Format::Binary {
        return rows.binary(bytes);
    }
    let text = std::str::from_utf8(bytes).or_else(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        bad(1 + before.iter().filter(|byte| **byte == b'\n').count(), "the text is not UTF-8")
    })?;
    match options.format {
        Format::Csv => rows.csv(text, options),
        _ => rows.text(text, options),
    }
}

struct Rows<'a> {
    columns: &'a [usize],
    rows_max: usize,
    rows: Vec<Row>,
}

impl Rows<'_> {
    fn is_full(&self) -> bool {
        self.rows.len() > self.rows_max
    }

    fn add(&mut self, fields: Vec<Option<String>>) -> Result<(), BadRow> {
        let number = self.rows.len() + 1;
        if fields.len() != self.columns.len() {
            let (has, want) = (fields.len(), self.columns.len());
            return bad(number, format!("it has {has} fields; the columns are {want}"));
        }
        let mut row = Row::default();
        for (place, field) in self.columns.iter().zip(fields) {
            if let Some(slot) = row.get_mut(*place) {
                *slot = field;
            }
        }
        self.rows.push(row);
        Ok(())
    }

    /// Checks the names of the columns in the first line.
    fn check_head(&self, names: &[Option<String>]) -> Result<(), BadRow> {
        let want = self.columns.iter().map(|place| COLUMNS.get(*place).map(|column| column.0));
        if names.iter().map(Option::as_deref).eq(want.clone()) {
            return Ok(());
        }
        let want: Vec<&str> = want.flatten().collect();
        bad(1, format!("the first line has other names than the columns {}", want.join(", ")))
    }

    fn text(mut self, text: &str, options: &Options) -> Result<Vec<Row>, BadRow> {
        let mut lines = Lines::new(text);
        let mut is_head = options.header;
        while let Some(line) = lines.next() {
            let number = self.rows.len() + 1;
            let line = line.or_else(|what| bad(number, what))?;
            if std::mem::take(&mut is_head) {
                if options.matches {
                    let names = fields_of(line, options.delimiter).into_iter().map(unescaped);
                    self.check_head(&names.collect::<Vec<_>>())?;
                }
                continue;
            }
            if line == "\\." || self.is_full() {
                break;
            }
            let mut fields = Vec::new();
            for field in fields_of(line, options.delimiter) {
                let is_null = field == options.null;
                let field = if is_null { None } else { Some(unescaped(field)) };
                match field {
                    Some(None) => {
                        return bad(number, "a field ends with a backslash, or has a NUL");
                    }
                    field => fields.push(field.flatten()),
                }
            }
            self.add(fields)?;
        }
        Ok(self.rows)
    }

    fn csv(mut self, text: &str, options: &Options) -> Result<Vec<Row>, BadRow> {
        let mut records = Records { rest: text, ends: LineEnds::default(), options };
        let mut is_head = options.header;
        while !records.rest.is_empty() && !records.is_at_mark() && !self.is_full() {
            let number = self.rows.len() + 1;
            let record = records.next().or_else(|what| bad(number, what))?;
            match std::mem::take(&mut is_head) {
                false => self.add(record)?,
                true if options.matches => self.check_head(&record)?,
                true => {}
            }
        }
        Ok(self.rows)
    }

    fn binary(mut self, bytes: &[u8]) -> Result<Vec<Row>, BadRow> {
        let mut take = Reader(bytes);
        let begin = |error: Malformed| BadRow { row: 1, what: error.0 };
        if take.bytes(11).map_err(begin)? != b"PGCOPY\n\xff\r\n\0" {
            return bad(1, "the signature of binary COPY is missing");
        }
        if take.u32().map_err(begin)? & 0xffff_0000 != 0 {
            return bad(1, "binary COPY has unknown flags");
        }
        let extension = usize::try_from(take.u32().map_err(begin)?).unwrap_or(usize::MAX);
        take.bytes(extension).map_err(begin)?;
        // Some clients, such as pgx, end the copy without its trailer, as PostgreSQL permits.
        while !self.is_full() && !take.0.is_empty() {
            let number = self.rows.len() + 1;
            let short = |error: Malformed| BadRow { row: number, what: error.0 };
            let count = take.u16().map_err(short)?;
            if count == u16::MAX {
                return Ok(self.rows);
            }
            if usize::from(count) != self.columns.len() {
                let want = self.columns.len();
                return bad(number, format!("it has {count} fields; the columns are {want}"));
            }
            let mut fields = Vec::new();
            for place in self.columns {
                let kind = COLUMNS.get(*place).map_or(oid::TEXT, |column| column.1);
                let value = take.value().map_err(short)?;
                let value = value.map(|bytes| text(kind, true, &bytes)).transpose();
                fields.push(value.or_else(|error| bad(number, error.0))?);
            }
            self.add(fields)?;
        }
        Ok(self.rows)
    }
}

/// The fields of a line. A backslash keeps the delimiter after it.
fn fields_of(line: &str, delimiter: char) -> Vec<&str> {
    let (mut fields, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == delimiter {
            fields.push(line.get(start..at).unwrap_or_default());
            start = at + c.len_utf8();
        }
    }
    fields.push(line.get(start..).unwrap_or_default());
    fields
}

/// A field of text without its escapes.
fn unescaped(field: &str) -> Option<String> {
    if !field.contains('\\') {
        return Some(field.to_owned());
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        let byte = match escape {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'x' if after.first().is_some_and(u8::is_ascii_hexdigit) => {
                let (byte, after) = number(after, 16, 2)?;
                rest = after;
                byte
            }
            b'0'..=b'7' => {
                let from = field.len().checked_sub(after.len() + 1)?;
                let (byte, after) = number(field.as_bytes().get(from..)?, 8, 3)?;
                rest = after;
                byte
            }
            other => *other,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// The byte with these digits at the beginning, and the bytes after them.
fn number(bytes: &[u8], radix: u32, digits_max: usize) -> Option<(u8, &[u8])> {
    let digits = bytes.iter().take(digits_max).take_while(|d| char::from(**d).is_digit(radix));
    let (digits, after) = bytes.split_at(digits.count());
    let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()?;
    Some((byte, after))
}

/// Records of CSV.
struct Records<'a> {
    rest: &'a str,
    ends: LineEnds,
    options: &'a Options,
}

impl Records<'_> {
    /// Whether the next line is the mark of the end.
    fn is_at_mark(&self) -> bool {
        let after = self.rest.strip_prefix("\\.");
        after.is_some_and(|after| after.is_empty() || LineEnd::of(after).is_some())
    }

    /// The fields of the next record.
    fn next(&mut self) -> Result<Vec<Option<String>>, String> {
        let Options { delimiter, quote, escape, ref null, .. } = *self.options;
        let mut fields = Vec::new();
        let (mut field, mut was_quoted, mut inside) = (String::new(), false, false);
        let mut characters = self.rest.chars();
        loop {
            if !inside && let Some(found) = LineEnd::of(characters.as_str()) {
                self.ends.take(found, "unquoted")?;
                self.rest = characters.as_str().get(found.bytes()..).unwrap_or_default();
                fields.push(value(field, was_quoted, null));
                return Ok(fields);
            }
            let c = characters.next();
            let next = characters.clone().next();
            match c {
                None if inside => return Err("a quote has no end".to_owned()),
                Some(c)
                    if inside && c == escape && next.is_some_and(|n| n == quote || n == escape) =>
                {
                    field.extend(characters.next());
                }
                Some(c) if c == quote => {
                    (was_quoted, inside) = (true, !inside);
                }
                Some(c) if inside => field.push(c),
                None => {
                    self.rest = "";
                    fields.push(value(field, was_quoted, null));
                    return Ok(fields);
                }
                Some(c) if c == delimiter => {
                    fields.push(value(std::mem::take(&mut field), was_quoted, null));
                    was_quoted = false;
                }
                Some(c) => field.push(c),
            }
        }
    }
}

fn value(field: String, was_quoted: bool, null: &str) -> Option<String> {
    (was_quoted || field != null).then_some(field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [usize; 5] = [0, 1, 2, 3, 4];

    fn row(texts: [Option<&str>; 5]) -> Row {
        texts.map(|text| text.map(str::to_owned))
    }

    #[test]
    fn rows_of_text() {
        let text =
            b"2026-01-06\td\tm\t1\t{\"a\": \"b\\tc\\\\\\x41\\101\"}\n\\N\td\tm\t\\N\t\\N\n\\.\nx";
        let rows = rows(text, &Options::of(Format::Text), &ALL, 10).unwrap();
        let first =
            [Some("2026-01-06"), Some("d"), Some("m"), Some("1"), Some("{\"a\": \"b\tc\\AA\"}")];
        assert_eq!(rows, [row(first), row([None, Some("d"), Some("m"), None, None])]);
    }

    #[test]
    fn rows_of_csv() {
        let options = Options { header: true, ..Options::of(Format::Csv) };
        let text = b"device_id,metric_id\r\n\"a\n\"\"b\",m\r\n,\"\"\r\n";
        let rows = rows(text, &options, &[1, 2], 10).unwrap();
        let want =
            [[None, Some("a\n\"b"), Some("m"), None, None], [None, None, Some(""), None, None]];
        assert_eq!(rows, want.map(row));
        let quotes = b"\"a\"b\"c\",a\"\"\r\nd\"x,y\"z,\"\"\"q\"\"\"\r\n";
        let found = super::rows(quotes, &Options::of(Format::Csv), &[1, 2], 10).unwrap();
        let want = [["abc", "a"], ["dx,yz", "\"q\""]];
        assert_eq!(found, want.map(|[a, b]| row([None, Some(a), Some(b), None, None])));
        let unclosed = super::rows(b"\"a", &Options::of(Format::Csv), &[1], 10);
        assert_eq!(unclosed.unwrap_err().to_string(), "row 1: a quote has no end");
    }

    #[test]
    fn lines_end_as_the_first_one() {
        let texts = |text: &str, format| {
            let rows = rows(text.as_bytes(), &Options::of(format), &[1], 10);
            let of = |row: Row| row.into_iter().flatten().collect::<String>();
            let rows = rows.map(|rows| rows.into_iter().map(of).collect::<Vec<_>>());
            rows.map_err(|error| error.to_string())
        };
        for format in [Format::Text, Format::Csv] {
            for text in ["a\nb\n", "a\r\nb\r\n", "a\rb\r", "a\r\nb", "a\nb\n\\.\nc", "a\rb\r\\.\rc"]
            {
                assert_eq!(texts(text, format), Ok(vec!["a".into(), "b".into()]), "{text:?}");
            }
            for (text, what) in [
                ("a\nb\r\n", "carriage return"),
                ("a\nb\rc\n", "carriage return"),
                ("a\r\nb\rc", "carriage return"),
                ("a\r\nb\nc", "newline"),
                ("a\rb\nc", "newline"),
                ("a\rb\r\nc", "newline"),
            ] {
                let kind = if format == Format::Csv { "unquoted" } else { "literal" };
                let want = Err(format!("row 2: {kind} {what} found in data"));
                assert_eq!(texts(text, format), want, "{text:?}");
            }
        }
        let kept = Ok(vec!["a\nb".into(), "c\r\n\\.".into()]);
        assert_eq!(texts("a\\\nb\nc\\\r\\\n\\\\.\n", Format::Text), kept);
        assert_eq!(texts("\"a\nb\"\r\"c\r\n\\.\"\r", Format::Csv), kept);
    }

    #[test]
    fn a_backslash_escapes_quotes_of_csv() {
        let options = Options { escape: '\\', ..Options::of(Format::Csv) };
        let rows = rows(b"\"a\\\"b\\\\c\\d\"\n", &options, &[1], 10).unwrap();
        assert_eq!(rows, [row([None, Some("a\"b\\c\\d"), None, None, None])]);
    }

    #[test]
    fn names_in_the_first_line_must_match() {
        for (format, good, bad) in [
            (Format::Csv, "device_id,metric_id\nd,m\n", "metric_id,device_id\nm,d\n"),
            (Format::Csv, "\"device_id\",metric_id\nd,m\n", "device_id\nd,m\n"),
            (Format::Text, "device_id\tmetric_id\nd\tm\n", "device_id\t\\N\nd\tm\n"),
        ] {
            let options = Options { header: true, matches: true, ..Options::of(format) };
            let found = rows(good.as_bytes(), &options, &[1, 2], 10).unwrap();
            assert_eq!(found, [row([None, Some("d"), Some("m"), None, None])]);
            assert!(rows(bad.as_bytes(), &options, &[1, 2], 10).is_err(), "{bad}");
            assert!(rows(b"", &options, &[1, 2], 10).unwrap().is_empty());
        }
    }

    #[test]
    fn rows_of_binary() {
        let head = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
        let tuple = b"\0\x02\0\0\0\x01d\0\0\0\x08";
        let bytes = [&head[..], tuple, &98.5_f64.to_be_bytes(), &[0xff, 0xff]].concat();
        let options = Options::of(Format::Binary);
        let want = row([None, Some("d"), None, Some("9.85e1"), None]);
        let without_trailer = bytes.len() - 2;
        for whole in [&bytes[..], &bytes[..without_trailer]] {
            assert_eq!(rows(whole, &options, &[1, 3], 10).unwrap(), std::slice::from_ref(&want));
        }
        assert!(rows(head, &options, &[1, 3], 10).unwrap().is_empty());
        for end in (0..bytes.len()).filter(|end| ![head.len(), without_trailer].contains(end)) {
            assert!(rows(&bytes[..end], &options, &[1, 3], 10).is_err(), "{end} bytes");
        }
        assert!(rows(&bytes, &options, &[1], 10).is_err(), "another number of fields");
    }

    #[test]
    fn errors_have_the_row_and_long_copies_end() {
        let options = Options::of(Format::Text);
        let error = rows(b"a\tb\nc\n", &options, &[1, 2], 10).unwrap_err();
        assert_eq!(error.to_string(), "row 2: it has 1 fields; the columns are 2");
        assert_eq!(rows(b"a\nb\nc\nd\n", &options, &[1], 2).unwrap().len(), 3, "one more");
        assert_eq!(rows(b"a\n\xff\n", &options, &[1], 2).unwrap_err().row, 2);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_result(bytes: Vec<u8>, text in "[\"',;\\\\a-c\n\t]{0,40}") {
            for format in [Format::Text, Format::Csv, Format::Binary] {
                rows(&bytes, &Options::of(format), &ALL, 10).ok();
                rows(text.as_bytes(), &Options::of(format), &[1, 2], 10).ok();
            }
        }
    }
}
