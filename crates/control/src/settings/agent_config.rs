//! The configuration that the server distributes to agents: its agent file, and the text for a node.

use super::text::AgentFile;
use std::path::{Path, PathBuf};

/// Maximum length of the agent file, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// The agent file is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct AgentConfigError {
    /// Path of the file.
    pub path: PathBuf,
    /// The problem.
    pub why: String,
}

/// The configuration that the server distributes to agents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentConfig {
    /// Identifies the text; 0 if there is none.
    pub generation: u64,
    /// The text.
    pub text: Vec<u8>,
    /// The parsed text, for the composition of node texts.
    pub(super) pieces: AgentFile,
}

impl AgentConfig {
    /// Reads the agent file.
    ///
    /// # Errors
    /// The file cannot be read, is too long, or is not TOML.
    pub fn read(path: &Path) -> Result<Self, AgentConfigError> {
        let wrong = |why| AgentConfigError { path: path.to_owned(), why };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        if text.len() > BYTES_MAX {
            return Err(wrong(format!("longer than {BYTES_MAX} bytes")));
        }
        let pieces = AgentFile::parse(&text).map_err(wrong)?;
        Ok(Self { pieces, ..Self::of_node(text) })
    }

    /// Wraps the text for a node.
    pub(super) fn of_node(text: String) -> Self {
        let generation = generation(text.as_bytes());
        Self { generation, text: text.into(), pieces: AgentFile::default() }
    }
}

/// Hashes a text to its generation: the first 63 bits of its SHA-256, and never 0. 63 bits also fit into
/// signed integers.
fn generation(text: &[u8]) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, text);
    let first = digest.as_ref().first_chunk::<8>().copied().unwrap_or_default();
    (u64::from_be_bytes(first) >> 1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_names_its_text() {
        assert_ne!(generation(b"a"), generation(b"b"));
        assert_eq!(generation(b"a"), generation(b"a"));
        assert_ne!(generation(b""), 0);
    }
}
