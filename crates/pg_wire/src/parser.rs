//! Takes the tokens of a statement one after another.

use crate::frontend::NAME_BYTES_MAX;
use crate::scanner::{Scanner, SyntaxError, Token};

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
