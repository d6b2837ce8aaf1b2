//! Comma-separated text (RFC 4180), in the format of PostgreSQL's `COPY … CSV`.

/// Most fields of a record.
const FIELDS_MAX: usize = 16;

/// Appends a text as a field that a spreadsheet does not evaluate as a formula; see [`api::csv_cell`].
pub(crate) fn text_field(text: &str, out: &mut String) {
    field(&api::csv_cell(text), out);
}

/// Appends a text as a field, quoted where necessary.
pub(crate) fn field(text: &str, out: &mut String) {
    // An empty text is quoted, because an empty field without quotes means null.
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) && text != "\\." {
        out.push_str(text);
        return;
    }
    out.push('"');
    for part in text.split_inclusive('"') {
        out.push_str(part);
        if part.ends_with('"') {
            out.push('"');
        }
    }
    out.push('"');
}

/// The records of a text, one after another. A field that is empty or `NULL`, without quotes, is none. After an error
/// there is no further record.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    rest: &'a str,
}

impl<'a> Records<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn record(&mut self) -> Result<Vec<Option<String>>, &'static str> {
        let mut fields = Vec::new();
        loop {
            if fields.len() >= FIELDS_MAX {
                return Err("a record has too many fields");
            }
            fields.push(match self.rest.strip_prefix('"') {
                Some(rest) => Some(self.quoted(rest)?),
                None => self.plain()?,
            });
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
                continue;
            }
            let ends = ["\r\n", "\n"].iter().find_map(|end| self.rest.strip_prefix(end));
            match ends {
                Some(rest) => self.rest = rest,
                None if self.rest.is_empty() => {}
                None => return Err("a text follows a field in quotes"),
            }
            return Ok(fields);
        }
    }

    fn quoted(&mut self, mut rest: &'a str) -> Result<String, &'static str> {
        let mut field = String::new();
        loop {
            let (part, tail) = rest.split_once('"').ok_or("a field in quotes does not end")?;
            field.push_str(part);
            match tail.strip_prefix('"') {
                Some(tail) => {
                    field.push('"');
                    rest = tail;
                }
                None => {
                    self.rest = tail;
                    return Ok(field);
                }
            }
        }
    }

    fn plain(&mut self) -> Result<Option<String>, &'static str> {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let (mut field, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        if rest.starts_with('\n')
            && let Some(line) = field.strip_suffix('\r')
        {
            field = line;
        }
        if field.contains('"') {
            return Err("a quote stands within a field without quotes");
        }
        Ok(Some(field.to_owned()).filter(|field| !field.is_empty() && field != "NULL"))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Vec<Option<String>>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.rest = "";
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> String {
        let mut out = String::new();
        field(text, &mut out);
        out
    }

    #[test]
    fn fields() {
        assert_eq!(of("load_1m"), "load_1m");
        assert_eq!(of(""), "\"\"");
        assert_eq!(of("a,b"), "\"a,b\"");
        assert_eq!(of("{\"cpu\": \"0\"}"), "\"{\"\"cpu\"\": \"\"0\"\"}\"");
    }

    #[test]
    fn records_of_a_text() {
        let read = |text: &str| -> Result<Vec<_>, _> { Records::new(text).collect() };
        let some = |text: &str| Some(text.to_owned());
        let text = "a,\"b,\"\"c\"\"\n\",,NULL,\"NULL\",\"\"\r\nx,y";
        let first = vec![some("a"), some("b,\"c\"\n"), None, None, some("NULL"), some("")];
        assert_eq!(read(text).unwrap(), [first, vec![some("x"), some("y")]]);
        assert_eq!(read("").unwrap(), [] as [Vec<Option<String>>; 0]);
        assert_eq!(read("a\n").unwrap(), [[some("a")]]);
        for wrong in ["\"a", "\"a\"b", "a\"b", &",".repeat(FIELDS_MAX)] {
            let mut records = Records::new(wrong);
            assert!(records.next().unwrap().is_err(), "{wrong}");
            assert_eq!(records.next(), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_field_is_read_as_it_was_written(text in "[a\",\n\r é]{0,12}") {
            let line = format!("{},{}\n", of(&text), of(&text));
            let read: Vec<_> = Records::new(&line).collect();
            let text = Some(text);
            prop_assert_eq!(read, [Ok(vec![text.clone(), text])]);
        }

        #[test]
        fn no_text_panics(text in "[a\",\n\r]{0,20}") {
            assert!(Records::new(&text).count() <= text.len());
        }

        #[test]
        fn read_back(text in ".{0,20}") {
            let field = of(&text);
            let inner = field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            prop_assert_eq!(inner.map_or(field.clone(), |inner| inner.replace("\"\"", "\"")), text);
        }
    }
}
