//! The events of the YAML parser as one node.

use super::scalar::{BadNumber, Plain, boolean, float, int, resolve};
use super::value::{Node, Value};
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Nested lists and maps of a document; more are an error.
const DEPTH_MAX: usize = 64;
/// Nodes of a document with its aliases expanded: aliases of aliases grow exponentially.
const NODES_MAX: usize = 2_000_000;
/// The tags of YAML's own types.
const YAML_TAG: &str = "tag:yaml.org,2002:";

/// Why a text is not a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct YamlError {
    /// Line, from 1.
    pub line: usize,
    /// The problem.
    pub what: String,
}

/// Reads a text as PyYAML's `safe_load` does. An empty text is [`Value::Null`].
///
/// # Errors
///
/// The first error of the text: what PyYAML rejects, a type outside of [`Value`] (`!!binary`, `!!set`), more than
/// 64 nested lists, or more than 2 000 000 values.
pub fn load(text: &str) -> Result<Node, YamlError> {
    check_characters(text)?;
    let mut loader = Loader::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| YamlError {
            line: error.marker().line(),
            what: error.info().to_owned(),
        })?;
        loader.take(event, span.start.line())?;
    }
    Ok(loader.document.unwrap_or(Node { line: 1, value: Value::Null }))
}

/// YAML allows no control characters, so that a binary file is an error at its first one.
fn check_characters(text: &str) -> Result<(), YamlError> {
    let is_allowed = |letter: char| match letter {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        ' '..='~' | '\u{a0}'.. => !matches!(letter, '\u{fffe}' | '\u{ffff}'),
        _ => false,
    };
    let mut lines = text.split('\n').zip(1..);
    let Some((bad, line)) = lines.find_map(|(content, line)| {
        content.chars().find(|letter| !is_allowed(*letter)).map(|bad| (bad, line))
    }) else {
        return Ok(());
    };
    Err(YamlError { line, what: format!("the character U+{:04X} is not allowed", u32::from(bad)) })
}

/// A list or map whose end was not read yet.
struct Open {
    line: usize,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, key: Option<Key> },
}

/// A key of a map.
enum Key {
    /// `<<`, at this line.
    Merge(usize),
    /// `=`, at this line: a text as a key, and nothing elsewhere.
    Default(usize),
    Node(Node),
}

#[derive(Default)]
struct Loader {
    document: Option<Node>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

impl Loader {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let key = scalar(&text, style, tag.as_deref(), line)?;
                self.add(key, anchor, line)
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_ref(), "seq", line)?;
                self.begin(Open { line, anchor, items: Items::List(Vec::new()) })
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_ref(), "map", line)?;
                let items = Items::Map { entries: Vec::new(), key: None };
                self.begin(Open { line, anchor, items })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = match open.items {
                    Items::List(items) => Value::List(items),
                    Items::Map { entries, .. } => Value::Map(merged(entries)?),
                };
                self.add(Key::Node(Node { line: open.line, value }), open.anchor, line)
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let what = "the alias is inside of its own anchor";
                let mut node = node.ok_or_else(|| error(line, what))?;
                node.line = line;
                self.count(size(&node), line)?;
                self.add(Key::Node(node), 0, line)
            }
            Event::DocumentStart(_) if self.document.is_some() => {
                Err(error(line, "a second document begins; a file holds one"))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, open: Open) -> Result<(), YamlError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(error(open.line, &format!("more than {DEPTH_MAX} nested lists and maps")));
        }
        self.open.push(open);
        Ok(())
    }

    /// Adds a node to the innermost open list or map.
    fn add(&mut self, key: Key, anchor: usize, line: usize) -> Result<(), YamlError> {
        self.count(1, line)?;
        if let (Key::Node(node), 1..) = (&key, anchor) {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.document = Some(as_value(key)?),
            Some(Items::List(items)) => items.push(as_value(key)?),
            Some(Items::Map { entries, key: open_key }) => match open_key.take() {
                None => *open_key = Some(as_key(key)?),
                Some(known) => entries.push((known, as_value(key)?)),
            },
        }
        Ok(())
    }

    fn count(&mut self, more: usize, line: usize) -> Result<(), YamlError> {
        self.nodes = self.nodes.saturating_add(more);
        if self.nodes > NODES_MAX {
            return Err(error(
                line,
                &format!("more than {NODES_MAX} values, with aliases expanded"),
            ));
        }
        Ok(())
    }
}

fn error(line: usize, what: &str) -> YamlError {
    YamlError { line, what: what.to_owned() }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<Key, YamlError> {
    let not = |what: &str| error(line, &format!("`{text}` is not {what}"));
    let value = match tag.map(tag_name) {
        None if style == ScalarStyle::Plain => match resolve(text) {
            Ok(Plain::Value(value)) => value,
            Ok(Plain::Merge) => return Ok(Key::Merge(line)),
            Ok(Plain::Default) => return Ok(Key::Default(line)),
            Err(BadNumber) => return Err(not("a number that fits 127 bits")),
        },
        None => Value::Text(text.to_owned()),
        Some(tag) => match (tag.strip_prefix(YAML_TAG), &*tag) {
            (Some("str"), _) | (None, "!") => Value::Text(text.to_owned()),
            (Some("int"), _) => Value::Int(int(text).ok_or_else(|| not("an integer"))?),
            (Some("float"), _) => {
                let number = float(text).or_else(|| text.parse().ok());
                Value::Float(number.ok_or_else(|| not("a number"))?)
            }
            (Some("bool"), _) => Value::Bool(boolean(text).ok_or_else(|| not("a boolean"))?),
            (Some("null"), _) => Value::Null,
            _ => return Err(error(line, &format!("the tag `{tag}` is not supported"))),
        },
    };
    Ok(Key::Node(Node { line, value }))
}

fn tag_name(tag: &Tag) -> String {
    format!("{}{}", tag.handle, tag.suffix)
}

fn check_tag(tag: Option<&Cow<'_, Tag>>, expected: &str, line: usize) -> Result<(), YamlError> {
    let Some(name) = tag.map(|tag| tag_name(tag)) else { return Ok(()) };
    if name == "!" || name.strip_prefix(YAML_TAG) == Some(expected) {
        return Ok(());
    }
    Err(error(line, &format!("the tag `{name}` is not supported")))
}

fn as_value(key: Key) -> Result<Node, YamlError> {
    match key {
        Key::Node(node) => Ok(node),
        Key::Merge(line) => Err(error(line, "`<<` is no value; quote it if a text is meant")),
        Key::Default(line) => Err(error(line, "`=` is no value; quote it if a text is meant")),
    }
}

fn as_key(key: Key) -> Result<Key, YamlError> {
    match key {
        Key::Node(Node { line, value: value @ (Value::List(_) | Value::Map(_)) }) => {
            Err(error(line, &format!("{} cannot be a key", value.kind())))
        }
        Key::Default(line) => Ok(Key::Node(Node { line, value: Value::Text("=".to_owned()) })),
        key => Ok(key),
    }
}

/// The entries of a map with its merge keys applied: own keys before merged ones, earlier merged maps before
/// later ones.
fn merged(entries: Vec<(Key, Node)>) -> Result<Vec<(Node, Node)>, YamlError> {
    let mut own = Vec::with_capacity(entries.len());
    let mut inherited = Vec::new();
    for (key, value) in entries {
        match key {
            Key::Node(key) => own.push((key, value)),
            Key::Merge(line) => merge(value.value, line, &mut inherited)?,
            Key::Default(_) => {}
        }
    }
    let mut all: Vec<(Node, Node)> = Vec::with_capacity(inherited.len() + own.len());
    let mut places = HashMap::with_capacity(all.capacity());
    for (key, value) in inherited.into_iter().chain(own) {
        let place = *places.entry(key.value.identity()).or_insert(all.len());
        match all.get_mut(place) {
            Some(known) => known.1 = value,
            None => all.push((key, value)),
        }
    }
    Ok(all)
}

fn merge(value: Value, line: usize, to: &mut Vec<(Node, Node)>) -> Result<(), YamlError> {
    let not_a_map = |value: &Value| {
        error(line, &format!("`<<` needs a map or a list of maps, not {}", value.kind()))
    };
    match value {
        Value::Map(entries) => to.extend(entries),
        // The first map of a list wins, so it comes last.
        Value::List(items) => {
            for item in items.into_iter().rev() {
                match item.value {
                    Value::Map(entries) => to.extend(entries),
                    other => return Err(not_a_map(&other)),
                }
            }
        }
        other => return Err(not_a_map(&other)),
    }
    Ok(())
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(entries) => {
            1 + entries.iter().map(|(key, value)| size(key) + size(value)).sum::<usize>()
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    fn as_json(node: &Node) -> Json {
        match &node.value {
            Value::Null => Json::Null,
            Value::Bool(value) => json!(value),
            Value::Int(value) => json!(i64::try_from(*value).unwrap()),
            Value::Float(value) => json!(value),
            Value::Text(text) | Value::Time(text) => json!(text),
            Value::List(items) => items.iter().map(as_json).collect(),
            Value::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|(key, value)| {
                        let key = as_json(key);
                        (
                            key.as_str().map_or_else(|| key.to_string(), str::to_owned),
                            as_json(value),
                        )
                    })
                    .collect(),
            ),
        }
    }

    fn read(text: &str) -> Json {
        as_json(&load(text).unwrap_or_else(|error| panic!("{text}: {error}")))
    }

    fn failure(text: &str) -> String {
        load(text).unwrap_err().to_string()
    }

    #[test]
    fn merge_keys_add_what_the_map_lacks() {
        let text = "- &a {x: 1, y: 1}\n- &b {x: 2, z: 2}\n- <<: [*a, *b]\n  y: on\n";
        assert_eq!(read(text)[2], json!({"x": 1, "y": true, "z": 2}));
        assert!(failure("a: {<<: 7}").contains("`<<` needs a map"));
        assert_eq!(read("{a: 1, a: 2, 'b': {\"c\":3}}"), json!({"a": 2, "b": {"c": 3}}));
    }

    #[test]
    fn errors_state_the_line() {
        assert_eq!(failure("a: 1\nb: \u{7}"), "line 2: the character U+0007 is not allowed");
        assert!(failure("a: 1\n b: 2\n").starts_with("line 2:"));
        assert!(failure("a: !!python/object:os.system x").contains("is not supported"));
        assert!(failure("--- 1\n--- 2\n").contains("a second document begins"));
        assert!(failure("[a]: 1").contains("a list cannot be a key"));
        assert!(failure("- *unknown").starts_with("line 1:"));
        assert!(failure("&a [*a]").contains("inside of its own anchor"));
    }

    #[test]
    fn depth_and_expansion_are_limited() {
        assert!(failure(&"[".repeat(100)).contains("more than 64 nested"));
        assert!(load(&"[".repeat(100_000)).is_err());
        let mut bomb = String::from("- &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let alias = format!("*a{}", level - 1);
            let items = [&*alias; 10].join(", ");
            bomb.push_str(&format!("- &a{level} [{items}]\n"));
        }
        assert!(failure(&bomb).contains("more than 2000000 values"));
    }

    #[test]
    fn nothing_is_null() {
        assert_eq!(read(""), Json::Null);
        assert_eq!(read("# a comment\n"), Json::Null);
        assert_eq!(read("---\n...\n"), Json::Null);
    }
}
