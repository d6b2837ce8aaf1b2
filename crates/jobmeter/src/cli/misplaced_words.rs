//! Advice for words of the command line that stand where the command takes none.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Commands without positional arguments, and the option that a stray word probably belongs to.
const OPTIONS: [(&str, &str); 6] = [
    ("get", "--metric"),
    ("set", "--nodes"),
    ("verify", "--data"),
    ("backup", "--data"),
    ("gaps", "--device"),
    ("flush", "--nodes"),
];

/// The error with advice, if a misplaced word caused it.
pub(crate) fn with_advice(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            if let Some(tip) = option_of(&text(&error, ContextKind::InvalidArg), &words) {
                let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
                error.insert(ContextKind::Suggested, tips);
            }
            error
        }
        ErrorKind::ArgumentConflict => {
            let second = text(&error, ContextKind::InvalidSubcommand);
            no_subcommand(&second, &words)
                .map_or(error, |what| clap::Error::raw(ErrorKind::InvalidSubcommand, what))
        }
        _ => error,
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    error.get(kind).map(ToString::to_string).unwrap_or_default()
}

/// The option for a stray word.
fn option_of(stray: &str, words: &[&str]) -> Option<String> {
    let option = words.iter().find_map(|word| OPTIONS.iter().find(|(name, _)| name == word));
    let (_, option) = option.filter(|_| !stray.is_empty() && !stray.starts_with('-'))?;
    Some(format!("use {option} {stray}"))
}

/// `job` takes an ID or a subcommand; the word before the second one is neither.
fn no_subcommand(second: &str, words: &[&str]) -> Option<String> {
    let at = words.iter().rposition(|word| *word == second)?;
    let first = words.get(..at)?.iter().rfind(|word| !word.starts_with('-'))?;
    let is_id = first.contains(|c: char| c.is_ascii_digit());
    Some(match is_id {
        true => format!("`job` reports one job: `{first}` or `{second}`\n"),
        false => format!(
            "there is no subcommand `{first}` of `job`; to end a job, write `jobmeter job end \
             {second}`\n"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misplaced_words_get_advice() {
        for (line, want) in [
            (
                "job stop 3",
                "no subcommand `stop` of `job`; to end a job, write `jobmeter job end 3`",
            ),
            ("job stop --json 3", "no subcommand `stop`"),
            ("job 3 4", "`job` reports one job: `3` or `4`"),
            ("get load_1m", "tip: use --metric load_1m"),
            ("--server http://h set vm", "tip: use --nodes vm"),
            ("verify data", "tip: use --data data"),
            ("nodes n1", "unexpected argument 'n1' found"),
            ("get --metrc x", "--metric"),
        ] {
            let words = std::iter::once("jobmeter").chain(line.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let error = crate::cli::command().try_get_matches_from(&words).unwrap_err();
            let shown = with_advice(error, &words).to_string();
            assert!(shown.contains(want), "{line}: {shown}");
            assert!(line != "get --metrc x" || !shown.contains("use --metric --"), "{shown}");
        }
    }
}
