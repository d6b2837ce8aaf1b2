//! Lists of many nodes in one text: `dahu-[1-32],x[01-04],gpu-*`, like Slurm's and ClusterShell's.
//!
//! Commas separate the names. `[1-3,7]` stands for one of these numbers; numbers with leading zeros
//! (`[01-12]`) have the written width. `*` stands for any text. A [`NodeList`] is matched against names and
//! never expanded, so that `n[0-999999999]` costs no more than `n1`. [`expand_hosts`] expands a list without
//! `*`.

use crate::is_unprintable;
use crate::names::NAME_BYTES_MAX;
use std::fmt;

/// Maximum length of a list, in bytes.
pub const NODE_LIST_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of names in a list, and of numbers or ranges in a pair of brackets.
const PIECES_MAX: usize = 2000;
/// Maximum number of texts, brackets and stars in a name: the cost of matching grows with it.
const PARTS_MAX: usize = 32;
/// Maximum number of digits of a number.
const DIGITS_MAX: usize = 18;

/// A list of nodes. Two lists are equal if their texts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList {
    text: Box<str>,
    names: Vec<Vec<Part>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Numbers(Vec<Numbers>),
    Any,
}

/// A range of numbers with a minimum width in digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    from: u64,
    to: u64,
    width: usize,
}

/// Why a text is not a list of nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a list of nodes such as dahu-[1-32],x[01-04],gpu-*: at byte {at}, {what}")]
pub struct NodeListError {
    text: String,
    /// The byte, from 1.
    pub at: usize,
    what: &'static str,
}

/// Why a text cannot be expanded to hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// It is not a list.
    #[error(transparent)]
    List(#[from] NodeListError),
    /// A name longer than [`NAME_BYTES_MAX`].
    #[error("the list names a host of more than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// More hosts than the limit.
    #[error("the list names more than {0} hosts")]
    TooMany(usize),
}

impl NodeList {
    /// Parses a list.
    ///
    /// # Errors
    /// The text is not a list, or longer than 16 KiB.
    pub fn new(text: &str) -> Result<Self, NodeListError> {
        let failed = |error| NodeListError::new(text, error);
        if text.len() > NODE_LIST_BYTES_MAX {
            return Err(failed((NODE_LIST_BYTES_MAX, "it is longer than 16 KiB")));
        }
        if let Some(at) = text.find(is_unprintable) {
            return Err(failed((at, "this character is unprintable")));
        }
        let mut reading = Reading { text: text.as_bytes(), at: 0, numbers_max: PIECES_MAX };
        let mut names = Vec::new();
        loop {
            names.push(reading.name().map_err(failed)?);
            if names.len() > PIECES_MAX {
                return Err(failed((reading.at, "there are more than 2000 names")));
            }
            if reading.next() != Some(b',') {
                break;
            }
        }
        Ok(Self { text: text.into(), names })
    }

    /// Whether a text is a single plain name, so that it can be put into a list.
    pub fn is_name(text: &str) -> bool {
        Self::new(text).is_ok_and(|list| list.plain().is_some_and(|names| names == [text]))
    }

    /// Whether the list contains a node.
    pub fn has(&self, node: &str) -> bool {
        self.names.iter().any(|parts| matches(parts, node.as_bytes()))
    }

    /// The names, if all are plain; `None` if one has brackets or a star.
    pub fn plain(&self) -> Option<Vec<&str>> {
        self.names.iter().map(|parts| plain(parts)).collect()
    }

    /// The plain names, without brackets and stars.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter_map(|parts| plain(parts))
    }

    /// The list as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The text of a name without brackets and stars.
fn plain(parts: &[Part]) -> Option<&str> {
    match parts {
        [Part::Text(text)] => Some(text),
        _ => None,
    }
}

impl fmt::Display for NodeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Expands a list of hosts, in its order; the numbers of a name's last bracket change fastest. Blanks and
/// further commas around a name are ignored. An empty list gives no host.
///
/// # Errors
/// The text is not a list, contains `*`, or has more than `hosts_max` hosts.
///
/// ```
/// let hosts = model::expand_hosts("dahu-[1-2,7],n[09-10]-ib", 100)?;
/// assert_eq!(hosts, ["dahu-1", "dahu-2", "dahu-7", "n09-ib", "n10-ib"]);
/// # Ok::<(), model::HostsError>(())
/// ```
pub fn expand_hosts(text: &str, hosts_max: usize) -> Result<Vec<String>, HostsError> {
    let text = text.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    let failed = |error| NodeListError::new(&text, error);
    if let Some(at) = text.find(is_unprintable) {
        return Err(failed((at, "this character is unprintable")).into());
    }
    let mut reading = Reading { text: text.as_bytes(), at: 0, numbers_max: hosts_max };
    let mut hosts = Vec::new();
    while let Some(next) = reading.peek() {
        if next == b',' {
            reading.at += 1;
            continue;
        }
        let at = reading.at;
        let parts = reading.name().map_err(failed)?;
        if parts.contains(&Part::Any) {
            return Err(failed((at, "`*` names no host")).into());
        }
        let names = expand_name(&parts, hosts_max)?;
        if hosts.len() + names.len() > hosts_max {
            return Err(HostsError::TooMany(hosts_max));
        }
        hosts.extend(names);
    }
    Ok(hosts)
}

fn expand_name(parts: &[Part], hosts_max: usize) -> Result<Vec<String>, HostsError> {
    let mut names = vec![String::new()];
    for part in parts {
        let ends: Vec<String> = match part {
            Part::Any => Vec::new(),
            Part::Text(text) => vec![text.to_string()],
            Part::Numbers(numbers) => {
                let all = numbers.iter().flat_map(|numbers| {
                    let width = numbers.width;
                    (numbers.from..=numbers.to).map(move |number| format!("{number:0width$}"))
                });
                all.take(hosts_max.saturating_add(1)).collect()
            }
        };
        if names.len().saturating_mul(ends.len()) > hosts_max {
            return Err(HostsError::TooMany(hosts_max));
        }
        let joined =
            names.iter().flat_map(|name| ends.iter().map(move |end| format!("{name}{end}")));
        names = joined.collect();
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(HostsError::TooLong);
        }
    }
    Ok(names)
}

/// Position and description of an error.
type ListError = (usize, &'static str);

impl NodeListError {
    fn new(text: &str, (at, what): ListError) -> Self {
        Self { text: text.chars().take(100).collect(), at: at + 1, what }
    }
}

struct Reading<'a> {
    text: &'a [u8],
    at: usize,
    /// Maximum number of numbers or ranges in a pair of brackets.
    numbers_max: usize,
}

impl Reading<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Parses one name, up to its comma.
    fn name(&mut self) -> Result<Vec<Part>, ListError> {
        let mut parts = Vec::new();
        loop {
            if parts.len() > PARTS_MAX {
                return Err((self.at, "this name has more than 32 parts"));
            }
            match self.peek() {
                None | Some(b',') if parts.is_empty() => {
                    return Err((self.at, "a name is missing"));
                }
                None | Some(b',') => return Ok(parts),
                Some(b'[') => parts.push(Part::Numbers(self.numbers()?)),
                Some(b'*') => {
                    self.at += 1;
                    if parts.last() != Some(&Part::Any) {
                        parts.push(Part::Any);
                    }
                }
                Some(_) => parts.push(Part::Text(self.plain()?)),
            }
        }
    }

    fn plain(&mut self) -> Result<Box<str>, ListError> {
        let from = self.at;
        while let Some(byte) = self.peek().filter(|byte| !b",[*".contains(byte)) {
            if byte <= b' ' || byte == 0x7f || byte == b']' {
                return Err((self.at, "this character is in no name"));
            }
            self.at += 1;
        }
        let text = self.text.get(from..self.at).and_then(|text| std::str::from_utf8(text).ok());
        text.map(Into::into).ok_or((from, "this is no text"))
    }

    fn numbers(&mut self) -> Result<Vec<Numbers>, ListError> {
        let mut all = Vec::new();
        // The opening bracket.
        self.at += 1;
        loop {
            let (from, width) = self.number()?;
            let mut to = from;
            let at = self.at;
            if self.peek() == Some(b'-') {
                self.at += 1;
                to = self.number()?.0;
            }
            if to < from {
                return Err((at, "the range ends before it begins"));
            }
            all.push(Numbers { from, to, width });
            if all.len() > self.numbers_max {
                return Err((self.at, "there are too many numbers"));
            }
            match self.next() {
                Some(b',') => {}
                Some(b']') => return Ok(all),
                None => return Err((at, "the bracket is not closed")),
                _ => return Err((at, "`-`, `,` or `]` is missing after the number")),
            }
        }
    }

    /// Parses a number; also returns its width if it starts with a zero.
    fn number(&mut self) -> Result<(u64, usize), ListError> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let digits = self.text.get(from..self.at).unwrap_or_default();
        if digits.is_empty() {
            let is_open = self.peek().is_none();
            return Err((
                from,
                if is_open { "the bracket is not closed" } else { "a number is missing" },
            ));
        }
        if digits.len() > DIGITS_MAX {
            return Err((from, "a number has 18 digits at most"));
        }
        // The width is at least 1; a leading zero makes it the number of digits.
        let width = if digits.first() == Some(&b'0') { digits.len() } else { 1 };
        Ok((value(digits), width))
    }
}

/// Value of at most 18 digits.
fn value(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))
}

/// Whether the parts together match the whole name. Stores the possible ends so far as a set, so that the
/// cost is at most the length of the name times the parts.
fn matches(parts: &[Part], name: &[u8]) -> bool {
    let mut ends = vec![false; name.len() + 1];
    let mut next = ends.clone();
    mark(&mut ends, 0);
    for part in parts {
        next.fill(false);
        for (at, _) in ends.iter().enumerate().filter(|(_, reached)| **reached) {
            let rest = name.get(at..).unwrap_or_default();
            match part {
                Part::Any => next.iter_mut().skip(at).for_each(|reached| *reached = true),
                Part::Text(text) if rest.starts_with(text.as_bytes()) => {
                    mark(&mut next, at + text.len());
                }
                Part::Text(_) => {}
                Part::Numbers(numbers) => {
                    let digits = rest.iter().take(DIGITS_MAX).take_while(|b| b.is_ascii_digit());
                    for length in 1..=digits.count() {
                        let digits = rest.get(..length).unwrap_or_default();
                        if numbers.iter().any(|numbers| numbers.has(digits)) {
                            mark(&mut next, at + length);
                        }
                    }
                }
            }
        }
        std::mem::swap(&mut ends, &mut next);
    }
    ends.last() == Some(&true)
}

fn mark(ends: &mut [bool], at: usize) {
    if let Some(end) = ends.get_mut(at) {
        *end = true;
    }
}

impl Numbers {
    fn has(&self, digits: &[u8]) -> bool {
        let is_padded = digits.len() > 1 && digits.first() == Some(&b'0');
        let wide_enough = digits.len() == self.width || (digits.len() > self.width && !is_padded);
        wide_enough && (self.from..=self.to).contains(&value(digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn has(list: &str, node: &str) -> bool {
        NodeList::new(list).unwrap().has(node)
    }

    #[test]
    fn names_numbers_and_stars() {
        for (list, yes, no) in [
            ("n1", &["n1"][..], &["n11", "n", "N1", "n1.site"][..]),
            ("n1,n3", &["n1", "n3"], &["n2", "n1,n3"]),
            ("dahu-[1-32]", &["dahu-1", "dahu-32"], &["dahu-0", "dahu-33", "dahu-01", "dahu-"]),
            ("x[01-12]", &["x01", "x12"], &["x1", "x13", "x001"]),
            ("x[08-101]", &["x08", "x99", "x100", "x101"], &["x8", "x102", "x008"]),
            ("n[1-2,7]-[0-1]", &["n1-0", "n7-1"], &["n3-0", "n7-2", "n1-"]),
            ("n[1-3]5", &["n15", "n35"], &["n5", "n155"]),
            ("gpu-*", &["gpu-", "gpu-a.site"], &["gpu", "cpu-a"]),
            ("*-[1-2]-a*b*", &["x-1-ab", "-2-axxbyy"], &["x-3-ab", "x-1-ba"]),
            ("*", &["", "anything"], &[]),
        ] {
            yes.iter().for_each(|node| assert!(has(list, node), "{list} has {node}"));
            no.iter().for_each(|node| assert!(!has(list, node), "{list} has not {node}"));
        }
        assert_eq!(NodeList::new("n1,n3").unwrap().plain(), Some(vec!["n1", "n3"]));
        assert_eq!(NodeList::new("n1,n[3]").unwrap().plain(), None);
    }

    #[test]
    fn errors_have_their_position() {
        for (list, at) in [
            ("", 1),
            ("a,,b", 3),
            ("a,", 3),
            ("n[1-", 5),
            ("n[]", 3),
            ("n[3-1]", 4),
            ("n[1", 4),
            ("n]", 2),
            ("a b", 2),
            ("n[1234567890123456789]", 3),
        ] {
            let error = NodeList::new(list).unwrap_err();
            assert_eq!(error.at, at, "{error}");
        }
        for list in ["n[1", "n[1-"] {
            assert_eq!(NodeList::new(list).unwrap_err().what, "the bracket is not closed");
        }
        assert!(NodeList::new(&"*a".repeat(17)).is_err());
        assert!(NodeList::new(&"a,".repeat(NODE_LIST_BYTES_MAX)).is_err());
    }

    #[test]
    fn hosts_in_the_order_of_the_list() {
        for (text, hosts) in [
            ("", &[][..]),
            ("n1", &["n1"]),
            ("a,b", &["a", "b"]),
            (" a , b ,", &["a", "b"]),
            ("dahu-[1-3,7]", &["dahu-1", "dahu-2", "dahu-3", "dahu-7"]),
            ("n[1, 3]", &["n1", "n3"]),
            ("n[08-11]-ib", &["n08-ib", "n09-ib", "n10-ib", "n11-ib"]),
            ("n[8-11]", &["n8", "n9", "n10", "n11"]),
            ("r[1-2]n[1-2],x", &["r1n1", "r1n2", "r2n1", "r2n2", "x"]),
            ("n[000-001]", &["n000", "n001"]),
        ] {
            assert_eq!(expand_hosts(text, 1000).unwrap(), hosts, "{text}");
        }
        let invalid = ["n[1-3", "n1-3]", "n[1[2]]", "n]1["];
        let numbers = ["n[]", "n[a-b]", "n[3-1]", "n[1-]", "n[+1]", "n[1--2]"];
        for text in invalid.into_iter().chain(numbers).chain(["n*", "a b"]) {
            assert!(matches!(expand_hosts(text, 1000), Err(HostsError::List(_))), "{text}");
        }
    }

    #[test]
    fn the_number_of_hosts_and_their_length_have_limits() {
        for text in ["n[1-1001]", "n[0-18446744073709551]", "r[1-100]n[1-100]", "n[1-999],a,b"] {
            assert_eq!(expand_hosts(text, 1000), Err(HostsError::TooMany(1000)), "{text}");
        }
        assert_eq!(expand_hosts("n[1-999],a", 1000).unwrap().len(), 1000);
        assert_eq!(expand_hosts(&"x".repeat(254), 1000), Err(HostsError::TooLong));
        let long = format!("{}[1-9]", "x".repeat(253));
        assert_eq!(expand_hosts(&long, 1000), Err(HostsError::TooLong));
    }

    #[test]
    fn unprintable_characters_are_errors() {
        for text in ["n1\u{202e}", "\u{7f}n1", "n[1-2],\u{9b}2J"] {
            assert!(NodeList::new(text).is_err() && expand_hosts(text, 9).is_err(), "{text:?}");
        }
    }

    #[test]
    fn plain_names() {
        for name in ["n1", "dahu-1.site.example", "é"] {
            assert!(NodeList::is_name(name), "{name}");
        }
        for list in ["", "*", "n*", "n[1-2]", "n[1]", "n1,n2", "n]", "n 1", "n1,"] {
            assert!(!NodeList::is_name(list), "{list}");
        }
    }

    #[test]
    fn matching_has_no_exponential_case() {
        let list = NodeList::new(&"*a".repeat(15)).unwrap();
        assert!(!list.has(&format!("{}b", "a".repeat(252))));
    }

    proptest! {
        #[test]
        fn no_text_panics(list in "[a-c0-9,\\[\\]*\\- é]{0,30}", node in "[a-c0-9\\-é]{0,20}") {
            if let Ok(hosts) = expand_hosts(&list, 1000) {
                prop_assert!(hosts.len() <= 1000);
            }
            if let Ok(list) = NodeList::new(&list) {
                list.has(&node);
            }
        }

        #[test]
        fn a_list_has_the_hosts_that_it_expands_to(list in "([a-b]|\\[(0?[1-9]-[1-9][0-9]|[0-9])\\]|,){1,8}") {
            if let (Ok(hosts), Ok(list)) = (expand_hosts(&list, 1000), NodeList::new(&list)) {
                prop_assert!(hosts.iter().all(|host| list.has(host)), "{hosts:?}");
            }
        }

        #[test]
        fn every_number_of_a_range_is_in_it(from in 0u32..300, more in 0u32..300, n in 0u32..700) {
            let list = NodeList::new(&format!("n[{from}-{}]", from + more)).unwrap();
            let inside = (from..=from + more).contains(&n);
            prop_assert_eq!(list.has(&format!("n{n}")), inside);
        }
    }
}
