//! `jobmeter colmet-node`: this node's measurements for a collector of Colmet, with the options of its `colmet-node`. It needs no
//! server.
//!
//! - `options`: the command line. `settings`: what it means for the agent. `mapping_files`: the files that name counters.

mod mapping_files;
pub(crate) mod options;
pub(crate) mod settings;
pub(crate) mod verbosity;

use crate::client::plain::note;
use anyhow::{Context, bail};
use clap::Parser as _;
use colmet::backends::Backend;
use colmet::frame;
use colmet::record::Record;
use delivery::BatchOutput;
use mapping_files::MappingFiles;
use model::Batch;
use options::Options;
use outputs::{Layout, NodeRecords};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use zmtp::PushQueue;

/// The word of the command.
pub(crate) const COMMAND: &str = "colmet-node";
/// Bytes of messages that wait for a collector: a high water mark of 0 means no limit of their number.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// Variables of Colmet's libraries.
const LIBRARIES: [&str; 2] = ["LIB_RAPL_PATH", "LIB_PERFHW_PATH"];

/// Sends this node's measurements to a collector of Colmet, with the options of its colmet-node
///
/// `jobmeter colmet-node --help` lists them. It needs no server, and no libraries and programs of Colmet.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter colmet-node -s 5 --enable-RAPL --zeromq-uri tcp://collector:5556"
)]
pub(crate) struct ColmetNodeArgs {
    /// The options of colmet-node
    #[arg(value_name = "OPTION", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl ColmetNodeArgs {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        run(&self.arguments)
    }
}

/// Measures and sends until SIGTERM or SIGINT.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let name = OsString::from("jobmeter colmet-node");
    let words = verbosity::with_levels(words);
    let options = match Options::try_parse_from([name].iter().chain(&words)) {
        Ok(options) => options,
        Err(error) => return Ok(crate::rejected(error)),
    };
    if options.has_dead_option() {
        bail!("-c, -p and -t have no effect in Colmet; jobs are found in --cpuset_rootpath");
    }
    for name in LIBRARIES.into_iter().filter(|name| std::env::var_os(name).is_some()) {
        note(&format!("{name} is not needed: jobmeter reads these counters itself")).ok();
    }
    if options.enable_nvidia {
        note("--enable-nvidia has no records: jobmeter's samples of GPUs belong to no job").ok();
    }
    let config = settings::agent_config(&options)?;
    let address = zmtp::tcp_address(&options.zeromq_uri).map_err(anyhow::Error::msg)?;
    let messages_max = match options.zeromq_hwm {
        0 => usize::MAX,
        messages => messages,
    };
    let queue = PushQueue::start(address, messages_max, WAITING_BYTES_MAX);
    let queue = Arc::new(queue.context("no thread")?);
    let output = NodeOutput::new(&options, Arc::clone(&queue))?;
    agent::sample(&config, Box::new(output))?;
    let counts = queue.end(options.linger());
    if counts.waiting > 0 {
        log::warn!("{} messages were not sent at the end", counts.waiting);
    }
    Ok(ExitCode::SUCCESS)
}

/// Receives batches, and sends their records.
struct NodeOutput {
    records: NodeRecords,
    backends: Vec<&'static Backend>,
    /// Until the first batch.
    mapping_files: Option<MappingFiles>,
    queue: Arc<PushQueue>,
    /// Messages that were dropped until now.
    dropped: u64,
}

impl NodeOutput {
    fn new(options: &Options, queue: Arc<PushQueue>) -> anyhow::Result<Self> {
        let events = options.events()?;
        let mapping_files = MappingFiles::new(options.backends(), events.clone());
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let domain = host.split_once('.').map_or("", |(_, domain)| domain);
        let layout = Layout::new(model::ClusterId::new(settings::CLUSTER)?, domain, events);
        Ok(Self {
            records: NodeRecords::new(layout),
            backends: options.backends(),
            mapping_files: Some(mapping_files),
            queue,
            dropped: 0,
        })
    }
}

impl BatchOutput for NodeOutput {
    fn put(&mut self, batch: Batch) -> Result<(), Box<Batch>> {
        if !batch.ticks.is_empty()
            && let Some(files) = self.mapping_files.take()
            && let Err(error) = files.write(&batch.table, Path::new("."), delivery::wall())
        {
            log::warn!("the mapping files cannot be written: {error}");
        }
        let mut records = self.records.of_batch(&batch);
        records.retain(|record| self.backends.contains(&record.backend));
        for message in messages(&records) {
            self.queue.put(message);
        }
        let counts = self.queue.counts();
        if counts.dropped > self.dropped {
            self.dropped = counts.dropped;
            let why = counts.failure.map_or("it does not read".to_owned(), |why| why.to_string());
            log::warn!(
                "the oldest messages are dropped, because the collector is unavailable: {why}"
            );
        }
        Ok(())
    }

    fn spare(&mut self) -> Option<Batch> {
        None
    }
}

/// One message for each instant.
fn messages(records: &[Record]) -> impl Iterator<Item = Vec<u8>> {
    frame::by_message(records).into_iter().map(|records| {
        let mut message = Vec::new();
        for record in records {
            if let Err(error) = frame::encode(record, &mut message) {
                log::warn!("{error}; it is left out");
            }
        }
        message
    })
}
