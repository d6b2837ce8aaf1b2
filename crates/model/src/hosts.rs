//! Lists of hosts in Slurm's notation: `dahu-[1-3,7],n[01-10]-ib`.

use crate::names::NAME_BYTES_MAX;

/// Why a text is not a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// An unmatched or nested bracket.
    #[error("`{0}` has a bracket without its other half; write dahu-[1-3,7]")]
    Bracket(String),
    /// The text in brackets is not a list of numbers.
    #[error("`[{0}]` must contain numbers and ranges such as 1-3,7")]
    Range(String),
    /// A name longer than [`NAME_BYTES_MAX`].
    #[error("the list names a host of more than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// More hosts than the limit.
    #[error("the list names more than {0} hosts")]
    TooMany(usize),
}

/// Expands a list of hosts, in its order: names separated by commas, each with any number of brackets that
/// contain numbers and ranges. A range with leading zeros in its first number keeps that width. An empty
/// list gives no host.
///
/// # Errors
/// The text is not such a list, or has more than `hosts_max` hosts.
///
/// ```
/// let hosts = model::expand_hosts("dahu-[1-2,7],n[09-10]-ib", 100)?;
/// assert_eq!(hosts, ["dahu-1", "dahu-2", "dahu-7", "n09-ib", "n10-ib"]);
/// # Ok::<(), model::HostsError>(())
/// ```
pub fn expand_hosts(text: &str, hosts_max: usize) -> Result<Vec<String>, HostsError> {
    let mut hosts = Vec::new();
    let mut is_inside = false;
    let words = text.split(|c: char| {
        is_inside = match c {
            '[' => true,
            ']' => false,
            _ => is_inside,
        };
        c == ',' && !is_inside
    });
    for word in words.map(str::trim).filter(|word| !word.is_empty()) {
        for name in expand_name(word, hosts_max)? {
            if hosts.len() == hosts_max {
                return Err(HostsError::TooMany(hosts_max));
            }
            hosts.push(name);
        }
    }
    Ok(hosts)
}

/// Expands one name; the numbers of the last bracket change fastest.
fn expand_name(word: &str, hosts_max: usize) -> Result<Vec<String>, HostsError> {
    let unpaired = || HostsError::Bracket(shown(word));
    let mut names = vec![String::new()];
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, tail) = after.split_once(']').ok_or_else(unpaired)?;
        if before.contains(']') || inside.contains('[') {
            return Err(unpaired());
        }
        let numbers = numbers(inside, hosts_max)?;
        if names.len().saturating_mul(numbers.len()) > hosts_max {
            return Err(HostsError::TooMany(hosts_max));
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| joined(name, before, number)))
            .collect::<Result<_, _>>()?;
        rest = tail;
    }
    if rest.contains(']') {
        return Err(unpaired());
    }
    names.iter().map(|name| joined(name, rest, "")).collect()
}

fn joined(name: &str, middle: &str, end: &str) -> Result<String, HostsError> {
    if name.len() + middle.len() + end.len() > NAME_BYTES_MAX {
        return Err(HostsError::TooLong);
    }
    Ok([name, middle, end].concat())
}

/// Expands `1-3,7` to the numbers as written in names.
fn numbers(inside: &str, hosts_max: usize) -> Result<Vec<String>, HostsError> {
    let wrong = || HostsError::Range(shown(inside));
    let number = |digits: &str| {
        let is_number = digits.len() < 19 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|_| is_number).ok_or_else(wrong)
    };
    let mut all = Vec::new();
    for part in inside.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let width = if first.starts_with('0') { first.len() } else { 0 };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(wrong());
        }
        for number in from..=to {
            if all.len() == hosts_max {
                return Err(HostsError::TooMany(hosts_max));
            }
            all.push(format!("{number:0width$}"));
        }
    }
    Ok(all)
}

fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expand(text: &str) -> Result<Vec<String>, HostsError> {
        expand_hosts(text, 1000)
    }

    #[test]
    fn lists_of_hosts() {
        for (text, hosts) in [
            ("", &[][..]),
            ("n1", &["n1"]),
            ("a,b", &["a", "b"]),
            (" a , b ,", &["a", "b"]),
            ("dahu-[1-3,7]", &["dahu-1", "dahu-2", "dahu-3", "dahu-7"]),
            ("n[08-11]-ib", &["n08-ib", "n09-ib", "n10-ib", "n11-ib"]),
            ("n[8-11]", &["n8", "n9", "n10", "n11"]),
            ("r[1-2]n[1-2],x", &["r1n1", "r1n2", "r2n1", "r2n2", "x"]),
            ("n[000-001]", &["n000", "n001"]),
        ] {
            assert_eq!(expand(text).unwrap(), hosts, "{text}");
        }
    }

    #[test]
    fn invalid_lists_are_rejected() {
        for text in ["n[1-3", "n1-3]", "n[1[2]]", "n]1["] {
            assert!(matches!(expand(text), Err(HostsError::Bracket(_))), "{text}");
        }
        for text in ["n[]", "n[a-b]", "n[3-1]", "n[1-]", "n[+1]", "n[1--2]"] {
            assert!(matches!(expand(text), Err(HostsError::Range(_))), "{text}");
        }
    }

    #[test]
    fn everything_has_a_limit() {
        for text in ["n[1-1001]", "n[0-18446744073709551]", "r[1-100]n[1-100]", "n[1-999],a,b"] {
            assert_eq!(expand(text), Err(HostsError::TooMany(1000)), "{text}");
        }
        assert_eq!(expand("n[1-999],a").unwrap().len(), 1000);
        assert_eq!(expand(&"x".repeat(254)), Err(HostsError::TooLong));
        assert_eq!(expand(&format!("{}[1-9]", "x".repeat(253))), Err(HostsError::TooLong));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a0-9\\[\\],-]{0,40}") {
            if let Ok(hosts) = expand(&text) {
                prop_assert!(hosts.len() <= 1000);
            }
        }
    }
}
