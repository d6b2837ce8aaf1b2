//! The command lines of the programs that run by settings alone: the programs parse by them, and the command
//! `jobmeter` tells them to shells and as manual pages.

use crate::{SourceSettings, agent_settings, flags, server_settings};
use clap::Command;

const AGENT_EXAMPLE: &str = "\
Example:
  jobmeter-agent --server https://metrics.example --token-file /etc/jobmeter/token --period 1s

Without any setting it samples this machine every 5 seconds and sends to the server that
`jobmeter up` runs here, if one does. Every setting is also a key of the file and a variable
of the environment: --spool-sync, spool_sync = true and JOBMETER_SPOOL_SYNC=true are one.
`-h` leaves out the settings of sources, `--help` shows all.";

const SERVER_EXAMPLES: &str = "\
Examples:
  jobmeter-server --data /var/lib/jobmeter/store
  jobmeter-server --data DIR --listen 0.0.0.0:8790 --token-file TOKENS --cert CERT.pem --key KEY.pem

Prints `ready: URL` when it answers. SIGHUP reads configuration, tokens and certificates anew; SIGTERM and
SIGINT end it when the requests under way are answered.";

/// The command line of `jobmeter-agent` with these sources.
pub fn agent_command(sources: &[SourceSettings]) -> Command {
    Command::new("jobmeter-agent")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Samples what this node and its jobs use, and sends it to a jobmeter server.")
        .args(flags(&agent_settings(sources)))
        .after_help(AGENT_EXAMPLE)
}

/// The command line of `jobmeter-server`.
pub fn server_command() -> Command {
    Command::new("jobmeter-server")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Takes batches of samples in, keeps them, and answers questions over HTTP.")
        .after_help(SERVER_EXAMPLES)
        .args(flags(&server_settings()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_lines_are_sound() {
        agent_command(&[]).debug_assert();
        server_command().debug_assert();
    }
}
