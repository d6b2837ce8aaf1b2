//! Names, labels and quoted texts of a line.

use std::borrow::Cow;

/// Labels of a sample.
pub(super) type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The rest of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest<'a>(pub(super) &'a str);

impl<'a> Rest<'a> {
    /// Skips spaces and tabs.
    pub(super) fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    /// Takes a character if it is next.
    pub(super) fn take(&mut self, letter: char) -> bool {
        match self.0.strip_prefix(letter) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Takes characters up to the first for which this holds, or the end.
    pub(super) fn until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(ends).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at_checked(end).unwrap_or((self.0, ""));
        self.0 = rest;
        word
    }

    /// Takes a word without blanks.
    pub(super) fn word(&mut self) -> &'a str {
        let word = self.until(|letter| letter == ' ' || letter == '\t');
        self.skip_blanks();
        word
    }

    /// Takes an unquoted name: letters, digits, `_` and `:`.
    pub(super) fn name(&mut self) -> Result<&'a str, &'static str> {
        let name = self.until(|letter| !(letter.is_ascii_alphanumeric() || "_:".contains(letter)));
        match name.starts_with(|first: char| !first.is_ascii_digit()) {
            true => Ok(name),
            false => Err("a name is missing"),
        }
    }

    /// Takes a text in quotes, whose first quote is next.
    pub(super) fn quoted(&mut self) -> Result<Cow<'a, str>, &'static str> {
        if !self.take('"') {
            return Err("`\"` is missing");
        }
        let text = self.until(|letter| letter == '"' || letter == '\\');
        if self.take('"') {
            return Ok(Cow::Borrowed(text));
        }
        let mut text = text.to_owned();
        while self.take('\\') {
            text.push(self.escaped());
            text.push_str(self.until(|letter| letter == '"' || letter == '\\'));
        }
        match self.take('"') {
            true => Ok(Cow::Owned(text)),
            false => Err("a text in quotes does not end"),
        }
    }

    /// The character after a backslash. As in Prometheus' own parser, an unknown escape keeps its backslash.
    fn escaped(&mut self) -> char {
        match self.0.chars().next() {
            Some('n') => {
                self.take('n');
                '\n'
            }
            Some(letter @ ('"' | '\\')) => {
                self.take(letter);
                letter
            }
            _ => '\\',
        }
    }

    /// Takes `{…}`, whose bracket is next: labels, and the name of the metric if it stands there in quotes.
    pub(super) fn braces(
        &mut self,
        labels: &mut Labels<'a>,
    ) -> Result<Option<Cow<'a, str>>, &'static str> {
        let mut name = None;
        self.take('{');
        loop {
            self.skip_blanks();
            if self.take('}') {
                return Ok(name);
            }
            let is_quoted = self.0.starts_with('"');
            let key = if is_quoted { self.quoted()? } else { Cow::Borrowed(self.name()?) };
            self.skip_blanks();
            if self.take('=') {
                self.skip_blanks();
                let value = self.quoted()?;
                labels.push((key, value));
            } else if is_quoted && name.is_none() {
                name = Some(key);
            } else {
                return Err("`=` is missing after a label");
            }
            self.skip_blanks();
            if !self.take(',') && !self.0.starts_with('}') {
                return Err("`,` or `}` is missing after a label");
            }
        }
    }
}

/// A help text: `\\` and `\n`, in OpenMetrics also `\"`.
pub(super) fn unescape_help(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut rest = Rest(text);
    let mut plain = rest.until(|letter| letter == '\\').to_owned();
    while rest.take('\\') {
        plain.push(rest.escaped());
        plain.push_str(rest.until(|letter| letter == '\\'));
    }
    Cow::Owned(plain)
}
