//! `jobmeter import`: prints the configuration of jobmeter that means what a configuration of Colmet, FrUCToSA or Kwollect
//! means.
//!
//! - `counterparts`: tables of their options and keys, which the guides show, too
//! - `draft`: the printed configuration. `secret_files`: files that it names
//! - `command_line`: words and options. `ini`: sections and keys
//! - `colmet_nodes`, `colmet_collector`, `fructosa`, `kwollect`: one program each

mod colmet_collector;
mod colmet_nodes;
mod command_line;
mod counterparts;
mod draft;
mod fructosa;
mod ini;
mod kwollect;
mod secret_files;

#[cfg(test)]
mod tests;

use crate::client::plain::note;
use clap::Subcommand;
use draft::{Draft, PROGRAMS};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code if a part of the input is wrong: the printed configuration is that of the rest.
const WRONG: u8 = 1;

/// Prints jobmeter's configuration for a site that has Colmet, FrUCToSA or Kwollect; changes nothing of theirs
///
/// The output has a part for each program: agent, server, poller. Comments name each option without a counterpart, with
/// the reason. Wrong input is an error on standard error, and the exit code is 1.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter import kwollect /etc/kwollect/kwollector.conf --secrets /etc/jobmeter",
    arg_required_else_help = true
)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    origin: Origin,
    /// Folder of the files with secrets, which only their owner reads; an existing file is not changed
    #[arg(long, value_name = "DIR", default_value = ".", global = true)]
    secrets: PathBuf,
    /// Print only the part for agent, server or poller
    #[arg(long = "for", value_name = "PROGRAM", value_parser = PROGRAMS, global = true)]
    program: Option<String>,
}

#[derive(Subcommand, Debug)]
enum Origin {
    /// A command line of Colmet: colmet-node, colmet-node-rust or colmet-collector
    #[command(
        after_help = "Example: jobmeter import colmet 'colmet-node -s 5 --enable-RAPL --zeromq-uri tcp://collector:5556'"
    )]
    Colmet {
        /// The command line in quotes, as in the unit file
        #[arg(value_name = "COMMAND_LINE")]
        command_line: String,
        /// Hosts that may send to the server's listener, such as `dahu-[1-32]`
        #[arg(long, value_name = "NODES", requires = "networks")]
        hosts: Option<String>,
        /// Networks of these hosts, such as `10.1.0.0/16`, separated by commas
        #[arg(long, value_name = "CIDR", requires = "hosts")]
        networks: Option<String>,
    },
    /// The files of FrUCToSA
    #[command(
        after_help = "Example: jobmeter import fructosa /etc/fructosa/lagent.conf /etc/fructosa/lmaster.conf"
    )]
    Fructosa {
        /// lagent.conf
        #[arg(value_name = "LAGENT_FILE")]
        lagent: PathBuf,
        /// lmaster.conf
        #[arg(value_name = "LMASTER_FILE")]
        lmaster: Option<PathBuf>,
    },
    /// The file of kwollector
    #[command(after_help = "Example: jobmeter import kwollect /etc/kwollect/kwollector.conf")]
    Kwollect {
        /// kwollector.conf
        #[arg(value_name = "FILE")]
        conf: PathBuf,
    },
}

/// Prints the configuration. Secrets are written before, because it names their files.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let mut draft = Draft::default();
    match &args.origin {
        Origin::Colmet { command_line, hosts, networks } => {
            let senders = hosts.as_deref().zip(networks.as_deref());
            colmet(command_line, senders, &mut draft)?;
        }
        Origin::Fructosa { lagent, lmaster } => {
            fructosa::import(lagent, lmaster.as_deref(), &mut draft);
        }
        Origin::Kwollect { conf } => kwollect::import(conf, &mut draft),
    }
    let written = draft.secrets.write(&args.secrets)?;
    let text = draft.text(&written, args.program.as_deref());
    io::stdout().lock().write_all(text.as_bytes())?;
    for error in &draft.errors {
        note(error)?;
    }
    Ok(if draft.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WRONG) })
}

/// Reads a command line of one of Colmet's programs.
fn colmet(line: &str, senders: Option<(&str, &str)>, draft: &mut Draft) -> anyhow::Result<()> {
    let words = command_line::words(line)?;
    let (program, words) = command_line::program(&words, draft)?;
    if program.contains("collector") {
        colmet_collector::import(words, senders, draft)
    } else {
        colmet_nodes::import(&program, words, draft)
    }
}
