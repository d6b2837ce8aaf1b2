//! Parser of the option `events`.
//!
//! ```text
//! cpu_cycles, instructions          events with names of their own
//! {cpu_cycles,instructions}         a group: counted together or not at all
//! r01c2                             a raw event code of the processor, in hexadecimal
//! cpu/event=0x3c,umask=0x0/         a PMU and its fields
//! uncore_imc_0/cas_count_read/      a PMU and one of its events
//! uncore_imc/cas_count_read/        the sum over uncore_imc_0, uncore_imc_1, …
//! ```

use super::events::{self, Named};
use kernel::{perf::GROUP_MAX, pmu};
use std::ptr;

/// Maximum number of events; a PMU has about eight counters.
const EVENTS_MAX: usize = 64;

/// An event to be counted.
#[derive(Clone, Debug)]
pub(super) struct EventSpec {
    pub(super) what: What,
    /// Configured text.
    pub(super) text: Box<str>,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Named(&'static Named),
    Raw(u64),
    OfPmu { pmu: Box<str>, terms: Box<str> },
}

/// Checks the option's text for its declaration.
pub(super) fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

/// Parses the option into groups of events; most groups have one. Duplicates count once.
pub(super) fn parse(text: &str) -> Result<Vec<Vec<EventSpec>>, String> {
    let mut groups: Vec<Vec<EventSpec>> = Vec::new();
    let mut count = 0;
    for item in split(text)? {
        let (words, is_group) = match item.strip_prefix('{') {
            Some(inner) => {
                let inner = inner.strip_suffix('}');
                (split(inner.ok_or_else(|| format!("`{item}` lacks a closing `}}`"))?)?, true)
            }
            None => (vec![item], false),
        };
        if is_group && words.iter().any(|word| word.contains(['{', '}'])) {
            return Err(format!("`{item}` is a group within a group"));
        }
        let mut group: Vec<EventSpec> = Vec::new();
        for word in words {
            let wanted = EventSpec::parse(word)?;
            if !groups.iter().flatten().chain(&group).any(|known| known.is(&wanted)) {
                group.push(wanted);
                count += 1;
            }
        }
        if group.len() > GROUP_MAX {
            return Err(format!(
                "a group has {} events; at most {GROUP_MAX} are allowed",
                group.len()
            ));
        }
        groups.extend((!group.is_empty()).then_some(group));
    }
    match count {
        ..=EVENTS_MAX => Ok(groups),
        count => Err(format!("there are {count} events; at most {EVENTS_MAX} are allowed")),
    }
}

/// Splits at commas outside of braces and slashes.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let mut items = Vec::new();
    let (mut start, mut in_braces, mut in_slashes) = (0, false, false);
    for (place, letter) in text.char_indices() {
        match letter {
            '/' => in_slashes = !in_slashes,
            '{' if !in_slashes => in_braces = true,
            '}' if !in_slashes => in_braces = false,
            ',' if !in_slashes && !in_braces => {
                items.extend(text.get(start..place));
                start = place + 1;
            }
            _ => {}
        }
    }
    items.extend(text.get(start..));
    if in_slashes {
        let item = items.last().copied().unwrap_or_default();
        return Err(format!("`{}` lacks a closing `/`", item.trim()));
    }
    Ok(items.into_iter().map(str::trim).filter(|item| !item.is_empty()).collect())
}

impl EventSpec {
    fn parse(text: &str) -> Result<Self, String> {
        let (what, text) = match text.split_once('/') {
            Some((pmu, rest)) => of_pmu(text, pmu, rest)?,
            None => match (events::find(text), raw(text)) {
                (Some(named), _) => (What::Named(named), named.name.into()),
                (_, Some(config)) => (What::Raw(config), text.into()),
                _ => return Err(no_such(text)),
            },
        };
        Ok(Self { what, text })
    }

    fn is(&self, other: &Self) -> bool {
        match (&self.what, &other.what) {
            (What::Named(a), What::Named(b)) => ptr::eq(*a, *b),
            (What::Raw(a), What::Raw(b)) => a == b,
            (What::OfPmu { .. }, What::OfPmu { .. }) => self.text == other.text,
            _ => false,
        }
    }
}

fn of_pmu(text: &str, pmu: &str, rest: &str) -> Result<(What, Box<str>), String> {
    let ok = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if pmu.is_empty() || pmu.starts_with('.') || !pmu.bytes().all(ok) {
        return Err(format!("`{pmu}` of `{text}` is not a name of a PMU"));
    }
    let lacks = || format!("`{text}` does not end with its second `/`");
    let terms = rest.strip_suffix('/').filter(|terms| !terms.contains('/')).ok_or_else(lacks)?;
    pmu::terms(terms).map_err(|wrong| {
        format!("`{wrong}` of `{text}` is neither an event nor a field with a number")
    })?;
    // Without blanks, so that equal events have equal texts.
    let text = format!("{pmu}/{terms}/").replace(' ', "").into();
    Ok((What::OfPmu { pmu: pmu.into(), terms: terms.into() }, text))
}

/// The code of `r01c2`.
fn raw(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('r')?;
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

fn no_such(text: &str) -> String {
    let near = model::nearest(text, events::names()).or_else(|| with_word(text));
    let hint = near.map_or_else(
        || "write a name, rHEX or PMU/TERMS/".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    format!("there is no event `{text}`; {hint}")
}

/// The shortest name that starts or ends with this word, as `cpu_cycles` does with `cycles`.
fn with_word(word: &str) -> Option<&'static str> {
    let ends = |name: &str| name.strip_suffix(word).is_some_and(|rest| rest.ends_with('_'));
    let begins = |name: &str| name.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'));
    let fits = |name: &&str| !word.is_empty() && (ends(name) || begins(name));
    events::names().filter(fits).min_by_key(|name| name.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(text: &str) -> Vec<Vec<String>> {
        let groups = parse(text).unwrap();
        let own = |wanted: &EventSpec| wanted.text.to_string();
        groups.iter().map(|group| group.iter().map(own).collect()).collect()
    }

    #[test]
    fn events_of_all_kinds() {
        let all = "cpu_cycles, r01C2,{instructions,cache_misses},cpu/event=0x3c, umask=0x0/,\
            uncore_imc/cas_count_read/,";
        let expected: [&[&str]; 5] = [
            &["cpu_cycles"],
            &["r01C2"],
            &["instructions", "cache_misses"],
            &["cpu/event=0x3c,umask=0x0/"],
            &["uncore_imc/cas_count_read/"],
        ];
        assert_eq!(texts(all), expected);
        assert!(matches!(parse("r01c2").unwrap()[0][0].what, What::Raw(0x1c2)));
        assert!(texts("").is_empty() && texts("{}").is_empty());
    }

    #[test]
    fn duplicates_count_once() {
        let expected = [vec!["cache_l1d_read_access"], vec!["r1c2"], vec!["page_faults"]];
        assert_eq!(
            texts("cache_l1d,cache_op_read,r1c2,r01c2,{cache_l1d_read_access,page_faults}"),
            expected
        );
    }

    #[test]
    fn malformed_lists_are_rejected_with_the_closest_name() {
        for (text, expected) in [
            ("cpu_cycle", "there is no event `cpu_cycle`; did you mean `cpu_cycles`?"),
            (
                "cache_l1d_raed_miss",
                "there is no event `cache_l1d_raed_miss`; did you mean `cache_l1d_read_miss`?",
            ),
            ("cycles", "there is no event `cycles`; did you mean `cpu_cycles`?"),
            ("context", "there is no event `context`; did you mean `context_switches`?"),
            ("x", "there is no event `x`; write a name, rHEX or PMU/TERMS/"),
            ("rxyz", "there is no event `rxyz`; write a name, rHEX or PMU/TERMS/"),
            ("cpu/event=0x3c,dummy", "`cpu/event=0x3c,dummy` lacks a closing `/`"),
            ("cpu/a/b", "`cpu/a/b` does not end with its second `/`"),
            ("../a/", "`..` of `../a/` is not a name of a PMU"),
            (
                "cpu/event=x/",
                "`event=x` of `cpu/event=x/` is neither an event nor a field with a number",
            ),
            ("{dummy", "`{dummy` lacks a closing `}`"),
            ("{dummy,{cpu_cycles}}", "`{dummy,{cpu_cycles}}` is a group within a group"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
        let many: Vec<_> = (0..65).map(|number| format!("r{number:x}")).collect();
        assert_eq!(
            check(&many.join(",")).unwrap_err(),
            "there are 65 events; at most 64 are allowed"
        );
        let group = format!("{{{}}}", many[..33].join(","));
        assert_eq!(check(&group).unwrap_err(), "a group has 33 events; at most 32 are allowed");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_parsed_events_parse_again(
            text in "([a-z_/{},=r0-9 ]|cpu_cycles|\\PC){0,20}",
        ) {
            if let Ok(groups) = parse(&text) {
                let braced = |group: &Vec<EventSpec>| {
                    let texts: Vec<_> = group.iter().map(|wanted| &*wanted.text).collect();
                    if texts.len() > 1 { format!("{{{}}}", texts.join(",")) } else { texts[0].to_owned() }
                };
                let again: Vec<_> = groups.iter().map(braced).collect();
                let again = parse(&again.join(",")).unwrap();
                let count = |groups: &[Vec<EventSpec>]| -> Vec<usize> {
                    groups.iter().map(Vec::len).collect()
                };
                prop_assert_eq!(count(&again), count(&groups));
            }
        }
    }
}
