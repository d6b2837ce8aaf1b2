//! `jobmeter poll`: runs the program that polls devices outside of the nodes.

use crate::measure::exec::become_program;
use crate::operate::up::beside;
use config::Raw;
use std::convert::Infallible;
use std::path::PathBuf;

/// Polls the devices of Kwollect's description files, and sends the samples to the server
///
/// The settings are those of /etc/jobmeter/poller.toml; --server and the other flags of this command come before them.
/// With --once --print it polls every device once, prints the samples and sends nothing; the exit code is then 1 if
/// something could not be read.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter poll /etc/kwollect/metrics.d --once --print --devices pdu-[1-8]"
)]
pub(crate) struct PollArgs {
    /// The folder of description files
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Poll once, then end
    #[arg(long, requires = "print")]
    once: bool,
    /// Print the samples as `jobmeter-agent --print` does
    #[arg(long, requires = "once")]
    print: bool,
    /// Only these devices [default: all]
    #[arg(long, value_name = "LIST")]
    devices: Option<String>,
}

/// Replaces this process by the poller. `flags` name the server, as they are given to this command.
pub(crate) fn poll(args: &PollArgs, flags: &[(String, Raw)]) -> anyhow::Result<Infallible> {
    let mut words = vec!["--".into(), beside("jobmeter-poller")?.into_os_string(), "poll".into()];
    words.extend(args.once.then(|| "--once".into()));
    words.extend(args.print.then(|| "--print".into()));
    words.extend(args.devices.iter().map(|list| format!("--devices={list}").into()));
    for (key, value) in flags {
        let flag = key.replace(['_', '.'], "-");
        match value {
            Raw::One(text) => words.push(format!("--{flag}={text}").into()),
            Raw::Many(all) => {
                words.extend(all.iter().map(|text| format!("--{flag}={text}").into()));
            }
        }
    }
    words.extend(["--".into(), args.dir.as_os_str().to_owned()]);
    become_program(&words)
}
