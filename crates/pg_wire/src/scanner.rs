//! Tokens of SQL, and the statements of a text.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A keyword or a name, in lower case.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A text literal.
    Text(String),
    /// A number.
    Number(String),
    /// A parameter, such as `$1`.
    Parameter(u16),
    /// Any other character.
    Sign(char),
}

impl Token {
    /// Whether this is a keyword.
    pub fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }
}

/// Text that is no SQL, with the byte where it begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct SyntaxError {
    /// Byte of the text.
    pub at: usize,
    /// PostgreSQL's code.
    pub code: &'static str,
    /// The problem.
    pub what: String,
}

impl SyntaxError {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, code: "42601", what: what.into() }
    }

    /// The error of a part that begins at this byte.
    pub(crate) fn moved(self, start: usize) -> Self {
        Self { at: self.at + start, ..self }
    }

    /// A statement that PostgreSQL has and this server has not.
    pub(crate) fn unsupported(at: usize, what: impl Into<String>) -> Self {
        Self { code: "0A000", ..Self::new(at, what) }
    }
}

/// Reads the tokens of a text.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Starts at a text's beginning.
    pub const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Byte after the last token.
    pub const fn at(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns the next token with the byte where it begins; `None` at the end.
    ///
    /// # Errors
    /// A literal, a quoted name or a comment has no end.
    pub fn token(&mut self) -> Result<Option<(usize, Token)>, SyntaxError> {
        self.skip_blanks()?;
        let (start, rest) = (self.at, self.rest());
        let mut characters = rest.chars();
        let Some(first) = characters.next() else { return Ok(None) };
        let second = characters.next();
        let token = match (first, second) {
            ('\'', _) => Token::Text(self.literal(1, false)?),
            ('e' | 'E', Some('\'')) => Token::Text(self.literal(2, true)?),
            ('"', _) => Token::Quoted(self.quoted()?),
            ('$', Some(digit)) if digit.is_ascii_digit() => {
                let digits = prefix(rest.get(1..).unwrap_or_default(), |c| c.is_ascii_digit());
                self.at += 1 + digits.len();
                let number = digits.parse().ok().filter(|number| *number > 0);
                Token::Parameter(
                    number.ok_or_else(|| SyntaxError::new(start, "no such parameter"))?,
                )
            }
            ('$', _) => match self.dollar_quoted()? {
                Some(text) => Token::Text(text),
                None => self.sign(first),
            },
            _ if first.is_ascii_digit()
                || (first == '.' && second.is_some_and(|c| c.is_ascii_digit())) =>
            {
                Token::Number(self.number(rest))
            }
            _ if first.is_alphabetic() || first == '_' => {
                let word = prefix(rest, |c| c.is_alphanumeric() || matches!(c, '_' | '$'));
                self.at += word.len();
                Token::Word(word.to_lowercase())
            }
            _ => self.sign(first),
        };
        Ok(Some((start, token)))
    }

    fn sign(&mut self, sign: char) -> Token {
        self.at += sign.len_utf8();
        Token::Sign(sign)
    }

    fn number(&mut self, rest: &str) -> String {
        let mut before = ' ';
        let number = prefix(rest, |c| {
            let exponent = matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
            before = c;
            c.is_ascii_alphanumeric() || c == '.' || exponent
        });
        self.at += number.len();
        number.to_owned()
    }

    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = self.rest();
            let blanks = prefix(rest, char::is_whitespace).len();
            self.at += blanks;
            let rest = self.rest();
            if rest.starts_with("--") {
                self.at += prefix(rest, |c| c != '\n').len();
            } else if rest.starts_with("/*") {
                self.skip_comment()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Skips a comment; comments may contain others.
    fn skip_comment(&mut self) -> Result<(), SyntaxError> {
        let (start, mut depth) = (self.at, 0_usize);
        loop {
            let rest = self.rest();
            if rest.starts_with("/*") {
                (depth, self.at) = (depth + 1, self.at + 2);
            } else if rest.starts_with("*/") {
                (depth, self.at) = (depth - 1, self.at + 2);
                if depth == 0 {
                    return Ok(());
                }
            } else {
                let Some(next) = rest.chars().next() else {
                    return Err(SyntaxError::new(start, "the comment has no end"));
                };
                self.at += next.len_utf8();
            }
        }
    }

    fn literal(&mut self, opening: usize, escapes: bool) -> Result<String, SyntaxError> {
        let start = self.at;
        self.at += opening;
        let mut text = String::new();
        let mut characters = self.rest().chars();
        while let Some(c) = characters.next() {
            match c {
                '\'' if characters.clone().next() == Some('\'') => {
                    characters.next();
                    text.push('\'');
                }
                '\'' => {
                    self.at = self.text.len() - characters.as_str().len();
                    return Ok(text);
                }
                '\\' if escapes => {
                    let c = escaped(&mut characters);
                    text.push(
                        c.ok_or_else(|| SyntaxError::new(start, "invalid escape in a text"))?,
                    );
                }
                c => text.push(c),
            }
        }
        Err(SyntaxError::new(start, "the text has no end: a quote is missing"))
    }

    fn quoted(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        let mut name = String::new();
        let mut characters = self.rest().chars();
        characters.next();
        while let Some(c) = characters.next() {
            if c == '"' {
                if characters.clone().next() != Some('"') {
                    self.at = self.text.len() - characters.as_str().len();
                    return Ok(name);
                }
                characters.next();
            }
            name.push(c);
        }
        Err(SyntaxError::new(start, "the name has no end: a double quote is missing"))
    }

    /// Reads `$tag$text$tag$`; `None` if this is none.
    fn dollar_quoted(&mut self) -> Result<Option<String>, SyntaxError> {
        let rest = self.rest();
        let inner = rest.strip_prefix('$').unwrap_or_default();
        let tag = prefix(inner, |c| c.is_alphanumeric() || c == '_');
        if inner.get(tag.len()..).is_none_or(|after| !after.starts_with('$')) {
            return Ok(None);
        }
        let mark = format!("${tag}$");
        let body = rest.get(mark.len()..).unwrap_or_default();
        let Some(end) = body.find(&mark) else {
            return Err(SyntaxError::new(
                self.at,
                format!("the text has no end: {mark} is missing"),
            ));
        };
        self.at += mark.len() * 2 + end;
        Ok(body.get(..end).map(str::to_owned))
    }
}

/// The longest beginning of a text with these characters only.
fn prefix(text: &str, mut holds: impl FnMut(char) -> bool) -> &str {
    let end = text.find(|c| !holds(c)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// The character of an escape, after its backslash.
fn escaped(characters: &mut std::str::Chars<'_>) -> Option<char> {
    let digits = |characters: &mut std::str::Chars<'_>, radix, least: usize, most: usize| {
        let rest = characters.as_str();
        let digits = prefix(rest, |c| c.is_digit(radix));
        let digits = digits.get(..most.min(digits.len()))?;
        (digits.len() >= least).then_some(())?;
        characters.nth(digits.len().checked_sub(1)?);
        let code = u32::from_str_radix(digits, radix).ok()?;
        char::from_u32(code).filter(|c| *c != '\0')
    };
    let c = characters.clone().next()?;
    if c.is_digit(8) {
        return digits(characters, 8, 1, 3).filter(char::is_ascii);
    }
    characters.next();
    match c {
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'x' => digits(characters, 16, 1, 2).filter(char::is_ascii),
        'u' => digits(characters, 16, 4, 4),
        'U' => digits(characters, 16, 8, 8),
        c => Some(c),
    }
}

/// Splits a text into its statements, each with its first byte. Empty ones are left out.
///
/// # Errors
/// A literal, a quoted name or a comment has no end.
pub fn statements(text: &str) -> Result<Vec<(usize, &str)>, SyntaxError> {
    let mut scanner = Scanner::new(text);
    let (mut found, mut first) = (Vec::new(), None);
    let mut end = 0;
    while let Some((at, token)) = scanner.token()? {
        if token == Token::Sign(';') {
            if let Some(start) = first.take() {
                found.push((start, text.get(start..end).unwrap_or_default()));
            }
            continue;
        }
        first.get_or_insert(at);
        end = scanner.at();
    }
    if let Some(start) = first {
        found.push((start, text.get(start..end).unwrap_or_default()));
    }
    Ok(found)
}

/// The highest number of a statement's parameters; 0 of a text that is no SQL.
pub fn parameter_count(text: &str) -> usize {
    let (mut scanner, mut count) = (Scanner::new(text), 0);
    while let Ok(Some((_, token))) = scanner.token() {
        if let Token::Parameter(number) = token {
            count = count.max(number);
        }
    }
    count.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_has_its_statements() {
        let text =
            " SELECT ';' ; -- ; no\n/* ; /* ; */ */ SELECT \"a;b\", $$;$$, $x$ $$;$x$; ;x E'\\';'";
        let found: Vec<&str> = statements(text).unwrap().into_iter().map(|(_, one)| one).collect();
        let second = "SELECT \"a;b\", $$;$$, $x$ $$;$x$";
        assert_eq!(found, ["SELECT ';'", second, "x E'\\';'"]);
        assert_eq!(statements(" ; -- x").unwrap(), []);
        for bad in ["'x", "\"x", "/* /* */", "$$x", "$a$ $$", "E'\\'"] {
            assert!(statements(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tokens_of_a_statement() {
        let mut scanner =
            Scanner::new("Ab \"C\"\"d\" 'it''s' E'a\\n\\x41\\u00e9' 1.5e-3 .5 $12 $ ::");
        let mut tokens = Vec::new();
        while let Some((_, token)) = scanner.token().unwrap() {
            tokens.push(token);
        }
        let text = |text: &str| Token::Text(text.to_owned());
        let number = |text: &str| Token::Number(text.to_owned());
        let want = [
            Token::Word("ab".into()),
            Token::Quoted("C\"d".into()),
            text("it's"),
            text("a\nAé"),
            number("1.5e-3"),
            number(".5"),
            Token::Parameter(12),
            Token::Sign('$'),
            Token::Sign(':'),
            Token::Sign(':'),
        ];
        assert_eq!(tokens, want);
        assert_eq!(parameter_count("SELECT $2, '$3', \"$4\", $1 -- $5"), 2);
        assert_eq!(parameter_count("SELECT 1"), 0);
    }

    proptest! {
        #[test]
        fn any_text_ends(text: String) {
            for (at, one) in statements(&text).unwrap_or_default() {
                prop_assert_eq!(text.get(at..at + one.len()), Some(one));
            }
        }
    }
}
