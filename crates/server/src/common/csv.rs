//! Comma-separated text (RFC 4180), in the format of PostgreSQL's `COPY … CSV`.

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

    proptest! {
        #[test]
        fn read_back(text in ".{0,20}") {
            let field = of(&text);
            let inner = field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            prop_assert_eq!(inner.map_or(field.clone(), |inner| inner.replace("\"\"", "\"")), text);
        }
    }
}
