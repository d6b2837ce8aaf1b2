//! Taskstats messages: a task's answer, an exit, or the rejection of a request.

use super::stats::{StatsError, TaskStats, taskstats};
use crate::netlink::{ERROR, GENERIC_HEADER, attributes, error_of, messages};
use rustix::io::Errno;

/// `TASKSTATS_CMD_NEW`: the kernel's answers and notifications.
const NEW: u8 = 2;
/// `TASKSTATS_TYPE_STATS`.
const STATS: u16 = 3;
/// `TASKSTATS_TYPE_AGGR_PID`: a task's ID and its struct.
const OF_TASK: u16 = 4;
/// `TASKSTATS_TYPE_AGGR_TGID`: a process's ID and the sum of its tasks, which has few fields.
const OF_GROUP: u16 = 5;

/// A task's struct, from an answer or an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskMessage {
    /// The task.
    pub stats: TaskStats,
    /// Whether the sum of its thread group came with it: then it is an exit, and the last of several threads.
    pub with_group: bool,
}

/// The content of a taskstats message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every message is a task, and none is kept")]
pub(super) enum TaskReply {
    /// The counters of a task.
    Task(TaskMessage),
    /// The rejected request, by its number.
    Rejected(u32, Errno),
    /// A struct that cannot be read.
    Malformed(StatsError),
    /// An acknowledgement, or another message.
    Nothing,
}

/// The messages of a datagram, each with the number of the answered request.
pub(super) fn replies(datagram: &[u8]) -> impl Iterator<Item = (u32, TaskReply)> {
    messages(datagram).map(|message| {
        let reply = if message.kind == ERROR {
            error_of(&message)
                .map_or(TaskReply::Nothing, |errno| TaskReply::Rejected(message.seq, errno))
        } else {
            task_of(message.payload)
        };
        (message.seq, reply)
    })
}

/// Reads a recorded message: one datagram with one task.
///
/// # Errors
/// It has none, or an unreadable one.
pub fn recorded(datagram: &[u8]) -> Result<TaskMessage, StatsError> {
    match replies(datagram).next() {
        Some((_, TaskReply::Task(task))) => Ok(task),
        Some((_, TaskReply::Malformed(error))) => Err(error),
        _ => Err(StatsError { version: 0, length: datagram.len(), why: "no task in the message" }),
    }
}

fn task_of(payload: &[u8]) -> TaskReply {
    let Some((header, rest)) = payload.split_at_checked(GENERIC_HEADER) else {
        return TaskReply::Nothing;
    };
    if header.first() != Some(&NEW) {
        return TaskReply::Nothing;
    }
    let (mut task, mut with_group) = (None, false);
    for (kind, content) in attributes(rest) {
        match kind {
            OF_TASK if task.is_none() => {
                task = attributes(content).find(|(kind, _)| *kind == STATS).map(|(_, it)| it);
            }
            OF_GROUP => with_group = true,
            _ => {}
        }
    }
    match task.map(taskstats) {
        Some(Ok(stats)) => TaskReply::Task(TaskMessage { stats, with_group }),
        Some(Err(error)) => TaskReply::Malformed(error),
        None => TaskReply::Nothing,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::stats::tests::sample;
    use super::*;
    use crate::netlink::push_message;
    use proptest::prelude::*;

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len() + 4).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// A datagram as the kernel sends it for a task, optionally with the sum of its group.
    pub(crate) fn datagram(seq: u32, stats: &[u8], with_group: bool) -> Vec<u8> {
        let number = attribute(1, &700_u32.to_ne_bytes());
        let stats = attribute(STATS, stats);
        let mut attributes = attribute(OF_TASK, &[number, stats.clone()].concat());
        if with_group {
            let number = attribute(2, &690_u32.to_ne_bytes());
            attributes.extend(attribute(OF_GROUP, &[number, stats].concat()));
        }
        let mut bytes = Vec::new();
        push_message(&mut bytes, 31, seq, false, &[&[NEW, 1, 0, 0], &attributes]);
        bytes
    }

    #[test]
    fn tasks_and_rejections() {
        let one = datagram(5, &sample(16, 560), false);
        assert_eq!(one.len(), 596, "as measured on Linux 6.18");
        let stats = taskstats(&sample(16, 560)).unwrap();
        assert_eq!(recorded(&one), Ok(TaskMessage { stats, with_group: false }));
        let two = datagram(6, &sample(16, 560), true);
        assert_eq!(recorded(&two), Ok(TaskMessage { stats, with_group: true }));
        let mut error = Vec::new();
        push_message(&mut error, ERROR, 7, false, &[&(-3_i32).to_ne_bytes(), &[0; 16]]);
        let all = [one, two, error].concat();
        let all: Vec<_> = replies(&all).map(|(seq, _)| seq).collect();
        assert_eq!(all, [5, 6, 7]);
    }

    #[test]
    fn messages_without_a_task() {
        assert!(recorded(b"").is_err());
        assert_eq!(recorded(&datagram(1, &[0; 100], false)).unwrap_err().length, 100);
        let whole = datagram(5, &sample(16, 560), true);
        for cut in 0..whole.len() {
            assert!(recorded(&whole[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_change_of_a_byte_panics(place in 0_usize..596, byte in any::<u8>()) {
            let mut bytes = datagram(5, &sample(16, 560), false);
            bytes[place] = byte;
            recorded(&bytes).ok();
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            assert!(replies(&bytes).count() <= bytes.len());
        }
    }
}
