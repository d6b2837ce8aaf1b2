//! `jobmeter poll`, `feed`, `kwollector` and `kwollector-wattmetre`: run the program that reads devices outside of the
//! nodes.

use crate::measure::exec::become_program;
use crate::operate::up::beside;
use config::Raw;
use std::convert::Infallible;
use std::ffi::OsString;
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
    /// Pin the certificates that the system's roots do not verify, then end
    #[arg(long, conflicts_with = "once")]
    pin: bool,
    /// Only these devices [default: all]
    #[arg(long, value_name = "LIST")]
    devices: Option<String>,
}

/// Reads the lines of a wattmeter from standard input, and sends its power to the server
///
/// Without --every-sample, each port has the mean of each second. The settings are those of /etc/jobmeter/poller.toml;
/// --server and the other flags of this command come before them. The end of the input loses nothing: the exit code is 1
/// if samples are lost there.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter feed wattmetre --id wattmetre1 --mapping mapping.yaml < lines.csv"
)]
pub(crate) struct FeedArgs {
    /// The program that prints the lines: wattmetre-read
    #[arg(value_name = "FORMAT", value_parser = ["wattmetre"])]
    format: String,
    /// The ID of the meter: its ports are the devices ID-portN
    #[arg(long, value_name = "ID", default_value = "wattmetre")]
    id: String,
    /// The version of the lines
    #[arg(long = "version", value_name = "N", value_parser = ["2", "3"], default_value = "2")]
    line_version: String,
    /// YAML file with the nodes that the ports feed: `node: [ID-port0, …]`
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Store each sample instead of the means of seconds
    #[arg(long)]
    every_sample: bool,
}

/// Polls as kwollector does: reads its configuration file, and accepts its options
///
/// The options are --metrics_dir, --log_level, --worker, --db_host, --db_name, --db_user and --db_password. Samples go to
/// the server as those of `jobmeter poll`, with the same settings and flags.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter kwollector /etc/kwollect/kwollector.conf")]
pub(crate) struct KwollectorArgs {
    /// The configuration file, and options
    #[arg(value_name = "CONF", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Reads a wattmeter as kwollector-wattmetre does: reads its configuration file, and accepts its options
///
/// The options are --wattmetre_id, --wattmetre_version, --mapping_file_path, --log_level, --db_host, --db_name, --db_user
/// and --db_password. Samples go to the server as those of `jobmeter feed`, with the same settings and flags.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter kwollector-wattmetre /etc/kwollect/wattmetre.conf < lines.csv"
)]
pub(crate) struct KwollectorWattmetreArgs {
    /// The configuration file, and options
    #[arg(value_name = "CONF", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Flags that name the server, as they are given to this command.
type ServerFlags<'a> = &'a [(String, Raw)];

pub(crate) fn poll(args: &PollArgs, flags: ServerFlags<'_>) -> anyhow::Result<Infallible> {
    let mut words: Vec<OsString> = Vec::new();
    words.extend(args.once.then(|| "--once".into()));
    words.extend(args.print.then(|| "--print".into()));
    words.extend(args.pin.then(|| "--pin".into()));
    words.extend(args.devices.iter().map(|list| format!("--devices={list}").into()));
    become_poller("poll", flags, words, &["--".into(), args.dir.as_os_str().to_owned()])
}

pub(crate) fn feed(args: &FeedArgs, flags: ServerFlags<'_>) -> anyhow::Result<Infallible> {
    let mut words: Vec<OsString> =
        vec![format!("--id={}", args.id).into(), format!("--version={}", args.line_version).into()];
    words.extend(args.mapping.iter().flat_map(|file| ["--mapping".into(), file.into()]));
    words.extend(args.every_sample.then(|| "--every-sample".into()));
    become_poller("feed", flags, words, &[args.format.clone().into()])
}

pub(crate) fn kwollector(
    args: &KwollectorArgs,
    flags: ServerFlags<'_>,
) -> anyhow::Result<Infallible> {
    become_poller("kwollector", flags, Vec::new(), &args.arguments)
}

pub(crate) fn kwollector_wattmetre(
    args: &KwollectorWattmetreArgs,
    flags: ServerFlags<'_>,
) -> anyhow::Result<Infallible> {
    become_poller("kwollector-wattmetre", flags, Vec::new(), &args.arguments)
}

/// Prints the manual of a protocol, by the program that knows it.
pub(crate) fn manual(protocol: &str) -> anyhow::Result<()> {
    match become_poller("manual", &[], Vec::new(), &[protocol.into()])? {}
}

/// Replaces this process by the poller.
fn become_poller(
    command: &str,
    flags: ServerFlags<'_>,
    options: Vec<OsString>,
    arguments: &[OsString],
) -> anyhow::Result<Infallible> {
    let mut words = vec!["--".into(), beside("jobmeter-poller")?.into_os_string(), command.into()];
    words.extend(options);
    for (key, value) in flags {
        let flag = key.replace(['_', '.'], "-");
        match value {
            Raw::One(text) => words.push(format!("--{flag}={text}").into()),
            Raw::Many(all) => {
                words.extend(all.iter().map(|text| format!("--{flag}={text}").into()));
            }
        }
    }
    words.extend_from_slice(arguments);
    become_program(&words)
}
