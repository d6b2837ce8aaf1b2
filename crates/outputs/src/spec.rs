//! What a kind of output declares, and what it does.

use crate::portion::Portion;
use crate::records::Layout;
use config::OutputConfig;
use model::Timestamp;
use model::setting::OptionSpec;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;
use storage::TimeSlice;

/// What a success of a write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// The data is durable at the receiver.
    Kept,
    /// The bytes are written; the receiver never answers.
    Sent,
}

impl Guarantee {
    /// Its word in answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Sent => "sent",
        }
    }
}

/// A kind of output.
#[derive(Clone, Copy)]
pub struct Spec {
    /// Its name: the value of `kind`.
    pub name: &'static str,
    /// One sentence for the manual.
    pub help: &'static str,
    /// What a success means, for the manual.
    pub guarantee_help: &'static str,
    /// Its own options.
    pub options: &'static [OptionSpec],
    /// What a success means with these options.
    pub guarantee: fn(&OutputConfig) -> Guarantee,
    /// The errors of a configuration on this machine, each with the option. Changes nothing.
    pub check: fn(&OutputConfig) -> Vec<(&'static str, String)>,
    /// How it wants Colmet's records; `None`: it wants none.
    pub records: fn(&OutputConfig) -> Option<Layout>,
    /// Prepares an output. The folder is its own: it keeps what must outlive the program there.
    pub open: OpenOutput,
    /// Prepares an output that a time range is sent to; or why this kind sends none.
    pub fill: fn(&OutputConfig) -> Result<OpenFill, &'static str>,
    /// Whether it sends samples of jobs.
    pub sends_jobs: fn(&OutputConfig) -> bool,
    /// After a broken connection, samples that were written within this time before the break are sent again. `None`: a
    /// receiver of this kind loses nothing.
    pub resend: fn(&OutputConfig) -> Option<Duration>,
}

impl Spec {
    /// A kind that keeps what it acknowledged, and sends no time range. Name, help and `open` are those of no kind.
    pub const DEFAULT: Self = Self {
        name: "",
        help: "",
        guarantee_help: "",
        options: &[],
        guarantee: |_| Guarantee::Kept,
        check: |_| Vec::new(),
        records: |_| None,
        open: |_, _| Err(WriteError::new("this kind of output cannot be opened")),
        fill: |_| Err("this kind of output sends no time range again"),
        sends_jobs: |_| true,
        resend: |_| None,
    };
}

/// A time range that an output receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillTimes {
    /// The first instant.
    pub from: Timestamp,
    /// The last instant.
    pub to: Timestamp,
    /// When it was requested: no two ranges of an output have the same time.
    pub requested: Timestamp,
}

/// Prepares an output for a time range, with a folder of its own that is empty at first. Its portions have marks of their own:
/// they begin at `requested`, and count.
pub type OpenFill = fn(&OutputConfig, &Path, FillTimes) -> Result<Box<dyn Output>, WriteError>;

/// Prepares an output with an own folder.
pub type OpenOutput = fn(&OutputConfig, &Path) -> Result<Box<dyn Output>, WriteError>;

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An output that receives portions. Calls block.
pub trait Output: Send {
    /// Writes a portion. Returns once the kind's guarantee holds for all of it.
    ///
    /// A portion with the mark of the last one is that one again: after an error, or after a restart. It may have other
    /// rows then, if the configuration has changed. An output with the guarantee [`Guarantee::Kept`] replaces what it
    /// wrote of the last one.
    ///
    /// # Errors
    /// The receiver does not accept it now. The same portion follows again.
    fn write(&mut self, portion: &Portion) -> Result<(), WriteError>;

    /// Time before its first portion of which it wants the samples, in [`Self::observe`]: its values depend on earlier ones.
    fn lead(&self) -> Duration {
        Duration::ZERO
    }

    /// Receives samples before the first portion, ordered by time. Writes nothing.
    fn observe(&mut self, _samples: &TimeSlice) {}

    /// Whether the connection to the receiver broke since the last call. Is called each second, so a break is noticed
    /// without a write. Does not block.
    fn has_broken(&mut self) -> bool {
        false
    }

    /// Values that the receiver cannot take, and that were left out since the last call.
    fn left_out(&mut self) -> u64 {
        0
    }
    /// The items that the receiver named as bad since the last call, if a kind can name such. They are not part of
    /// what [`Self::write`] writes again. The caller stores them durably before it confirms the portion.
    fn take_rejected(&mut self) -> Vec<RejectedItem> {
        Vec::new()
    }

    /// Sends items again that [`Self::take_rejected`] returned earlier, maybe before a restart. Returns those that the
    /// receiver rejects again, with its new message. Only called for kinds that return such items.
    ///
    /// # Errors
    /// The receiver does not accept them now: they remain set aside, and the call is repeated.
    fn retry(&mut self, items: Vec<RejectedItem>) -> Result<Vec<RejectedItem>, WriteError> {
        Ok(items)
    }
}

/// Data that a receiver named as bad: it is set aside (decision 0063).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedItem {
    /// Identifies it: an item that a repeated portion has again is not set aside twice.
    pub key: String,
    /// The receiver's message.
    pub message: String,
    /// What [`Output::retry`] needs, as a text that people can read.
    pub data: String,
}

/// Why a portion was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteError {
    /// The reason, and what to do.
    pub why: String,
    /// Delay that the receiver requests.
    pub after: Option<Duration>,
}

impl WriteError {
    /// An error without a requested delay.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), after: None }
    }

    /// Returns a function that states where an error of the system occurred.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(format!("{}: {error}", path.display()))
    }
}
