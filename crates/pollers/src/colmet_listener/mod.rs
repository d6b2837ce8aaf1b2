//! The listener: messages of Colmet's nodes as samples, jobs and gaps on their way to the server
//! (docs/decisions/0066-colmet-listener.md).
//!
//! - `message`: what arrives, the records in it, and why it is not stored
//! - `fault_counts`: messages that are not stored, by reason and peer
//! - `recent`: recent instants and the period of a sender
//! - `host/counter_files`: the files that name a host's counters
//! - `plan`: how the columns of a backend are stored
//! - `series`: the values of a backend: growths, counters and their starts
//! - `jobs`: the jobs of a host
//! - `host`: a host: its messages, gaps and jobs
//! - `saved_hosts`: a file with the hosts and their jobs for the next start
//! - `listener`, `hosts`: all hosts in their groups
//! - `zeromq`: messages from the network
//! - `listener_program`: from start to end

mod fault_counts;
mod host;
mod hosts;
mod jobs;
mod listener;
mod listener_program;
mod message;
mod plan;
mod recent;
mod saved_hosts;
mod series;
mod zeromq;

pub use hosts::HostsError;
pub use listener_program::{ListenerError, run};
