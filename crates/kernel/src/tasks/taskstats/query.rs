//! Queries the kernel for tasks; also the kernel's netlink family of taskstats.

use super::message::{TaskMessage, TaskReply, recorded, replies};
use crate::netlink::{
    DATAGRAM_BYTES_MAX, ERROR, GENERIC_HEADER, attributes, error_of, messages, open, push_generic,
    receive, send, u16_at,
};
use crate::{ReadError, Root, clock};
use rustix::io::Errno;
use rustix::net::netlink::GENERIC;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;

/// Tasks per datagram. Their answers, 1 280 bytes of buffer each, must fit into the
/// kernel's default of 208 KiB; more than 32 gain nothing.
const BATCH: usize = 64;
/// `GENL_ID_CTRL`, the family that lists the others.
const CONTROL: u16 = 16;
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`.
const FAMILY_NAME: u16 = 2;
/// `TASKSTATS_CMD_GET`.
pub(super) const GET: u8 = 1;
/// `TASKSTATS_CMD_ATTR_PID`.
const OF_TASK: u16 = 1;

/// Why the kernel's taskstats are unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskstatsError {
    /// The kernel was built without it.
    #[error("the kernel has no taskstats (CONFIG_TASKSTATS)")]
    Absent,
    /// It needs `CAP_NET_ADMIN` in the machine's first user namespace.
    #[error("taskstats: permission denied")]
    Denied,
    /// Exits are sent only in the machine's first user and process namespaces.
    #[error("exit notifications are not available in this process or user namespace")]
    OtherNamespace,
    /// The kernel accepted the request for exits, and sends none: it sends them to sockets of the machine's
    /// first network namespace alone.
    #[error("exit notifications do not arrive in this network namespace")]
    Unheard,
    /// Any other error.
    #[error("taskstats: {0}")]
    Failed(String),
}

impl From<Errno> for TaskstatsError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => Self::Absent,
            Errno::PERM | Errno::ACCESS => Self::Denied,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// The number of the taskstats family, which the kernel assigns at boot.
pub(super) fn family(socket: &OwnedFd) -> Result<u16, TaskstatsError> {
    let mut request = Vec::new();
    push_generic(&mut request, CONTROL, (1, false), GET_FAMILY, (FAMILY_NAME, b"TASKSTATS\0"));
    send(socket, &request)?;
    let mut buf = vec![0; DATAGRAM_BYTES_MAX];
    let answer = receive(socket, &mut buf)?.unwrap_or_default();
    let message = messages(answer).next();
    let message = message.ok_or_else(|| TaskstatsError::Failed("no answer".to_owned()))?;
    if message.kind == ERROR {
        return Err(error_of(&message).map_or(TaskstatsError::Absent, TaskstatsError::from));
    }
    let content = message.payload.get(GENERIC_HEADER..).unwrap_or_default();
    let id = attributes(content).find(|(kind, _)| *kind == FAMILY_ID);
    id.and_then(|(_, id)| u16_at(id, 0)).ok_or(TaskstatsError::Absent)
}

/// The kernel's answer about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryReply<'a> {
    /// Its counters, and the time of reading, by [`clock::monotonic_us`].
    Task(&'a TaskMessage, u64),
    /// It no longer exists.
    Gone,
}

/// Requests of [`Query`] without a usable answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryErrors {
    /// The kernel did not answer: no memory, or a full buffer.
    pub unanswered: u32,
    /// Answers of an unknown layout, or about another task.
    pub malformed: u32,
}

/// Queries tasks: in the kernel, or on a recorded root in the files `.jobmeter/taskstats/TID.bin`.
#[derive(Debug)]
pub struct Query {
    channel: Channel,
    answers: Vec<bool>,
}

#[derive(Debug)]
enum Channel {
    Kernel { socket: OwnedFd, family: u16, seq: u32, request: Vec<u8>, buf: Box<[u8]> },
    Recorded { path: String, buf: Vec<u8> },
}

impl Query {
    /// Opens taskstats, and queries the calling thread to check the permission.
    ///
    /// # Errors
    /// The kernel has none, or permission is missing.
    pub fn open(root: &Root) -> Result<Self, TaskstatsError> {
        if !root.is_live() {
            let channel = Channel::Recorded { path: String::new(), buf: Vec::new() };
            return match root.list(".jobmeter/taskstats", |_| {}) {
                Ok(()) => Ok(Self { channel, answers: Vec::new() }),
                Err(error) if error.is_absent() => Err(TaskstatsError::Absent),
                Err(error) => Err(TaskstatsError::Failed(error.to_string())),
            };
        }
        let socket = open(GENERIC, 0)?;
        let family = family(&socket)?;
        let buf = vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice();
        let channel = Channel::Kernel { socket, family, seq: 1, request: Vec::new(), buf };
        let mut query = Self { channel, answers: Vec::new() };
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        query.query_tasks(root, &[own], |_, _| {})?;
        Ok(query)
    }

    /// Queries these tasks and shows each answer with the ID of its task. On a recorded machine the
    /// answers come from the given root, which may be another at each tick.
    ///
    /// # Errors
    /// The kernel rejects the request, or a socket breaks; answers shown before are valid.
    pub fn query_tasks(
        &mut self,
        root: &Root,
        tids: &[u32],
        mut show: impl FnMut(u32, QueryReply<'_>),
    ) -> Result<QueryErrors, TaskstatsError> {
        let mut outcome = QueryErrors::default();
        if root.is_live() && root.is_recording() {
            self.note(root, tids)?;
        }
        for tids in tids.chunks(BATCH) {
            match &mut self.channel {
                Channel::Kernel { socket, family, seq, request, buf } => {
                    request.clear();
                    let first = *seq;
                    for (place, tid) in (0_u32..).zip(tids) {
                        let number = (first.wrapping_add(place), false);
                        push_generic(request, *family, number, GET, (OF_TASK, &tid.to_ne_bytes()));
                    }
                    *seq = first.wrapping_add(u32::try_from(tids.len()).unwrap_or(u32::MAX));
                    send(&*socket, request)?;
                    let batch = Batch { first, tids, answered: &mut self.answers };
                    batch.collect(socket, buf, &mut outcome, &mut show)?;
                }
                Channel::Recorded { path, buf } => {
                    for tid in tids {
                        match read_recorded(root, *tid, path, buf)? {
                            Some(task) => show(*tid, QueryReply::Task(&task, recorded_at(&task))),
                            None => show(*tid, QueryReply::Gone),
                        }
                    }
                }
            }
        }
        Ok(outcome)
    }

    /// Records the answers for these tasks: it queries each once more, which only a capture does.
    fn note(&mut self, root: &Root, tids: &[u32]) -> Result<(), TaskstatsError> {
        for tid in tids {
            if let Some(answer) = self.record(*tid)? {
                root.note_reply(&reply_path(*tid), &answer);
            }
        }
        Ok(())
    }

    /// The kernel's raw answer for a task, to be stored as `.jobmeter/taskstats/TID.bin`; `None`
    /// if the task does not exist.
    ///
    /// # Errors
    /// The kernel rejects the request, or the root is a recorded one.
    pub fn record(&mut self, tid: u32) -> Result<Option<Vec<u8>>, TaskstatsError> {
        let Channel::Kernel { socket, family, seq, request, buf } = &mut self.channel else {
            return Err(TaskstatsError::Failed("a recorded root cannot be recorded".to_owned()));
        };
        request.clear();
        push_generic(request, *family, (*seq, false), GET, (OF_TASK, &tid.to_ne_bytes()));
        *seq = seq.wrapping_add(1);
        send(&*socket, request)?;
        let answer = receive(&*socket, buf)?.unwrap_or_default();
        match replies(answer).next() {
            Some((_, TaskReply::Rejected(_, Errno::SRCH))) => Ok(None),
            Some((_, TaskReply::Rejected(_, errno))) => Err(errno.into()),
            _ => Ok(Some(answer.to_vec())),
        }
    }
}

/// The answers to one datagram of requests, numbered from `first`.
struct Batch<'a> {
    first: u32,
    tids: &'a [u32],
    answered: &'a mut Vec<bool>,
}

impl Batch<'_> {
    /// Receives the answers, counting both kinds: an ended task is answered with an error.
    fn collect(
        self,
        socket: &OwnedFd,
        buf: &mut [u8],
        outcome: &mut QueryErrors,
        show: &mut impl FnMut(u32, QueryReply<'_>),
    ) -> Result<(), TaskstatsError> {
        self.answered.clear();
        self.answered.resize(self.tids.len(), false);
        let mut missing = self.tids.len();
        while missing > 0 {
            let datagram = match receive(socket, buf) {
                Ok(Some(datagram)) => datagram,
                Ok(None) | Err(Errno::NOBUFS) => break,
                Err(errno) => return Err(errno.into()),
            };
            let now = clock::monotonic_us();
            for (seq, reply) in replies(datagram) {
                let place = usize::try_from(seq.wrapping_sub(self.first)).unwrap_or(usize::MAX);
                let (Some(tid), Some(answered)) =
                    (self.tids.get(place), self.answered.get_mut(place))
                else {
                    continue; // a late answer to the previous batch
                };
                if !std::mem::replace(answered, true) {
                    missing -= 1;
                }
                match reply {
                    TaskReply::Task(task) if task.stats.tid == *tid => {
                        show(*tid, QueryReply::Task(&task, now))
                    }
                    TaskReply::Rejected(_, Errno::SRCH) => show(*tid, QueryReply::Gone),
                    TaskReply::Rejected(_, errno @ (Errno::PERM | Errno::ACCESS)) => {
                        return Err(errno.into());
                    }
                    TaskReply::Rejected(..) => outcome.unanswered += 1,
                    TaskReply::Task(_) | TaskReply::Malformed(_) | TaskReply::Nothing => {
                        outcome.malformed += 1
                    }
                }
            }
        }
        outcome.unanswered += u32::try_from(missing).unwrap_or(u32::MAX);
        Ok(())
    }
}

/// When a recorded answer was read, by a clock that began in 1970: the same for all its readings.
fn recorded_at(task: &TaskMessage) -> u64 {
    task.stats.begin_s.saturating_mul(1_000_000).saturating_add(task.stats.elapsed_us)
}

/// Path of the recorded answer for a task under a recorded machine's root.
fn reply_path(tid: u32) -> String {
    format!(".jobmeter/taskstats/{tid}.bin")
}

fn read_recorded(
    root: &Root,
    tid: u32,
    path: &mut String,
    buf: &mut Vec<u8>,
) -> Result<Option<TaskMessage>, TaskstatsError> {
    path.clear();
    write!(path, ".jobmeter/taskstats/{tid}.bin")
        .map_err(|error| TaskstatsError::Failed(error.to_string()))?;
    match root.read(path, buf) {
        Ok(()) => {}
        Err(ReadError::Absent { .. }) => return Ok(None),
        Err(error) => return Err(TaskstatsError::Failed(error.to_string())),
    }
    let task = recorded(buf).map_err(|e| TaskstatsError::Failed(format!("/{path}: {e}")))?;
    if task.stats.tid != tid {
        let why = format!("/{path}: it belongs to task {}", task.stats.tid);
        return Err(TaskstatsError::Failed(why));
    }
    Ok(Some(task))
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::datagram;
    use super::super::stats::tests::sample;
    use super::*;

    #[test]
    fn a_recorded_root_answers_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        assert_eq!(Query::open(&root).unwrap_err(), TaskstatsError::Absent);
        let answers = dir.path().join(".jobmeter/taskstats");
        std::fs::create_dir_all(&answers).unwrap();
        std::fs::write(answers.join("700.bin"), datagram(1, &sample(16, 560), false)).unwrap();
        std::fs::write(answers.join("701.bin"), datagram(1, &sample(16, 560), false)).unwrap();
        let mut query = Query::open(&root).unwrap();
        let mut seen = Vec::new();
        let outcome = query.query_tasks(&root, &[699, 700], |tid, answer| {
            seen.push((tid, matches!(answer, QueryReply::Task(..))));
        });
        assert_eq!(outcome, Ok(QueryErrors::default()));
        assert_eq!(seen, [(699, false), (700, true)]);
        let error = query.query_tasks(&root, &[701], |_, _| {}).unwrap_err();
        assert_eq!(
            error.to_string(),
            "taskstats: /.jobmeter/taskstats/701.bin: it belongs to task 700"
        );
    }

    #[test]
    fn the_kernel_answers_for_living_and_ended_tasks() {
        let root = Root::live().unwrap();
        let mut query = match Query::open(&root) {
            Ok(query) => query,
            Err(error @ (TaskstatsError::Denied | TaskstatsError::Absent)) => {
                return std::eprintln!("not run: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let own = std::process::id();
        // No task has an ID beyond pid_max, at most 4194304.
        let tids: Vec<u32> =
            (0..100).map(|n| if n % 2 == 0 { own } else { 5_000_000 + n }).collect();
        let (mut living, mut gone) = (0, 0);
        let outcome = query.query_tasks(&root, &tids, |tid, answer| match answer {
            QueryReply::Task(task, at) => {
                assert_eq!((tid, task.stats.tid), (own, own));
                assert!(task.stats.elapsed_us < at);
                living += 1;
            }
            QueryReply::Gone => gone += 1,
        });
        assert_eq!(outcome, Ok(QueryErrors::default()));
        assert_eq!((living, gone), (50, 50));
        let datagram = query.record(own).unwrap().unwrap();
        assert_eq!(recorded(&datagram).unwrap().stats.tid, own);
        assert_eq!(query.record(5_000_000), Ok(None));
    }
}
