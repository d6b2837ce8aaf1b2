//! `INSERT INTO metrics … VALUES …` and `COPY metrics …`.

use crate::copy::{COLUMNS, Format, Options, Row};
use crate::frontend::NAME_BYTES_MAX;
use crate::scanner::{Scanner, SyntaxError, Token};

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Null or the default, which are the same.
    Null,
    /// A literal.
    Text(String),
    /// A parameter, from 1.
    Parameter(u16),
}

/// Rows to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    columns: Vec<usize>,
    rows: Vec<Vec<Value>>,
}

/// Direction of a COPY, with its table or query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Rows of the client for these columns, as places in [`COLUMNS`].
    In(Vec<usize>),
    /// Rows of this statement for the client.
    Out(String),
}

/// A COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Its direction.
    pub direction: Direction,
    /// Its options.
    pub options: Options,
}

impl Insert {
    /// Types of the parameters, by their columns.
    pub fn parameter_types(&self) -> Vec<u32> {
        let mut types = Vec::new();
        for row in &self.rows {
            for (value, place) in row.iter().zip(&self.columns) {
                let Value::Parameter(number) = value else { continue };
                let number = usize::from(*number);
                types.resize(types.len().max(number), crate::oid::TEXT);
                let kind = COLUMNS.get(*place).map_or(crate::oid::TEXT, |column| column.1);
                if let Some(slot) = types.get_mut(number.saturating_sub(1)) {
                    *slot = kind;
                }
            }
        }
        types
    }

    /// The rows with these parameters.
    ///
    /// # Errors
    /// A parameter is missing; the error is its number.
    pub fn rows(self, parameters: &[Option<String>]) -> Result<Vec<Row>, u16> {
        let mut rows = Vec::with_capacity(self.rows.len());
        for values in self.rows {
            let mut row = Row::default();
            for (place, value) in self.columns.iter().zip(values) {
                let Some(slot) = row.get_mut(*place) else { continue };
                *slot = match value {
                    Value::Null => None,
                    Value::Text(text) => Some(text),
                    Value::Parameter(number) => {
                        let parameter = parameters.get(usize::from(number).saturating_sub(1));
                        parameter.ok_or(number)?.clone()
                    }
                };
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

/// Takes tokens with one of lookahead.
pub(crate) struct Parser<'a> {
    scanner: Scanner<'a>,
    next: Option<(usize, Token)>,
    end: usize,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Self, SyntaxError> {
        let mut scanner = Scanner::new(text);
        let next = scanner.token()?;
        Ok(Self { scanner, next, end: text.len() })
    }

    pub(crate) fn peek(&self) -> Option<&Token> {
        self.next.as_ref().map(|(_, token)| token)
    }

    /// Byte of the next token.
    pub(crate) fn at(&self) -> usize {
        self.next.as_ref().map_or(self.end, |(at, _)| *at)
    }

    pub(crate) fn take(&mut self) -> Result<Option<Token>, SyntaxError> {
        let next = self.scanner.token()?;
        Ok(std::mem::replace(&mut self.next, next).map(|(_, token)| token))
    }

    /// Takes a keyword if it is the next.
    pub(crate) fn accept(&mut self, word: &str) -> Result<bool, SyntaxError> {
        let is = self.peek().is_some_and(|token| token.is(word));
        if is {
            self.take()?;
        }
        Ok(is)
    }

    pub(crate) fn accept_sign(&mut self, sign: char) -> Result<bool, SyntaxError> {
        let is = self.peek() == Some(&Token::Sign(sign));
        if is {
            self.take()?;
        }
        Ok(is)
    }

    pub(crate) fn wrong(&self, want: &str) -> SyntaxError {
        SyntaxError::new(self.at(), format!("syntax error: expected {want}"))
    }

    pub(crate) fn expect_sign(&mut self, sign: char) -> Result<(), SyntaxError> {
        if self.accept_sign(sign)? { Ok(()) } else { Err(self.wrong(&format!("`{sign}`"))) }
    }

    /// Takes a name.
    pub(crate) fn name(&mut self) -> Result<String, SyntaxError> {
        match self.peek() {
            Some(Token::Word(name) | Token::Quoted(name)) => {
                let name = name.clone();
                if name.len() > NAME_BYTES_MAX {
                    let what = format!("a name has at most {NAME_BYTES_MAX} bytes");
                    return Err(SyntaxError { code: "42622", ..SyntaxError::new(self.at(), what) });
                }
                self.take()?;
                Ok(name)
            }
            _ => Err(self.wrong("a name")),
        }
    }

    /// Takes items with commas between them, and the bracket that closes their list.
    pub(crate) fn items<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        let mut items = vec![item(self)?];
        while self.accept_sign(',')? {
            items.push(item(self)?);
        }
        self.expect_sign(')')?;
        Ok(items)
    }

    pub(crate) fn end(&self) -> Result<(), SyntaxError> {
        if self.next.is_none() { Ok(()) } else { Err(self.wrong("the end of the statement")) }
    }
}

/// Whether the next name is that of the table `metrics`, which is then taken.
fn takes_metrics(parser: &mut Parser<'_>) -> Result<bool, SyntaxError> {
    let mut name = parser.name()?;
    if name == "public" && parser.accept_sign('.')? {
        name = parser.name()?;
    }
    Ok(name == "metrics" && parser.peek() != Some(&Token::Sign('.')))
}

/// Takes the list of columns in brackets; without one, all.
fn columns(parser: &mut Parser<'_>) -> Result<Vec<usize>, SyntaxError> {
    if !parser.accept_sign('(')? {
        return Ok((0..COLUMNS.len()).collect());
    }
    let mut places = Vec::new();
    loop {
        let at = parser.at();
        let name = parser.name()?;
        let place = COLUMNS.iter().position(|column| column.0 == name);
        match place {
            Some(place) if !places.contains(&place) => places.push(place),
            Some(_) => {
                let what = format!("the column `{name}` occurs twice");
                return Err(SyntaxError { code: "42701", ..SyntaxError::new(at, what) });
            }
            None => {
                let known = COLUMNS.map(|column| column.0).join(", ");
                let what = format!("there is no column `{name}` to write; the columns are {known}");
                return Err(SyntaxError { code: "42703", ..SyntaxError::new(at, what) });
            }
        }
        if !parser.accept_sign(',')? {
            parser.expect_sign(')')?;
            return Ok(places);
        }
    }
}

/// Reads an INSERT after its first keyword; `None` if it is into another table.
pub(crate) fn insert(parser: &mut Parser<'_>) -> Result<Option<Insert>, SyntaxError> {
    if !parser.accept("into")? {
        return Err(parser.wrong("INTO"));
    }
    if !takes_metrics(parser)? {
        return Ok(None);
    }
    let columns = columns(parser)?;
    if !parser.accept("values")? {
        return Err(SyntaxError::unsupported(
            parser.at(),
            "rows are inserted with VALUES and with COPY, and not from a query",
        ));
    }
    let mut rows = Vec::new();
    loop {
        let at = parser.at();
        parser.expect_sign('(')?;
        let values = parser.items(value)?;
        if values.len() != columns.len() {
            let what = format!("a row has {} values for {} columns", values.len(), columns.len());
            return Err(SyntaxError::new(at, what));
        }
        rows.push(values);
        if !parser.accept_sign(',')? {
            break;
        }
    }
    if parser.peek().is_some_and(|token| token.is("on") || token.is("returning")) {
        let what = "INSERT has neither ON CONFLICT nor RETURNING here";
        return Err(SyntaxError::unsupported(parser.at(), what));
    }
    parser.end()?;
    Ok(Some(Insert { columns, rows }))
}

/// Takes a literal, with or without a cast.
pub(crate) fn value(parser: &mut Parser<'_>) -> Result<Value, SyntaxError> {
    let at = parser.at();
    let wrong = |parser: &Parser<'_>| {
        let what =
            "a value of INSERT and EXECUTE is a literal, a parameter, NULL, DEFAULT or now()";
        SyntaxError::unsupported(at.min(parser.at()), what)
    };
    let mut sign = "";
    while let Some(Token::Sign(c @ ('-' | '+'))) = parser.peek() {
        sign = if *c == '-' && sign.is_empty() { "-" } else { "" };
        parser.take()?;
    }
    let token = parser.take()?.ok_or_else(|| wrong(parser))?;
    let value = match token {
        Token::Number(number) => Value::Text(format!("{sign}{number}")),
        _ if !sign.is_empty() => return Err(wrong(parser)),
        Token::Text(text) => Value::Text(text),
        Token::Parameter(number) => Value::Parameter(number),
        Token::Word(word) => match &*word {
            "null" | "default" | "current_timestamp" => Value::Null,
            "true" | "false" => Value::Text(word),
            "now" => {
                parser.expect_sign('(')?;
                parser.expect_sign(')')?;
                Value::Null
            }
            "timestamp" | "timestamptz" | "date" | "interval" | "jsonb" | "json" | "text"
            | "float8" | "numeric" => match parser.take()? {
                Some(Token::Text(text)) => Value::Text(text),
                _ => return Err(wrong(parser)),
            },
            _ => return Err(wrong(parser)),
        },
        _ => return Err(wrong(parser)),
    };
    while parser.accept_sign(':')? {
        parser.expect_sign(':')?;
        parser.name()?;
        while parser.peek().is_some_and(|token| {
            ["precision", "with", "without", "time", "zone", "varying"]
                .iter()
                .any(|word| token.is(word))
        }) {
            parser.take()?;
        }
    }
    Ok(value)
}

/// Reads a COPY after its first keyword; `None` if it writes to another table.
pub(crate) fn copy(text: &str, parser: &mut Parser<'_>) -> Result<Option<Copy>, SyntaxError> {
    let start = parser.at();
    let direction = if parser.accept_sign('(')? {
        let (from, mut depth) = (parser.at(), 1_usize);
        let mut to = from;
        while depth > 0 {
            to = parser.at();
            match parser.take()? {
                Some(Token::Sign('(')) => depth += 1,
                Some(Token::Sign(')')) => depth -= 1,
                Some(_) => {}
                None => return Err(parser.wrong("`)`")),
            }
        }
        Direction::Out(text.get(from..to).unwrap_or_default().to_owned())
    } else {
        let is_metrics = takes_metrics(parser)?;
        let mut end = parser.at();
        while parser.accept_sign('.')? {
            parser.name()?;
            end = parser.at();
        }
        let table = text.get(start..end).unwrap_or_default().trim();
        let list_at = parser.at();
        while !parser.peek().is_none_or(|token| token.is("from") || token.is("to")) {
            parser.take()?;
        }
        let list = text.get(list_at..parser.at()).unwrap_or_default().trim();
        if parser.peek().is_some_and(|token| token.is("from")) {
            if !is_metrics {
                return Ok(None);
            }
            let mut names = Parser::new(list)?;
            let places = columns(&mut names).and_then(|places| names.end().map(|()| places));
            let moved = |error: SyntaxError| SyntaxError { at: list_at + error.at, ..error };
            Direction::In(places.map_err(moved)?)
        } else {
            let list = list.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            // The table has further columns, which no client writes.
            let written = || COLUMNS.map(|column| column.0).join(", ");
            let every = || if is_metrics { written() } else { "*".to_owned() };
            let columns = list.map_or_else(every, str::to_owned);
            Direction::Out(format!("SELECT {columns} FROM {table}"))
        }
    };
    let (word, end, what) = match direction {
        Direction::In(_) => ("from", "stdin", "COPY reads from STDIN only"),
        Direction::Out(_) => ("to", "stdout", "COPY writes to STDOUT only"),
    };
    if !parser.accept(word)? {
        return Err(parser.wrong(&word.to_uppercase()));
    }
    let at = parser.at();
    if !parser.accept(end)? {
        return Err(SyntaxError { code: "42501", ..SyntaxError::new(at, what) });
    }
    let options = options(parser)?;
    parser.end()?;
    Ok(Some(Copy { direction, options }))
}

/// Reads the options of COPY in both of PostgreSQL's forms.
fn options(parser: &mut Parser<'_>) -> Result<Options, SyntaxError> {
    parser.accept("with")?;
    let in_brackets = parser.accept_sign('(')?;
    let mut given: Vec<(usize, String, Option<Token>)> = Vec::new();
    while parser.peek().is_some_and(|token| *token != Token::Sign(')')) {
        let at = parser.at();
        let mut name = parser.name()?;
        parser.accept("as")?;
        if !in_brackets && matches!(&*name, "binary" | "csv" | "text") {
            given.push((at, "format".to_owned(), Some(Token::Word(std::mem::take(&mut name)))));
            continue;
        }
        let has_value = match parser.peek() {
            Some(Token::Sign(_)) | None => false,
            Some(_) => in_brackets || name != "header",
        };
        let value = if has_value { parser.take()? } else { None };
        given.push((at, name, value));
        if in_brackets && !parser.accept_sign(',')? {
            break;
        }
    }
    if in_brackets {
        parser.expect_sign(')')?;
    }
    let mut options = Options::of(Format::Text);
    given.sort_by_key(|(_, name, _)| name != "format");
    for (at, name, value) in given {
        let word = match &value {
            Some(
                Token::Word(text) | Token::Quoted(text) | Token::Text(text) | Token::Number(text),
            ) => text.clone(),
            _ => String::new(),
        };
        set(&mut options, &name, &word).map_err(|what| SyntaxError::unsupported(at, what))?;
    }
    Ok(options)
}

fn set(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    let one = || {
        let mut characters = value.chars();
        match (characters.next(), characters.next()) {
            (Some(c), None) if !matches!(c, '\n' | '\r' | '\\') => Ok(c),
            _ => Err(format!("the option {name} of COPY is one character")),
        }
    };
    match name {
        "format" => {
            *options = Options::of(match &*value.to_lowercase() {
                "text" => Format::Text,
                "csv" => Format::Csv,
                "binary" => Format::Binary,
                other => return Err(format!("COPY has no format `{other}`")),
            });
        }
        "header" => {
            options.header = !matches!(&*value.to_lowercase(), "false" | "off" | "0");
        }
        "delimiter" => options.delimiter = one()?,
        "quote" => options.quote = one()?,
        "escape" => options.escape = one()?,
        "null" => options.null = value.to_owned(),
        "encoding" if matches!(&*value.to_lowercase(), "utf8" | "utf-8" | "unicode") => {}
        "freeze" => {}
        _ => return Err(format!("COPY has no option `{name}` here")),
    }
    Ok(())
}
