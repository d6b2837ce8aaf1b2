//! `jobmeter poll`: runs the program that polls devices outside of the nodes.

use crate::measure::exec::become_program;
use crate::operate::up::beside;
use std::convert::Infallible;
use std::path::PathBuf;

/// Polls the devices of Kwollect's description files once, and prints the samples
///
/// This version polls exporters and JSON documents, such as those of Redfish, and only with --once --print. It sends nothing
/// to a server. The exit code is 1 if something could not be read.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter poll /etc/kwollect/metrics.d --once --print --devices pdu-[1-8]"
)]
pub(crate) struct PollArgs {
    /// The folder of description files
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Poll once, then end
    #[arg(long, required = true)]
    once: bool,
    /// Print the samples as `jobmeter-agent --print` does
    #[arg(long, required = true)]
    print: bool,
    /// Only these devices [default: all]
    #[arg(long, value_name = "LIST")]
    devices: Option<String>,
}

/// Replaces this process by the poller.
pub(crate) fn poll(args: &PollArgs) -> anyhow::Result<Infallible> {
    let mut words = vec!["--".into(), beside("jobmeter-poller")?.into_os_string(), "poll".into()];
    words.extend(args.once.then(|| "--once".into()));
    words.extend(args.print.then(|| "--print".into()));
    words.extend(args.devices.iter().map(|list| format!("--devices={list}").into()));
    words.extend(["--".into(), args.dir.as_os_str().to_owned()]);
    become_program(&words)
}
