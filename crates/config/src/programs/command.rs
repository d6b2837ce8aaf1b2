//! The command lines of the agent and the server. The programs parse with them; the command `jobmeter`
//! derives completions and manual pages from them.

use crate::{SourceSettings, agent_settings, flags, server_settings};
use clap::{ArgMatches, Command};
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

/// Exit code of a help that cannot be printed.
const NOT_PRINTED: u8 = 2;

const AGENT_EXAMPLE: &str = "\
Example:
  jobmeter-agent --server https://metrics.example --token-file /etc/jobmeter/token --period 1s

Without settings, it samples this machine every 5 s and sends the samples to the local server of
`jobmeter up`, if one is running. Every setting is also a key of the file and an environment variable:
--spool-sync, spool_sync = true and JOBMETER_SPOOL_SYNC=true mean the same.
`-h` omits the settings of sources; `--help` shows all settings.";

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
        .about(
            "Samples the resource use of this node and its jobs, and sends the samples to a \
                jobmeter server.",
        )
        .args(flags(&agent_settings(sources)))
        .after_help(AGENT_EXAMPLE)
}

/// Parses this process's command line.
///
/// # Errors
/// The exit code after a help, a version or an error was printed. A full standard output is an error; a closed pipe is
/// none.
pub fn read_command_line(command: Command) -> Result<ArgMatches, ExitCode> {
    let name = command.get_name().to_owned();
    command.try_get_matches().map_err(|error| {
        let printed = error.print().and_then(|()| io::stdout().flush());
        let failed = printed.err().filter(|why| why.kind() != ErrorKind::BrokenPipe);
        match failed.filter(|_| !error.use_stderr()) {
            Some(why) => {
                // A closed standard error changes nothing of the exit code.
                let line = format!("{name}: cannot write to standard output: {why}");
                writeln!(io::stderr(), "{line}").ok();
                ExitCode::from(NOT_PRINTED)
            }
            None => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(NOT_PRINTED)),
        }
    })
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
