//! Lines of COPY. All end as the first one does.

/// The end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    Newline,
    Return,
    Both,
}

impl LineEnd {
    /// The end of a line with which a text begins.
    pub(super) fn of(text: &str) -> Option<Self> {
        match text.as_bytes() {
            [b'\r', b'\n', ..] => Some(Self::Both),
            [b'\r', ..] => Some(Self::Return),
            [b'\n', ..] => Some(Self::Newline),
            _ => None,
        }
    }

    /// Its length in bytes.
    pub(super) const fn bytes(self) -> usize {
        if matches!(self, Self::Both) { 2 } else { 1 }
    }
}

/// The ends of lines, which are all like the first one.
#[derive(Debug, Default)]
pub(super) struct LineEnds(Option<LineEnd>);

impl LineEnds {
    /// Takes the end of a line of this kind of data.
    ///
    /// # Errors
    /// It is another one than the first.
    pub(super) fn take(&mut self, found: LineEnd, kind: &str) -> Result<(), String> {
        let first = *self.0.get_or_insert(found);
        if first == found {
            return Ok(());
        }
        let is_newline = found == LineEnd::Newline || first == LineEnd::Return;
        let name = if is_newline { "newline" } else { "carriage return" };
        Err(format!("{kind} {name} found in data"))
    }
}

/// Lines of text. A backslash keeps the end of a line after it.
pub(super) struct Lines<'a> {
    rest: &'a str,
    ends: LineEnds,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, ends: LineEnds::default() }
    }

    /// The next line without its end.
    pub(super) fn next(&mut self) -> Option<Result<&'a str, String>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut is_escaped = false;
        let end = self.rest.bytes().position(|byte| match byte {
            _ if std::mem::take(&mut is_escaped) => false,
            b'\\' => {
                is_escaped = true;
                false
            }
            byte => matches!(byte, b'\n' | b'\r'),
        });
        let (line, rest) = self.rest.split_at_checked(end.unwrap_or(self.rest.len()))?;
        self.rest = rest;
        if let Some(found) = LineEnd::of(rest) {
            self.rest = rest.get(found.bytes()..).unwrap_or_default();
            if let Err(what) = self.ends.take(found, "literal") {
                return Some(Err(what));
            }
        }
        Some(Ok(line))
    }
}
