//! `jobmeter completions` and `jobmeter man`: completion scripts and manual pages generated from the command
//! lines.

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The programs, each with a command line and a manual page.
const PROGRAMS: [&str; 3] = ["jobmeter", "jobmeter-agent", "jobmeter-server"];

/// Prints the completion script of a program for a shell
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter completions bash > ~/.local/share/bash-completion/completions/jobmeter"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    shell: String,
    /// The program
    #[arg(value_name = "PROGRAM", value_parser = PROGRAMS, default_value = "jobmeter")]
    program: String,
}

/// Writes the manual pages of all programs, or prints that of `jobmeter`
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter man | man -l -")]
pub(crate) struct ManArgs {
    /// Folder to write them to; it must be there
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// `jobmeter completions`. `own` is the command line of `jobmeter`.
pub(crate) fn completions(args: &CompletionsArgs, own: Command) -> anyhow::Result<ExitCode> {
    let shell: Shell = args.shell.parse().map_err(anyhow::Error::msg)?;
    let program = &*args.program;
    // The script goes to memory first, because the library panics on a write error.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_of(program, own), program, &mut script);
    let script = String::from_utf8(script).context("the library wrote no UTF-8")?;
    let script =
        if program == "jobmeter" { crate::complete::with_values(shell, &script) } else { script };
    io::stdout().lock().write_all(script.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// `jobmeter man`. `own` is the command line of `jobmeter`.
pub(crate) fn man(args: &ManArgs, own: Command) -> anyhow::Result<ExitCode> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        Man::new(whole(own)).render(&mut page)?;
        io::stdout().lock().write_all(&page)?;
        return Ok(ExitCode::SUCCESS);
    };
    for (name, page) in pages(&own)? {
        let path = dir.join(name);
        replace(&path, &page).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces a file. It does not follow a link: in another user's folder a link could lead to any file.
fn replace(path: &Path, page: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)?.write_all(page)
}

fn command_of(program: &str, own: Command) -> Command {
    match program {
        "jobmeter-agent" => config::agent_command(&agent::source_settings()),
        "jobmeter-server" => config::server_command(),
        _ => own,
    }
}

/// Every page with its file name: one per program, and one per command of `jobmeter`.
fn pages(own: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut pages = Vec::new();
    for program in PROGRAMS {
        add(whole(command_of(program, own.clone())), &mut pages)?;
    }
    Ok(pages)
}

/// The command with the shared flags of all its commands, as when arguments are parsed. It includes the help of
/// options that `-h` hides, because a page would omit them, too.
fn whole(command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true);
    command = command.mut_args(|arg| arg.hide_short_help(false));
    command.build();
    command
}

/// Excludes `jobmeter server`: it is a separate program with its own page.
fn has_page(command: &Command) -> bool {
    command.get_name() != "server"
}

fn add(command: Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| has_page(inner)) {
        add(inner.clone(), pages)?;
    }
    let (man, mut page) = (Man::new(command), Vec::new());
    man.render(&mut page)?;
    pages.push((man.get_filename(), page));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn texts() -> BTreeMap<String, String> {
        let text = |(name, page): (String, Vec<u8>)| (name, String::from_utf8(page).unwrap());
        let pages = pages(&crate::cli::command()).unwrap();
        let (count, texts) = (pages.len(), pages.into_iter().map(text).collect::<BTreeMap<_, _>>());
        assert_eq!(texts.len(), count, "no two pages of one name");
        texts
    }

    #[test]
    fn a_page_replaces_a_link_and_follows_it_not() {
        let dir = tempfile::tempdir().unwrap();
        let (other, page) = (dir.path().join("other"), dir.path().join("jobmeter.1"));
        fs::write(&other, "as it was").unwrap();
        std::os::unix::fs::symlink(&other, &page).unwrap();
        for text in ["one", "two"] {
            replace(&page, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&page).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "as it was");
    }

    #[test]
    fn no_section_of_a_page_is_empty() {
        for (name, text) in texts() {
            let mut sections = text.split("\n.SH ").skip(1).peekable();
            assert!(sections.peek().is_some(), "{name} has no section");
            for section in sections {
                let (title, body) = section.split_once('\n').unwrap_or((section, ""));
                let has_text = body.lines().any(|line| !line.starts_with('.') && !line.is_empty());
                assert!(has_text, "{name}: nothing under {title}");
            }
        }
    }

    /// Checks a command's page and returns the page's name.
    fn check(command: &Command, texts: &BTreeMap<String, String>) -> String {
        let name = format!("{}.1", command.get_display_name().unwrap_or(command.get_name()));
        let page = texts.get(&name).unwrap_or_else(|| panic!("no page {name}"));
        let escaped = |text: &str| text.replace('-', "\\-");
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let word = match (arg.get_long(), arg.get_short()) {
                (Some(long), _) => format!("\\fB\\-\\-{}\\fR", escaped(long)),
                (None, Some(short)) => format!("\\fB\\-{short}\\fR"),
                (None, None) => format!("\\fI{}\\fR", arg.get_value_names().unwrap()[0]),
            };
            // An entry begins with a tag; the option may also appear in the synopsis.
            let entries = page.split("\n.TP\n").skip(1).map(|entry| entry.split_once('\n'));
            let found: Vec<_> = entries.flatten().filter(|(tag, _)| tag.contains(&word)).collect();
            let [(_, has_text)] = &found[..] else { panic!("{name}: {word}: {found:?}\n{page}") };
            let has_text = has_text.lines().next().unwrap_or_default();
            assert!(
                !has_text.is_empty() && !has_text.starts_with('.'),
                "{name}: nothing of {word}"
            );
        }
        for inner in command.get_subcommands() {
            let reference = format!("{}(1)", escaped(inner.get_display_name().unwrap()));
            assert!(page.contains(&reference), "{name}: {reference}");
        }
        name
    }

    #[test]
    fn every_command_and_option_has_an_entry() {
        let texts = texts();
        let mut written = Vec::new();
        let own = crate::cli::command();
        let mut left: Vec<Command> =
            PROGRAMS.iter().map(|program| whole(command_of(program, own.clone()))).collect();
        while let Some(command) = left.pop() {
            written.push(check(&command, &texts));
            let inner = command.get_subcommands().filter(|inner| has_page(inner));
            left.extend(inner.cloned());
        }
        written.sort();
        assert_eq!(written, texts.keys().cloned().collect::<Vec<_>>());
        assert!(written.iter().any(|name| name == "jobmeter-job-start.1"), "{written:?}");
    }
}
