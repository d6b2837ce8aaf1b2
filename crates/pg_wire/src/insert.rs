//! `INSERT INTO metrics … VALUES …` and `COPY metrics …`.

use crate::cast::{Kind, assign, begins_type, cast, is_number, negated, stored, type_name};
use crate::copy::{COLUMNS, Format, Options, Row};
use crate::oid;
use crate::parser::Parser;
use crate::scanner::{SyntaxError, Token};

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Null or the default, which are the same.
    Null,
    /// A literal.
    Text(String),
    /// A parameter, from 1, with the type of its cast.
    Parameter(u16, Option<Kind>),
}

/// A value of a row in few bytes: a message may have hundreds of thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Null,
    /// A literal, with its bytes in the text of all.
    Text(usize),
    Parameter(u16, Option<Kind>),
}

/// Rows to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    columns: Vec<usize>,
    /// The values of all rows, one row after another.
    cells: Vec<Cell>,
    /// The literals of all rows.
    texts: String,
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
    /// Types of the parameters, by their casts and columns.
    pub fn parameter_types(&self) -> Vec<u32> {
        let mut types = Vec::new();
        for (cell, place) in self.cells.iter().zip(self.columns.iter().cycle()) {
            let Cell::Parameter(number, kind) = cell else { continue };
            let number = usize::from(*number);
            types.resize(types.len().max(number), oid::TEXT);
            let of_column = COLUMNS.get(*place).map_or(oid::TEXT, |column| column.1);
            if let Some(slot) = types.get_mut(number.saturating_sub(1)) {
                *slot = kind.map_or(of_column, |kind| kind.oid);
            }
        }
        types
    }

    /// Bytes of memory that it holds.
    pub const fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>() + self.texts.capacity()
    }

    /// The rows with these parameters.
    ///
    /// # Errors
    /// A parameter is missing (42P02), or is no value of its cast. The place of the error is 0.
    pub fn rows(&self, parameters: &[Option<String>]) -> Result<Vec<Row>, SyntaxError> {
        let width = self.columns.len().max(1);
        let mut rows = Vec::with_capacity(self.cells.len() / width);
        let mut texts = self.texts.as_str();
        for cells in self.cells.chunks(width) {
            let mut row = Row::default();
            for (place, cell) in self.columns.iter().zip(cells) {
                let value = match *cell {
                    Cell::Null => None,
                    Cell::Text(bytes) => {
                        let (text, rest) = texts.split_at_checked(bytes).unwrap_or_default();
                        texts = rest;
                        Some(text.to_owned())
                    }
                    Cell::Parameter(number, kind) => parameter(parameters, number, kind)?,
                };
                if let Some(slot) = row.get_mut(*place) {
                    *slot = value;
                }
            }
            rows.push(row);
        }
        Ok(rows)
    }

    fn add(&mut self, value: Value) {
        self.cells.push(match value {
            Value::Null => Cell::Null,
            Value::Text(text) => {
                self.texts.push_str(&text);
                Cell::Text(text.len())
            }
            Value::Parameter(number, kind) => Cell::Parameter(number, kind),
        });
    }
}

fn parameter(
    parameters: &[Option<String>],
    number: u16,
    kind: Option<Kind>,
) -> Result<Option<String>, SyntaxError> {
    let given = parameters.get(usize::from(number).saturating_sub(1)).ok_or_else(|| {
        let what = format!("there is no parameter ${number}");
        SyntaxError { code: "42P02", ..SyntaxError::new(0, what) }
    })?;
    match (given, kind) {
        (Some(text), Some(kind)) => cast(text, oid::UNKNOWN, kind).map(Some),
        _ => Ok(given.clone()),
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
    let names_columns = parser.peek() == Some(&Token::Sign('('));
    let columns = columns(parser)?;
    if !parser.accept("values")? {
        return Err(SyntaxError::unsupported(
            parser.at(),
            "rows are inserted with VALUES and with COPY, and not from a query",
        ));
    }
    let mut insert = Insert { columns, cells: Vec::new(), texts: String::new() };
    loop {
        let at = parser.at();
        parser.expect_sign('(')?;
        let values = parser.items(|parser| Ok((parser.at(), value(parser)?)))?;
        let is_first = insert.cells.is_empty();
        if is_first && !names_columns {
            // The other columns have their defaults.
            insert.columns.truncate(values.len());
        }
        let (has, want) = (values.len(), insert.columns.len());
        if has != want {
            let what = match (is_first, has > want) {
                (true, true) => "INSERT has more expressions than target columns",
                (true, false) => "INSERT has more target columns than expressions",
                (false, _) => "VALUES lists must all be the same length",
            };
            return Err(SyntaxError::new(at, what));
        }
        for ((at, (value, from)), place) in values.into_iter().zip(0_usize..) {
            let column = insert.columns.get(place).and_then(|place| COLUMNS.get(*place));
            let Some(column) = column else { continue };
            let value = assign(from, *column).and_then(|()| match value {
                Value::Text(text) => stored(text, from, column.1).map(Value::Text),
                value => Ok(value),
            });
            insert.add(value.map_err(|error| error.moved(at))?);
        }
        if !parser.accept_sign(',')? {
            break;
        }
    }
    if parser.peek().is_some_and(|token| token.is("on") || token.is("returning")) {
        let what = "INSERT has neither ON CONFLICT nor RETURNING here";
        return Err(SyntaxError::unsupported(parser.at(), what));
    }
    parser.end()?;
    insert.cells.shrink_to_fit();
    insert.texts.shrink_to_fit();
    Ok(Some(insert))
}

/// Takes a literal with its signs and casts. Returns it with the ID of its type.
pub(crate) fn value(parser: &mut Parser<'_>) -> Result<(Value, u32), SyntaxError> {
    let (start, mut signs, mut is_negative) = (parser.at(), 0_usize, false);
    while let Some(Token::Sign(c @ ('-' | '+'))) = parser.peek() {
        (signs, is_negative) = (signs + 1, is_negative ^ (*c == '-'));
        parser.take()?;
    }
    let (mut value, mut from) = literal(parser, start)?;
    // The present instant is the default of its column, and has no text here.
    let is_now = value == Value::Null && from == oid::TIMESTAMPTZ;
    while parser.accept_sign(':')? {
        parser.expect_sign(':')?;
        let at = parser.at();
        let kind = type_name(parser)?;
        value = match value {
            Value::Text(text) => {
                Value::Text(cast(&text, from, kind).map_err(|error| error.moved(start))?)
            }
            Value::Parameter(number, None) => Value::Parameter(number, Some(kind)),
            Value::Parameter(..) => {
                let what = "a parameter has one cast";
                return Err(SyntaxError::unsupported(at, what));
            }
            Value::Null if is_now && !kind.is_instant() => {
                let what = "a cast of now() to another type is not supported";
                return Err(SyntaxError::unsupported(at, what));
            }
            Value::Null => Value::Null,
        };
        from = kind.oid;
    }
    match value {
        _ if signs == 0 => Ok((value, from)),
        Value::Text(text) if is_number(from) => {
            let text = if is_negative { negated(&text, from) } else { Ok(text) };
            Ok((Value::Text(text.map_err(|error| error.moved(start))?), from))
        }
        _ => Err(no_value(start)),
    }
}

fn no_value(at: usize) -> SyntaxError {
    let what = "a value of INSERT and EXECUTE is a literal, a parameter, NULL, DEFAULT or now()";
    SyntaxError::unsupported(at, what)
}

/// Takes a literal without signs, and returns it with the ID of its type.
fn literal(parser: &mut Parser<'_>, start: usize) -> Result<(Value, u32), SyntaxError> {
    let at = parser.at();
    if let Some(Token::Word(word)) = parser.peek()
        && begins_type(word)
    {
        let kind = type_name(parser)?;
        return match parser.take()? {
            Some(Token::Text(text)) => cast(&text, oid::UNKNOWN, kind)
                .map(|text| (Value::Text(text), kind.oid))
                .map_err(|error| error.moved(at)),
            _ => Err(no_value(start)),
        };
    }
    match parser.take()? {
        Some(Token::Number(number)) => {
            if number.contains(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | 'E' | '+' | '-'))
                || number.parse::<f64>().is_err()
            {
                let what = format!("trailing junk after the number `{number}`");
                return Err(SyntaxError::new(at, what));
            }
            Ok((Value::Text(number), oid::NUMERIC))
        }
        Some(Token::Text(text)) => Ok((Value::Text(text), oid::UNKNOWN)),
        Some(Token::Parameter(number)) => Ok((Value::Parameter(number, None), oid::UNKNOWN)),
        Some(Token::Word(word)) => match &*word {
            "null" => Ok((Value::Null, oid::UNKNOWN)),
            "default" if parser.peek() == Some(&Token::Sign(':')) => {
                Err(SyntaxError::new(at, "DEFAULT is not allowed in this context"))
            }
            "default" => Ok((Value::Null, oid::UNKNOWN)),
            "current_timestamp" => Ok((Value::Null, oid::TIMESTAMPTZ)),
            "now" => {
                parser.expect_sign('(')?;
                parser.expect_sign(')')?;
                Ok((Value::Null, oid::TIMESTAMPTZ))
            }
            "true" | "false" => Ok((Value::Text(word), oid::BOOL)),
            _ => Err(no_value(start)),
        },
        _ => Err(no_value(start)),
    }
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
            Direction::In(places.map_err(|error| error.moved(list_at))?)
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
    let at = parser.at();
    let options = options(parser)?;
    if options.matches && matches!(direction, Direction::Out(_)) {
        let what = "cannot use \"match\" with HEADER in COPY TO";
        return Err(SyntaxError::unsupported(at, what));
    }
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
    let is_csv = options.format == Format::Csv;
    let one = || {
        let mut characters = value.chars();
        match (characters.next(), characters.next()) {
            (Some('\\'), None) if !is_csv => Err(format!("{name} of COPY cannot be a backslash")),
            (Some(c), None) if !matches!(c, '\n' | '\r') => Ok(c),
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
            (options.header, options.matches) = match &*value.to_lowercase() {
                "" | "true" | "on" | "1" => (true, false),
                "false" | "off" | "0" => (false, false),
                "match" => (true, true),
                _ => return Err("HEADER of COPY is a Boolean value or MATCH".to_owned()),
            };
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
