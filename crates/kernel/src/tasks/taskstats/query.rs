//! Asking the kernel for tasks, and its family of messages.

use super::message::{Said, TaskMessage, recorded, said};
use crate::netlink::{
    DATAGRAM_BYTES_MAX, ERROR, GENERIC_HEADER, attributes, error_of, messages, open, push_generic,
    receive, send, u16_at,
};
use crate::{ReadError, Root, clock};
use rustix::io::Errno;
use rustix::net::netlink::GENERIC;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;

/// Tasks asked for in one datagram. Their answers, 1 280 bytes of buffer each, must fit into the
/// kernel's default of 208 KiB; more than 32 gain nothing.
const BATCH: usize = 64;
/// `GENL_ID_CTRL`, the family that knows the others.
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

/// Why the kernel's taskstats cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskstatsError {
    /// The kernel was built without it.
    #[error("the kernel has no taskstats (CONFIG_TASKSTATS)")]
    Absent,
    /// It takes `CAP_NET_ADMIN` in the machine's first user namespace.
    #[error("taskstats: permission denied")]
    Denied,
    /// Exits are told only in the machine's first user and process namespaces.
    #[error("exit notifications are not given in this process or user namespace")]
    OtherNamespace,
    /// The kernel took the request for exits, and tells none: it sends them to sockets of the machine's
    /// first network namespace alone.
    #[error("exit notifications do not arrive in this network namespace")]
    Unheard,
    /// Anything else.
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

/// The number of the taskstats family, which the kernel draws when it boots.
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

/// What the kernel says of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// What was counted for it, and when that was read, by [`clock::monotonic_us`].
    Task(&'a TaskMessage, u64),
    /// It is not there any more.
    Gone,
}

/// What became of the requests that [`Query::ask`] had no answer for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The kernel did not answer: no memory, or a full buffer.
    pub unanswered: u32,
    /// Answers of a layout that is not known, or about another task.
    pub malformed: u32,
}

/// Asks for tasks: the kernel, or on a recorded root the files `.jobmeter/taskstats/TID.bin`.
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
    /// Opens taskstats, and asks for the calling thread to know that it may.
    ///
    /// # Errors
    /// The kernel has none, or it is closed to us.
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
        query.ask(root, &[own], |_, _| {})?;
        Ok(query)
    }

    /// Asks for these tasks and shows each answer with the number of its task. On a recorded machine the
    /// answers are those of the root given, which may be another at each tick.
    ///
    /// # Errors
    /// The kernel refuses, or a socket breaks; answers shown before stand.
    pub fn ask(
        &mut self,
        root: &Root,
        tids: &[u32],
        mut show: impl FnMut(u32, Answer<'_>),
    ) -> Result<Asked, TaskstatsError> {
        let mut asked = Asked::default();
        if root.is_live() && root.is_recording() {
            self.note(root, tids)?;
        }
        for tids in tids.chunks(BATCH) {
            match &mut self.channel {
                Channel::Kernel { socket, family, seq, request, buf } => {
                    request.clear();
                    let first = *seq;
                    for (place, tid) in (0_u32..).zip(tids) {
                        let ask = (first.wrapping_add(place), false);
                        push_generic(request, *family, ask, GET, (OF_TASK, &tid.to_ne_bytes()));
                    }
                    *seq = first.wrapping_add(u32::try_from(tids.len()).unwrap_or(u32::MAX));
                    send(&*socket, request)?;
                    let batch = Batch { first, tids, answered: &mut self.answers };
                    batch.collect(socket, buf, &mut asked, &mut show)?;
                }
                Channel::Recorded { path, buf } => {
                    for tid in tids {
                        match read_recorded(root, *tid, path, buf)? {
                            Some(task) => show(*tid, Answer::Task(&task, recorded_at(&task))),
                            None => show(*tid, Answer::Gone),
                        }
                    }
                }
            }
        }
        Ok(asked)
    }

    /// Notes the answers for these tasks for a capture: asked once more each, which only a capture does.
    fn note(&mut self, root: &Root, tids: &[u32]) -> Result<(), TaskstatsError> {
        for tid in tids {
            if let Some(answer) = self.record(*tid)? {
                root.note_reply(&reply_path(*tid), &answer);
            }
        }
        Ok(())
    }

    /// The kernel's answer for a task as it came, to be kept as `.jobmeter/taskstats/TID.bin`; `None`
    /// when the task is not there.
    ///
    /// # Errors
    /// The kernel refuses, or the root is a recorded one.
    pub fn record(&mut self, tid: u32) -> Result<Option<Vec<u8>>, TaskstatsError> {
        let Channel::Kernel { socket, family, seq, request, buf } = &mut self.channel else {
            return Err(TaskstatsError::Failed("a recorded root is not recorded again".to_owned()));
        };
        request.clear();
        push_generic(request, *family, (*seq, false), GET, (OF_TASK, &tid.to_ne_bytes()));
        *seq = seq.wrapping_add(1);
        send(&*socket, request)?;
        let answer = receive(&*socket, buf)?.unwrap_or_default();
        match said(answer).next() {
            Some((_, Said::Refused(_, Errno::SRCH))) => Ok(None),
            Some((_, Said::Refused(_, errno))) => Err(errno.into()),
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
    /// Takes the answers, counting both kinds: a task that is gone answers with an error.
    fn collect(
        self,
        socket: &OwnedFd,
        buf: &mut [u8],
        asked: &mut Asked,
        show: &mut impl FnMut(u32, Answer<'_>),
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
            for (seq, said) in said(datagram) {
                let place = usize::try_from(seq.wrapping_sub(self.first)).unwrap_or(usize::MAX);
                let (Some(tid), Some(answered)) =
                    (self.tids.get(place), self.answered.get_mut(place))
                else {
                    continue; // an answer that came too late for the batch before
                };
                if !std::mem::replace(answered, true) {
                    missing -= 1;
                }
                match said {
                    Said::Task(task) if task.stats.tid == *tid => {
                        show(*tid, Answer::Task(&task, now))
                    }
                    Said::Refused(_, Errno::SRCH) => show(*tid, Answer::Gone),
                    Said::Refused(_, errno @ (Errno::PERM | Errno::ACCESS)) => {
                        return Err(errno.into());
                    }
                    Said::Refused(..) => asked.unanswered += 1,
                    Said::Task(_) | Said::Malformed(_) | Said::Nothing => asked.malformed += 1,
                }
            }
        }
        asked.unanswered += u32::try_from(missing).unwrap_or(u32::MAX);
        Ok(())
    }
}

/// When a recorded answer was read, by a clock that began in 1970: the same for all its readings.
fn recorded_at(task: &TaskMessage) -> u64 {
    task.stats.begin_s.saturating_mul(1_000_000).saturating_add(task.stats.elapsed_us)
}

/// Where the recorded answer for a task lies under a recorded machine's root.
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
        let why = format!("/{path}: it is of task {}", task.stats.tid);
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
        let asked = query.ask(&root, &[699, 700], |tid, answer| {
            seen.push((tid, matches!(answer, Answer::Task(..))));
        });
        assert_eq!(asked, Ok(Asked::default()));
        assert_eq!(seen, [(699, false), (700, true)]);
        let error = query.ask(&root, &[701], |_, _| {}).unwrap_err();
        assert_eq!(error.to_string(), "taskstats: /.jobmeter/taskstats/701.bin: it is of task 700");
    }

    #[test]
    fn the_kernel_answers_for_the_living_and_the_gone() {
        let root = Root::live().unwrap();
        let mut query = match Query::open(&root) {
            Ok(query) => query,
            Err(error @ (TaskstatsError::Denied | TaskstatsError::Absent)) => {
                return std::eprintln!("not run: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let own = std::process::id();
        // No task has a number beyond pid_max, at most 4194304.
        let tids: Vec<u32> =
            (0..100).map(|n| if n % 2 == 0 { own } else { 5_000_000 + n }).collect();
        let (mut living, mut gone) = (0, 0);
        let asked = query.ask(&root, &tids, |tid, answer| match answer {
            Answer::Task(task, at) => {
                assert_eq!((tid, task.stats.tid), (own, own));
                assert!(task.stats.elapsed_us < at);
                living += 1;
            }
            Answer::Gone => gone += 1,
        });
        assert_eq!(asked, Ok(Asked::default()));
        assert_eq!((living, gone), (50, 50));
        let datagram = query.record(own).unwrap().unwrap();
        assert_eq!(recorded(&datagram).unwrap().stats.tid, own);
        assert_eq!(query.record(5_000_000), Ok(None));
    }
}
