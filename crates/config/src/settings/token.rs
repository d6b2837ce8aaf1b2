//! A secret that is read from a file and never shown.

use crate::settings::small_file::{FILE_BYTES_MAX, as_text, read_small};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 1024;

/// A token of the server, or a password. It is never printed, not even for debugging.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a file has no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{what} file {path}: {why}")]
    Unreadable {
        /// Token or password.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's message.
        why: io::Error,
    },
    /// Its first line is not a token.
    #[error(
        "{what} file {path}: its first line is no {what}: 1 to {TOKEN_BYTES_MAX} letters, digits and signs, \
         no blank"
    )]
    NoToken {
        /// Token or password.
        what: &'static str,
        /// Its path.
        path: PathBuf,
    },
}

impl Token {
    /// The token on a file's first line.
    ///
    /// # Errors
    /// The file cannot be read, or its first line is not a token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        Self::of(path, "token")
    }

    /// The password on a file's first line.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn read_password(path: &Path) -> Result<Self, TokenError> {
        Self::of(path, "password")
    }

    fn of(path: &Path, what: &'static str) -> Result<Self, TokenError> {
        let text = read_small(path, FILE_BYTES_MAX)
            .and_then(as_text)
            .map_err(|why| TokenError::Unreadable { what, path: path.to_owned(), why })?;
        let mode = std::fs::metadata(path).map_or(0, |data| data.permissions().mode());
        if mode & 0o004 != 0 {
            log::warn!(
                "{what} file {}: every user of this machine can read it; run chmod 600 on it",
                path.display()
            );
        }
        let token = text.lines().next().unwrap_or_default().trim();
        let ok = (1..=TOKEN_BYTES_MAX).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_graphic());
        if ok {
            Ok(Self(token.to_owned()))
        } else {
            Err(TokenError::NoToken { what, path: path.to_owned() })
        }
    }

    /// The secret itself, to send or compare it.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(...)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert!(matches!(Token::read(&path), Err(TokenError::Unreadable { .. })));
        std::fs::write(&path, " s3cret \nmore\n").unwrap();
        let token = Token::read(&path).unwrap();
        assert_eq!(token.secret(), "s3cret");
        assert_eq!(format!("{token:?}"), "Token(...)");
        std::fs::write(&path, "").unwrap();
        let error = Token::read_password(&path).unwrap_err().to_string();
        assert!(error.starts_with("password file ") && error.contains("is no password"), "{error}");
        for bad in ["", "\n", "a b", "a\u{e9}", &"x".repeat(1025)] {
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(Token::read(&path), Err(TokenError::NoToken { .. })), "{bad:?}");
        }
    }
}
