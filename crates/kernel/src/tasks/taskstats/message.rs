//! Taskstats messages: a task's answer, an exit, or the refusal of a request.

use super::stats::{StatsError, TaskStats, taskstats};
use crate::netlink::{ERROR, GENERIC_HEADER, attributes, error_of, messages};
use rustix::io::Errno;

/// `TASKSTATS_CMD_NEW`: the kernel's answers and notifications.
const NEW: u8 = 2;
/// `TASKSTATS_TYPE_STATS`.
const STATS: u16 = 3;
/// `TASKSTATS_TYPE_AGGR_PID`: a task's number and its struct.
const OF_TASK: u16 = 4;
/// `TASKSTATS_TYPE_AGGR_TGID`: a process's number and the sum of its tasks, which has little in it.
const OF_GROUP: u16 = 5;

/// A task's struct, from an answer or an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskMessage {
    /// The task.
    pub stats: TaskStats,
    /// Whether the sum of its thread group came with it: an exit, and the last of several threads.
    pub with_group: bool,
}

/// What a message of the taskstats family says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every message is a task, and none is kept")]
pub(super) enum Said {
    /// What was counted for a task.
    Task(TaskMessage),
    /// The request of this number was refused.
    Refused(u32, Errno),
    /// A struct that cannot be read.
    Malformed(StatsError),
    /// An acknowledgement, or something else.
    Nothing,
}

/// Reads the messages of a datagram, each with the number of the request it answers.
pub(super) fn said(datagram: &[u8]) -> impl Iterator<Item = (u32, Said)> {
    messages(datagram).map(|message| {
        let said = if message.kind == ERROR {
            error_of(&message).map_or(Said::Nothing, |errno| Said::Refused(message.seq, errno))
        } else {
            task_of(message.payload)
        };
        (message.seq, said)
    })
}

/// Reads a recorded message: one datagram with one task.
///
/// # Errors
/// It has none, or one that cannot be read.
pub fn recorded(datagram: &[u8]) -> Result<TaskMessage, StatsError> {
    match said(datagram).next() {
        Some((_, Said::Task(task))) => Ok(task),
        Some((_, Said::Malformed(error))) => Err(error),
        _ => Err(StatsError { version: 0, length: datagram.len(), why: "no task in the message" }),
    }
}

fn task_of(payload: &[u8]) -> Said {
    let Some((header, rest)) = payload.split_at_checked(GENERIC_HEADER) else {
        return Said::Nothing;
    };
    if header.first() != Some(&NEW) {
        return Said::Nothing;
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
        Some(Ok(stats)) => Said::Task(TaskMessage { stats, with_group }),
        Some(Err(error)) => Said::Malformed(error),
        None => Said::Nothing,
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

    /// A datagram as the kernel sends it for a task, with the sum of its group if asked.
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
    fn tasks_and_refusals() {
        let one = datagram(5, &sample(16, 560), false);
        assert_eq!(one.len(), 596, "as measured on Linux 6.18");
        let stats = taskstats(&sample(16, 560)).unwrap();
        assert_eq!(recorded(&one), Ok(TaskMessage { stats, with_group: false }));
        let two = datagram(6, &sample(16, 560), true);
        assert_eq!(recorded(&two), Ok(TaskMessage { stats, with_group: true }));
        let mut error = Vec::new();
        push_message(&mut error, ERROR, 7, false, &[&(-3_i32).to_ne_bytes(), &[0; 16]]);
        let all = [one, two, error].concat();
        let all: Vec<_> = said(&all).map(|(seq, _)| seq).collect();
        assert_eq!(all, [5, 6, 7]);
    }

    #[test]
    fn what_is_no_task() {
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
            assert!(said(&bytes).count() <= bytes.len());
        }
    }
}
