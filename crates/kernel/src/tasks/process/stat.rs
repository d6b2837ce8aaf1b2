//! `/proc/PID/stat`: the state of a process, and its times (fs/proc/array.c, `do_task_stat`).
//!
//! ```text
//! 1124 (cat) R 1116 1116 8854 0 -1 4194304 99 0 0 0 3 1 0 0 20 0 1 0 219187 3133440 382 …
//! ```
//!
//! The name may contain any byte, blanks and parentheses too, so the fields are counted from the last `)`.

use crate::parse::{Fields, ParseError, number};

/// The flag of a task that is ending: its exit has been reported, or is about to be (`PF_EXITING`).
pub const EXITING: u64 = 4;

/// The state of a process: the letters of `stat` and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// `R`: it runs, or waits for a processor.
    Running,
    /// `S`: it waits for something and can be woken by a signal.
    Sleeping,
    /// `D`: it waits, mostly for a disk, and no signal wakes it.
    DiskSleep,
    /// `T`: stopped by a signal.
    Stopped,
    /// `t`: stopped by its tracer.
    Traced,
    /// `Z`: it has ended, and its parent has not read its exit code.
    Zombie,
    /// `X`: it is being removed.
    Dead,
    /// `I`, `P` and what a later kernel may add.
    Other,
}

impl State {
    /// The state of a letter.
    pub const fn of(letter: u8) -> Self {
        match letter {
            b'R' => Self::Running,
            b'S' => Self::Sleeping,
            b'D' => Self::DiskSleep,
            b'T' => Self::Stopped,
            b't' => Self::Traced,
            b'Z' => Self::Zombie,
            b'X' | b'x' => Self::Dead,
            _ => Self::Other,
        }
    }
}

/// The used fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat<'a> {
    /// Its ID.
    pub pid: u64,
    /// Its name, at most 15 bytes (63 for a thread of the kernel), of any kind.
    pub comm: &'a [u8],
    /// The state of the process, or of the requested thread.
    pub state: State,
    /// Its parent process.
    pub ppid: u64,
    /// The kernel's flags of the task, [`EXITING`] among them.
    pub flags: u64,
    /// Time of all its threads in user mode, in ticks of [`crate::machine::stat::user_hz`].
    pub user_ticks: u64,
    /// Time of all its threads in the kernel, in such ticks.
    pub system_ticks: u64,
    /// User time of its ended children that it waited for, and of theirs, in clock ticks.
    pub children_user_ticks: u64,
    /// The same for system time.
    pub children_system_ticks: u64,
    /// Its threads.
    pub threads: u64,
    /// When it began, in such ticks since boot. Together with `pid` this identifies a process permanently.
    pub start_ticks: u64,
}

/// Reads `/proc/PID/stat`.
///
/// # Errors
/// A field is missing or not a number.
pub fn process_stat(text: &[u8]) -> Result<ProcessStat<'_>, ParseError> {
    let wrong = || ParseError::at(text);
    // Without its end the line may have been truncated within a number.
    let line = text.strip_suffix(b"\n").ok_or_else(wrong)?;
    let open = line.iter().position(|byte| *byte == b'(').ok_or_else(wrong)?;
    let close = line.iter().rposition(|byte| *byte == b')').ok_or_else(wrong)?;
    let pid = line.get(..open).map(<[u8]>::trim_ascii).and_then(number).ok_or_else(wrong)?;
    let comm = line.get(open + 1..close).ok_or_else(wrong)?;
    let mut fields = Fields::of(line.get(close + 1..).unwrap_or_default());
    let state = *fields.word()?.first().ok_or_else(wrong)?;
    let ppid = fields.number()?;
    fields.skip(4)?; // process group, session, terminal, its group
    let flags = fields.number()?;
    fields.skip(4)?; // faults
    let (user_ticks, system_ticks) = (fields.number()?, fields.number()?);
    let (children_user_ticks, children_system_ticks) = (fields.number()?, fields.number()?);
    fields.skip(2)?; // priority, nice
    let threads = fields.number()?;
    fields.skip(1)?; // of a timer that is no more
    Ok(ProcessStat {
        pid,
        comm,
        state: State::of(state),
        ppid,
        flags,
        user_ticks,
        system_ticks,
        children_user_ticks,
        children_system_ticks,
        threads,
        start_ticks: fields.number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &[u8] =
        b"1124 (cat) R 1116 1117 8854 0 -1 4194304 99 1 2 3 44 55 6 7 20 0 8 0 219187 \
        3133440 382 18446744073709551615 93915383660544 0\n";

    #[test]
    fn a_line() {
        let expected = ProcessStat {
            pid: 1124,
            comm: b"cat",
            state: State::Running,
            ppid: 1116,
            flags: 4_194_304,
            user_ticks: 44,
            system_ticks: 55,
            children_user_ticks: 6,
            children_system_ticks: 7,
            threads: 8,
            start_ticks: 219_187,
        };
        assert_eq!(process_stat(LINE), Ok(expected));
        let text = String::from_utf8(LINE.to_vec()).unwrap();
        for name in ["", ")", "a b", "x) R 1 (", "\n", "(("] {
            let line = text.replace("cat", name);
            let stat = process_stat(line.as_bytes()).unwrap();
            assert_eq!(stat, ProcessStat { comm: name.as_bytes(), ..expected });
        }
        let traced = text.replace(") R", ") t");
        assert_eq!(process_stat(traced.as_bytes()).unwrap().state, State::Traced);
    }

    #[test]
    fn every_truncated_text_is_rejected() {
        for cut in 0..LINE.len() {
            assert!(process_stat(&LINE[..cut]).is_err(), "{cut}");
        }
        for line in ["1 cat R 1\n", "1 )cat( R 1\n", "x (cat) R 1 1 1 1 1 1\n", "1 (cat)\n"] {
            assert!(process_stat(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn every_letter() {
        for (letter, state) in
            [(b'S', State::Sleeping), (b'D', State::DiskSleep), (b'T', State::Stopped)]
        {
            assert_eq!(State::of(letter), state);
        }
        assert_eq!((State::of(b'Z'), State::of(b'X')), (State::Zombie, State::Dead));
        assert_eq!(State::of(b'I'), State::Other);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            process_stat(&bytes).ok();
        }

        #[test]
        fn no_change_of_a_byte_panics(place in 0..LINE.len(), byte in any::<u8>()) {
            let mut bytes = LINE.to_vec();
            bytes[place] = byte;
            process_stat(&bytes).ok();
        }
    }
}
