//! Settings as flags of a command.

use crate::settings::load::ConfigFile;
use crate::settings::log::level_above;
use crate::settings::setting::{Kind, Setting};
use crate::settings::text::Raw;
use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches};
use model::setting::words;
use std::path::PathBuf;

/// The flags of settings, and `--config` and `-v`, for a command of clap. Flags of sources appear in
/// `--help`, but not in `-h`.
pub fn flags(settings: &[Setting]) -> Vec<Arg> {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(NonEmptyStringValueParser::new())
        .help("File with the settings")
        .help_heading("Settings");
    let more = Arg::new("verbose")
        .short('v')
        .action(ArgAction::Count)
        .help("Log more; -vv and -vvv even more")
        .help_heading("Log");
    let mut flags = vec![config, more];
    flags.extend(setting_flags(settings));
    flags
}

/// The flags of settings only, for a command that has `--config` and `-v` already.
pub fn setting_flags<'a>(
    settings: impl IntoIterator<Item = &'a Setting>,
) -> impl Iterator<Item = Arg> {
    settings.into_iter().filter(|setting| !setting.in_file_only).map(flag)
}

fn flag(setting: &Setting) -> Arg {
    let name = setting.flag_name();
    let flag = Arg::new(setting.key.to_string())
        .long(name)
        .value_name(setting.kind.word())
        .help(help(setting))
        .help_heading(setting.topic.trim_end_matches('.').to_owned())
        .hide_short_help(setting.key.starts_with("sources."));
    // Otherwise an unset variable in a script would count as the default. A list may be empty.
    let flag = if setting.kind.is_list() {
        flag
    } else {
        flag.value_parser(NonEmptyStringValueParser::new())
    };
    match setting.kind {
        Kind::Switch => flag.num_args(0..=1).require_equals(true).default_missing_value("true"),
        kind if kind.is_list() => flag.action(ArgAction::Append),
        _ => flag,
    }
}

fn help(setting: &Setting) -> String {
    let help = setting.help.trim().trim_end_matches('.');
    let several = match setting.kind {
        kind if !kind.is_list() => "",
        kind if kind.has_commas() => "; for several, repeat the flag",
        _ => "; several separated by commas, or in repeated flags",
    };
    let help = format!("{help}{several}");
    match &*setting.default {
        "" if setting.unset.is_empty() => help,
        "" => format!("{help} [default: {}]", setting.unset),
        default => format!("{help} [default: {default}]"),
    }
}

/// The parsed flags.
#[derive(Debug)]
pub struct Flags {
    /// The file to read.
    pub file: ConfigFile,
    /// Keys with the values of their flags.
    pub flags: Vec<(String, Raw)>,
}

/// Reads the flags that [`flags`] added to a command. `default_file` applies if neither `--config` nor the variable
/// `JOBMETER_<PROGRAM>_FILE` names a file.
pub fn given(
    settings: &[Setting],
    matches: &ArgMatches,
    program: &str,
    default_file: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Flags {
    let mut flags = Vec::new();
    for setting in settings {
        // Settings for the file alone have no flag, and clap panics on an unknown name.
        let Ok(Some(texts)) = matches.try_get_many::<String>(&setting.key) else { continue };
        let texts: Vec<String> = texts.cloned().collect();
        let raw = match (&*texts, setting.kind) {
            ([text], kind) if !kind.is_list() => Raw::One(text.clone()),
            // As in a variable; an empty list is one empty text.
            (_, kind) if kind.is_list() && !kind.has_commas() => {
                Raw::Many(texts.iter().flat_map(|text| words(text)).map(str::to_owned).collect())
            }
            _ => Raw::Many(texts),
        };
        flags.push((setting.key.to_string(), raw));
    }
    let more = usize::from(matches.get_count("verbose"));
    let level = |setting: &&Setting| setting.key == "log.level";
    if let (1.., Some(level)) = (more, settings.iter().find(level))
        && !flags.iter().any(|(key, _)| *key == level.key)
    {
        let level = (level.key.to_string(), Raw::One(level_above(&level.default, more).to_owned()));
        flags.push(level);
    }
    let variable = format!("JOBMETER_{}_FILE", program.to_uppercase());
    let named = matches.get_one::<String>("config").cloned().or_else(|| environment(&variable));
    let default = || ConfigFile::Default(PathBuf::from(default_file));
    let file = named.map_or_else(default, |path| ConfigFile::Given(PathBuf::from(path)));
    Flags { file, flags }
}
