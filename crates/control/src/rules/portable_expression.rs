//! Expressions that Python and PostgreSQL read as the engine of agents does. An original kwollector and its reader of
//! wattmeters use the same table: an expression that one of them rejects stops it, and one that backtracks delays it.

/// Most repetitions in an expression: Python's time grows by a power of this number.
const REPETITIONS_MAX: usize = 6;
/// Deepest groups.
const GROUPS_MAX: usize = 20;
/// Largest bound of a repetition, by PostgreSQL.
const BOUND_MAX: u32 = 255;

/// What a repetition would apply to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Nothing: the beginning of a branch, or an anchor.
    Nothing,
    /// A character or a class.
    One,
    /// A group.
    Group,
    /// A repetition.
    Repeated,
}

/// Whether all engines read a valid expression alike, in a bounded time.
pub(crate) fn is_portable(text: &str) -> bool {
    read(text).is_some()
}

fn read(text: &str) -> Option<()> {
    let mut rest = text;
    let (mut before, mut groups, mut repetitions) = (Before::Nothing, 0_usize, 0_usize);
    while let Some(next) = rest.chars().next() {
        let after = rest.get(next.len_utf8()..)?;
        (before, rest) = match next {
            '(' => {
                groups += 1;
                let inner = after.strip_prefix("?:").unwrap_or(after);
                if inner.starts_with(['?', '*']) || groups > GROUPS_MAX {
                    return None;
                }
                (Before::Nothing, inner)
            }
            ')' => {
                groups = groups.checked_sub(1)?;
                (if before == Before::Nothing { return None } else { Before::Group }, after)
            }
            '|' => (if before == Before::Nothing { return None } else { Before::Nothing }, after),
            '^' => (Before::Nothing, after),
            // Not empty, and nothing may repeat it.
            '$' => (Before::Repeated, after),
            '*' | '+' | '?' | '{' => {
                let is_optional_group = before == Before::Group && next == '?';
                if before != Before::One && !is_optional_group {
                    return None;
                }
                repetitions += 1;
                (Before::Repeated, if next == '{' { bounds(after)? } else { after })
            }
            '[' => (Before::One, class(after)?),
            '\\' => (Before::One, escape(after)?),
            '}' | ']' => return None,
            _ => (Before::One, after),
        };
    }
    (groups == 0 && before != Before::Nothing && repetitions <= REPETITIONS_MAX).then_some(())
}

/// Reads the bounds of a repetition after its `{`.
fn bounds(text: &str) -> Option<&str> {
    let (inner, rest) = text.split_once('}')?;
    let (least, most) = inner.split_once(',').unwrap_or((inner, inner));
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number <= BOUND_MAX);
    number(least)?;
    if !most.is_empty() {
        number(most)?;
    }
    Some(rest)
}

/// Reads a class after its `[`: plain characters and ranges alone.
fn class(text: &str) -> Option<&str> {
    let mut rest = text.strip_prefix('^').unwrap_or(text);
    let mut is_first = true;
    loop {
        let next = rest.chars().next()?;
        let after = rest.get(next.len_utf8()..)?;
        rest = match next {
            ']' if is_first => return None,
            ']' => return Some(after),
            '[' | '^' => return None,
            '&' | '~' | '|' | '-' if after.starts_with(next) => return None,
            '\\' => after.strip_prefix(|c: char| c.is_ascii_punctuation())?,
            _ => after,
        };
        is_first = false;
    }
}

/// Reads an escaped character after its `\\`.
fn escape(text: &str) -> Option<&str> {
    text.strip_prefix(|c: char| c.is_ascii_punctuation() || "dwsDWS".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_sites_are_portable() {
        for good in [
            ".*",
            "wattmetre_power_watt",
            "prom_.*|bmc_.*",
            "(bmc|pdu)_[a-z0-9_]+_watt",
            "^bmc_\\d+$|^pdu$",
            "(?:a)|(?:b)",
            "x{2,3}y?",
            "bmc(_cpu)?_temp",
            "a\\.b",
        ] {
            assert!(is_portable(good), "{good}");
            assert_eq!(crate::rules::expression::check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn other_expressions_are_not() {
        for bad in [
            "(?i)x",
            "(?P<n>x)",
            "(a+)+",
            "(a|b)*",
            "a**",
            "a*?",
            "a*+",
            "^*",
            "x{300}",
            "[[:alpha:]]",
            "[a&&b]",
            "[\\d]",
            "\\pL",
            "\\bx",
            "\\x41",
            "(|a)",
            "a|",
            ".*.*.*.*.*.*.*",
            "a}",
            "()",
        ] {
            assert!(!is_portable(bad), "{bad}");
        }
    }
}
