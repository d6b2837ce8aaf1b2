//! The words of a command line, and its options.

use super::counterparts::Table;
use super::draft::{Draft, Part};
use crate::client::plain::short_words;
use anyhow::bail;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, Parser};

/// Longest command line in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Programs that a command line may run.
const PROGRAMS: [&str; 3] = ["colmet-node", "colmet-node-rust", "colmet-collector"];

/// Splits a command line as a shell and systemd do, without expansion.
///
/// # Errors
/// A quotation has no end, or the line is too long.
pub(super) fn words(line: &str) -> anyhow::Result<Vec<String>> {
    if line.len() > LINE_BYTES_MAX {
        bail!("the command line has more than {LINE_BYTES_MAX} bytes");
    }
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            // A backslash at the end of a line continues it.
            (None, '\\') => match rest.next() {
                Some('\n') => words.extend(word.take()),
                next => word.get_or_insert_default().extend(next),
            },
            (Some('"'), '\\') => match rest.next() {
                Some(next @ ('"' | '\\')) => word.get_or_insert_default().push(next),
                next => word.get_or_insert_default().extend(['\\'].into_iter().chain(next)),
            },
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        bail!("the command line: {open} has no end");
    }
    words.extend(word);
    Ok(words)
}

/// The name of the program, and the words after it. Before it may be `ExecStart=` and variables.
///
/// # Errors
/// The command line runs no program of Colmet.
pub(super) fn program<'a>(
    words: &'a [String],
    draft: &mut Draft,
) -> anyhow::Result<(String, &'a [String])> {
    let mut rest = words;
    while let [word, behind @ ..] = rest {
        let (variable, value) = word.split_once('=').unwrap_or(("", word));
        let path = if variable == "ExecStart" { value } else { word };
        let name = path.rsplit('/').next().unwrap_or_default().trim_start_matches(['-', '@']);
        if PROGRAMS.contains(&name) {
            return Ok((name.to_owned(), behind));
        }
        if variable.starts_with("LIB_") {
            draft.agent.comment(format!(
                "{variable}: no counterpart: jobmeter reads these counters itself"
            ));
        } else if variable.is_empty() {
            break;
        }
        rest = behind;
    }
    bail!("the command line runs no program of Colmet: {}", PROGRAMS.join(", "));
}

/// Parses options. A wrong word is an error, and hides no other option.
///
/// # Errors
/// No word can be named as the wrong one.
pub(super) fn parse<P: Parser>(
    program: &str,
    words: &[String],
    errors: &mut Vec<String>,
) -> anyhow::Result<(P, ArgMatches)> {
    let mut words = words.to_vec();
    loop {
        let all = [program].into_iter().chain(words.iter().map(String::as_str));
        // As in Python, the last of several values counts.
        let error = match command::<P>().try_get_matches_from(all) {
            Ok(matches) => return Ok((P::from_arg_matches(&matches)?, matches)),
            Err(error) => error,
        };
        let text = short_words(&error.render().to_string());
        let text = text.lines().next().unwrap_or_default();
        let text = text.strip_prefix("error: ").unwrap_or(text);
        let Some(wrong) = wrong_words(&error, &words) else { bail!("{program}: {text}") };
        errors.push(match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                format!("{program}: help and version have no counterpart: the program ends there")
            }
            _ => format!("{program}: {text}"),
        });
        words.drain(wrong);
    }
}

pub(super) fn command<P: Parser>() -> Command {
    P::command().args_override_self(true)
}

/// The words that an error is about: an option with its value, or one of them.
fn wrong_words(error: &clap::Error, words: &[String]) -> Option<std::ops::Range<usize>> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let place = |text: &str| words.iter().position(|word| word == text);
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let at = ["-h", "--help", "-V", "--version"].into_iter().find_map(place)?;
            Some(at..at + 1)
        }
        ErrorKind::UnknownArgument => {
            let argument = context(ContextKind::InvalidArg)?;
            let begins = |word: &String| {
                word == argument
                    || word.strip_prefix(argument).is_some_and(|rest| rest.starts_with('='))
            };
            // An unknown letter may be in a group of letters.
            let letter = argument.strip_prefix('-').filter(|letter| letter.len() == 1);
            let has_letter = |word: &String| {
                letter.is_some_and(|it| {
                    word.starts_with('-') && !word.starts_with("--") && word.contains(it)
                })
            };
            let at = words.iter().position(begins).or_else(|| words.iter().position(has_letter))?;
            Some(at..at + 1)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = context(ContextKind::InvalidValue).filter(|value| !value.is_empty());
            let Some(value) = value else {
                return Some(words.len().checked_sub(1)?..words.len());
            };
            if let Some(at) = place(value) {
                let is_option = |at: &usize| words.get(*at).is_some_and(|it| it.starts_with('-'));
                return Some(at.checked_sub(1).filter(is_option).unwrap_or(at)..at + 1);
            }
            let at = words.iter().position(|it| it.starts_with('-') && it.ends_with(value))?;
            Some(at..at + 1)
        }
        _ => None,
    }
}

/// Adds a comment for each given option without a counterpart.
pub(super) fn comment_missing<P: Parser>(table: &Table, matches: &ArgMatches, part: &mut Part) {
    let command = command::<P>();
    let is_given = |name: &str| {
        let long = name.strip_prefix("--");
        let option = command.get_arguments().find(|one| long.is_some() && one.get_long() == long);
        option.is_some_and(|option| {
            matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
        })
    };
    for row in table.rows {
        let given = row.names.iter().find(|name| is_given(name));
        if let Some(comment) = given.and_then(|name| row.comment(name)) {
            part.comment(comment);
        }
    }
}
