//! The mapping file: which node a port feeds, as `node: [METER-portN, …]`.

use crate::descriptions::ALIAS;
use crate::yaml::{Node, Value, load};
use model::Labels;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Bytes of a mapping file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Why a mapping file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct MappingError {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: Option<usize>,
    /// The problem.
    pub what: String,
}

/// The labels of ports by the names of their devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping(HashMap<String, Labels>);

impl Mapping {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or it is no map of nodes with their ports.
    pub fn read(file: &Path) -> Result<Self, MappingError> {
        let error = |line, what| MappingError { file: file.to_owned(), line, what };
        let text = config::read_small(file, FILE_BYTES_MAX).and_then(config::as_text);
        let text = text.map_err(|why| error(None, why.to_string()))?;
        Self::of_text(&text).map_err(|(line, what)| error(Some(line), what))
    }

    /// Reads the text of a file. An error has its line.
    fn of_text(text: &str) -> Result<Self, (usize, String)> {
        let document = load(text).map_err(|error| (error.line, error.what))?;
        let nodes = match &document.value {
            Value::Null => return Ok(Self::default()),
            Value::Map(nodes) => nodes,
            other => {
                let what = format!("a map of nodes is expected, not {}", other.kind());
                return Err((document.line, what));
            }
        };
        let mut mapping = HashMap::new();
        for (node, ports) in nodes {
            let labels = Labels::new([(ALIAS, &*name(node)?)]).and_then(Labels::must_be_printable);
            let labels = labels.map_err(|error| (node.line, error.to_string()))?;
            let Value::List(ports) = &ports.value else {
                let what = format!("a list of ports is expected, not {}", ports.value.kind());
                return Err((ports.line, what));
            };
            for port in ports {
                mapping.insert(name(port)?, labels.clone());
            }
        }
        Ok(Self(mapping))
    }

    /// The labels of a port.
    pub(super) fn labels(&self, device: &str) -> Labels {
        self.0.get(device).cloned().unwrap_or_default()
    }
}

/// The name of a node or port.
fn name(node: &Node) -> Result<String, (usize, String)> {
    match &node.value {
        Value::Text(text) if !text.is_empty() => Ok(text.clone()),
        Value::Int(number) => Ok(number.to_string()),
        Value::Text(_) => Err((node.line, "a name is empty".into())),
        other => Err((node.line, format!("a name is expected, not {}; quote it", other.kind()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_feeds_the_last_node_that_lists_it() {
        let text = "node-1: [w-port0, w-port1]\nnode-2:\n- w-port2\n- w-port0\n";
        let mapping = Mapping::of_text(text).unwrap();
        let node = |port: &str| mapping.labels(port).get("_device_alias");
        assert_eq!(node("w-port0").as_deref(), Some("node-2"));
        assert_eq!(node("w-port1").as_deref(), Some("node-1"));
        assert_eq!(node("w-port3"), None);
        assert_eq!(Mapping::of_text("# nothing\n"), Ok(Mapping::default()));
    }

    #[test]
    fn errors_have_their_line() {
        for (text, line) in [
            ("- a", 1),
            ("a: [p]\nb: p", 2),
            ("a: [p]\nb: {p: q}", 2),
            ("a:\n- p\n- [q]", 3),
            ("'': [p]", 1),
            ("\"a\\x07\": [p]", 1),
            ("a: ]", 1),
        ] {
            let (found, what) = Mapping::of_text(text).unwrap_err();
            assert_eq!(found, line, "{text}: {what}");
        }
    }
}
