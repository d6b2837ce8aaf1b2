//! A node's baseboard management controller (BMC) through `/dev/ipmi0` (include/uapi/linux/ipmi.h, Linux
//! 2.6; Documentation/driver-api/ipmi.rst; Intelligent Platform Management Interface 2.0, 2013).
//!
//! One request is pending at a time. It is written as on the bus: network function and unit, command, data. Its answer
//! begins with the completion code. On a recorded machine `.jobmeter/ipmi` contains both, as hexadecimal digits:
//!
//! ```text
//! 18 01 -> 00 20 81 03 05 02 bf a2 02 00 00 01
//! 10 2d 17 -> 00 3c c0 00 00
//! ```

mod device;
mod records;
mod repository;

pub use records::{
    Analog, DcmiPower, DellPower, Identity, Measures, RECORD_BYTES_MAX, SensorRecord,
};
pub use repository::{Repository, RepositoryWalk, SENSORS_MAX, read_repository};

use crate::{ReadError, Root};
use device::Device;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The file of a recorded machine's answers.
pub const REPLY: &str = ".jobmeter/ipmi";
/// Longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 16;
/// Longest answer, in bytes (`IPMI_MAX_MSG_LENGTH`).
const ANSWER_BYTES_MAX: usize = 272;
/// How long an answer may take. The driver itself gives a BMC five seconds.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(6);
/// The completion code of an unknown command.
const UNKNOWN_COMMAND: u8 = 0xc1;

/// A request as on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    bytes: [u8; REQUEST_BYTES_MAX],
    length: u8,
}

impl Request {
    /// A request of a network function, to a unit of the BMC (0 to 3). Data beyond
    /// [`REQUEST_BYTES_MAX`] is cut.
    pub fn new(function: u8, unit: u8, command: u8, data: &[u8]) -> Self {
        let (mut bytes, mut length) = ([0; REQUEST_BYTES_MAX], 0);
        let all = [function << 2 | unit & 3, command].into_iter().chain(data.iter().copied());
        for (place, byte) in bytes.iter_mut().zip(all) {
            *place = byte;
            length += 1;
        }
        Self { bytes, length }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// Why the BMC gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpmiError {
    /// There is no BMC, or no driver for it.
    #[error("{0}")]
    Absent(String),
    /// The device file is not accessible.
    #[error("{0}")]
    Denied(String),
    /// It does not answer.
    #[error("the BMC has not responded for {0:?}")]
    Late(Duration),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

impl From<ReadError> for IpmiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Absent { path } => Self::Absent(format!("{path}: not there")),
            ReadError::Denied { path } => Self::Denied(path),
            ReadError::Failed { .. } => Self::Failed(error.to_string()),
        }
    }
}

/// The BMC of this node, or of a recorded one.
#[derive(Debug)]
pub struct Bmc {
    line: Line,
    root: Root,
    pending: Option<Request>,
    answer: Vec<u8>,
    /// Requests with their answers, for `jobmeter capture`.
    noted: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug)]
enum Line {
    Live(Device),
    Recorded,
}

impl Bmc {
    /// Opens the device, or a recording of one.
    ///
    /// # Errors
    /// There is none, or it is not accessible.
    pub fn open(root: &Root) -> Result<Self, IpmiError> {
        let line = if root.is_live() {
            Line::Live(Device::open()?)
        } else {
            root.open(REPLY)?;
            Line::Recorded
        };
        let (root, noted) = (root.clone(), BTreeMap::new());
        Ok(Self { line, root, pending: None, answer: Vec::new(), noted })
    }

    /// Sends a request. A late answer to an earlier request is skipped.
    ///
    /// # Errors
    /// The device accepts no request.
    pub fn begin(&mut self, request: &Request) -> Result<(), IpmiError> {
        self.pending = Some(*request);
        match &mut self.line {
            Line::Live(device) => device.send(request.bytes()),
            Line::Recorded => Ok(()),
        }
    }

    /// The answer to the pending request, from its completion code on; `None` if it does not arrive within `patience`.
    ///
    /// # Errors
    /// The device fails, or an answer has no byte.
    pub fn poll(&mut self, patience: Duration) -> Result<Option<&[u8]>, IpmiError> {
        let Some(request) = self.pending else { return Ok(None) };
        let has_come = match &mut self.line {
            Line::Live(device) => device.receive(patience, &mut self.answer)?,
            Line::Recorded => {
                recorded(&self.root, request.bytes(), &mut self.answer)?;
                true
            }
        };
        if !has_come {
            return Ok(None);
        }
        self.pending = None;
        if self.root.is_recording() {
            self.noted.insert(request.bytes().to_owned(), self.answer.clone());
            self.root.note_reply(REPLY, text(&self.noted).as_bytes());
        }
        if self.answer.is_empty() {
            return Err(IpmiError::Failed("a response of the BMC is empty".to_owned()));
        }
        Ok(Some(&self.answer))
    }

    /// Sends a request and waits for its answer, from its completion code on.
    ///
    /// # Errors
    /// The device fails, or the BMC does not answer in time.
    pub fn send_request(&mut self, request: &Request) -> Result<&[u8], IpmiError> {
        self.begin(request)?;
        match self.poll(ANSWER_TIME_MAX)? {
            Some(_) => Ok(&self.answer),
            None => Err(IpmiError::Late(ANSWER_TIME_MAX)),
        }
    }
}

/// The recorded answer to a request; without a recording, the answer "unknown command".
fn recorded(root: &Root, request: &[u8], answer: &mut Vec<u8>) -> Result<(), IpmiError> {
    let mut text = Vec::new();
    root.read(REPLY, &mut text)?;
    answer.clear();
    match find(&text, request) {
        Ok(Some(found)) => answer.extend_from_slice(&found),
        Ok(None) => answer.push(UNKNOWN_COMMAND),
        Err(line) => return Err(IpmiError::Failed(format!("/{REPLY}: line {line} is malformed"))),
    }
    Ok(())
}

/// The answer to a request in recorded lines, or the number of a malformed line. A `#` begins a comment.
pub fn find(text: &[u8], request: &[u8]) -> Result<Option<Vec<u8>>, usize> {
    let mut found = None;
    for (number, line) in (1_usize..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        if line.trim_ascii().is_empty() {
            continue;
        }
        let both = line.windows(2).position(|two| two == b"->").and_then(|at| {
            let (sent, answered) = line.split_at_checked(at)?;
            Some((hex(sent)?, hex(answered.get(2..)?)?))
        });
        let (sent, answered) = both.ok_or(number)?;
        if sent == request && found.is_none() {
            found = Some(answered);
        }
    }
    Ok(found)
}

fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for word in text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        let word = std::str::from_utf8(word).ok().filter(|word| word.len() == 2)?;
        bytes.push(u8::from_str_radix(word, 16).ok()?);
        if bytes.len() > ANSWER_BYTES_MAX {
            return None;
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

/// The lines of requests and their answers.
fn text(noted: &BTreeMap<Vec<u8>, Vec<u8>>) -> String {
    let mut out = String::new();
    for (sent, answered) in noted {
        // Writing to a string cannot fail, here and below.
        sent.iter().for_each(|byte| write!(out, "{byte:02x} ").unwrap_or(()));
        out.push_str("->");
        answered.iter().for_each(|byte| write!(out, " {byte:02x}").unwrap_or(()));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn recorded_answers_are_found_and_other_requests_unknown() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".jobmeter")).unwrap();
        let lines = "# a BMC\n18 01 -> 00 20 # its id\n\n10 2d 17 -> 00 3c c0\n";
        std::fs::write(dir.path().join(REPLY), lines).unwrap();
        let mut bmc = Bmc::open(&Root::recorded(dir.path()).unwrap()).unwrap();
        assert_eq!(bmc.send_request(&Request::new(0x06, 0, 0x01, &[])), Ok(&[0, 0x20][..]));
        assert_eq!(
            bmc.send_request(&Request::new(0x04, 0, 0x2d, &[0x17])),
            Ok(&[0, 0x3c, 0xc0][..])
        );
        assert_eq!(bmc.send_request(&Request::new(0x2c, 0, 0x02, &[0xdc])), Ok(&[0xc1][..]));
        std::fs::write(dir.path().join(REPLY), "18 01 -> 00\n18 1 -> 00\n").unwrap();
        let error = bmc.send_request(&Request::new(0x06, 0, 0x01, &[])).unwrap_err().to_string();
        assert_eq!(error, "/.jobmeter/ipmi: line 2 is malformed");
        std::fs::remove_file(dir.path().join(REPLY)).unwrap();
        let none = Bmc::open(&Root::recorded(dir.path()).unwrap());
        assert!(matches!(none, Err(IpmiError::Absent(_))), "{none:?}");
    }

    proptest! {
        #[test]
        fn recorded_answers_round_trip(
            noted in prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 1..16),
                prop::collection::vec(any::<u8>(), 1..40),
                0..5,
            ),
        ) {
            let text = text(&noted);
            for (sent, answered) in &noted {
                prop_assert_eq!(find(text.as_bytes(), sent), Ok(Some(answered.clone())));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            find(&bytes, b"\x18\x01").ok();
        }

        #[test]
        fn no_words_panic(words in "([0-9a-f]{1,3}|->|#| |\n){0,40}") {
            find(words.as_bytes(), b"\x18\x01").ok();
        }
    }
}
