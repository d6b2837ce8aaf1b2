//! The command lines of the agent and the server. The programs parse with them; the command `jobmeter`
//! derives completions and manual pages from them.

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

Prints `ready: URL` when it is ready. SIGHUP reloads configuration, tokens and certificates; SIGTERM and
SIGINT stop it after the current requests.";

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
        .about("Receives batches of samples, stores them, and answers queries over HTTP.")
        .after_help(SERVER_EXAMPLES)
        .args(flags(&server_settings()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_lines_are_valid() {
        agent_command(&[]).debug_assert();
        server_command().debug_assert();
    }
}
