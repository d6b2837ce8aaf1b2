//! Processor time of a job by command: ten commands by name, and the sum of the others.
//!
//! Time counts for the name that a task has when it is read or ends. The first report of a job names the
//! commands with the most time, with all their time. A command that is named later starts at zero; its
//! earlier time stays in the rest. A name remains for the life of the job, so that no counter ever falls.
//!
//! The sum of all entries is the job's own processor time. Its cgroup counts the use before a task's move into the job
//! was noticed: that counts in the rest. A task that moved to another job is read there later: what it used meanwhile
//! is taken off again, first from the rest, then from the commands with the largest growth.

use crate::task_attribution::comm::Comm;
use crate::task_attribution::saved::{Numbers, put};
use model::Timestamp;

/// Maximum number of named commands.
const NAMED_MAX: usize = 10;
/// Maximum number of unnamed commands with a known time; the smallest is replaced.
const CANDIDATES_MAX: usize = 16;
/// A command is named once it has used 1/50 of the job's time.
const SHARE: u64 = 50;

/// A command with its counter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Command {
    pub(super) comm: Comm,
    pub(super) ns: u64,
    /// The part of it that was reported.
    reported_ns: u64,
    /// Time at which its counter was zero; `None`: the start of the job's counters.
    pub(super) start: Option<Timestamp>,
}

/// The commands of a job.
#[derive(Debug)]
pub(super) struct Commands {
    named: Vec<Command>,
    /// Processor time of commands while they are unnamed.
    rest_ns: u64,
    /// The part of it that was reported.
    rest_reported_ns: u64,
    /// Parts of `rest_ns`.
    candidates: Vec<Command>,
    is_reported: bool,
}

impl Default for Commands {
    fn default() -> Self {
        Self {
            named: Vec::with_capacity(NAMED_MAX),
            rest_ns: 0,
            rest_reported_ns: 0,
            candidates: Vec::with_capacity(CANDIDATES_MAX),
            is_reported: false,
        }
    }
}

impl Commands {
    /// Adds processor time of a task with this name.
    pub(super) fn add(&mut self, name: &[u8; 16], ns: u64) {
        if ns == 0 {
            return;
        }
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let comm = Comm::of(name.get(..end).unwrap_or_default());
        if let Some(command) = self.named.iter_mut().find(|it| it.comm == comm) {
            command.ns = command.ns.saturating_add(ns);
            return;
        }
        self.rest_ns = self.rest_ns.saturating_add(ns);
        if let Some(command) = self.candidates.iter_mut().find(|it| it.comm == comm) {
            command.ns = command.ns.saturating_add(ns);
        } else if self.named.len() == NAMED_MAX {
            // No more commands are named.
        } else if self.candidates.len() < CANDIDATES_MAX {
            self.candidates.push(Command { comm, ns, ..Command::default() });
        } else if let Some(least) = self.candidates.iter_mut().min_by_key(|it| it.ns)
            && least.ns < ns
        {
            *least = Command { comm, ns, ..Command::default() };
        }
    }

    /// Names commands with much time; returns all named commands, and the rest in nanoseconds. Their sum is `whole_ns`,
    /// the processor time of the job.
    pub(super) fn report(&mut self, now: Timestamp, whole_ns: u64) -> (&[Command], u64) {
        let named_ns = self.named.iter().map(|it| it.ns).fold(0, u64::saturating_add);
        let all_ns = self.rest_ns.saturating_add(named_ns);
        while self.named.len() < NAMED_MAX
            && let Some(place) = (0..self.candidates.len())
                .max_by_key(|place| self.candidates.get(*place).map_or(0, |it| it.ns))
            && self.candidates.get(place).is_some_and(|it| it.ns.saturating_mul(SHARE) >= all_ns)
        {
            let command = self.candidates.swap_remove(place);
            if self.is_reported {
                self.named.push(Command { ns: 0, start: Some(now), ..command });
            } else {
                self.rest_ns = self.rest_ns.saturating_sub(command.ns);
                self.named.push(command);
            }
        }
        self.is_reported |= all_ns > 0;
        self.adjust(whole_ns);
        for command in &mut self.named {
            command.reported_ns = command.ns;
        }
        self.rest_reported_ns = self.rest_ns;
        (&self.named, self.rest_ns)
    }

    /// Makes the sum of all entries this one. No entry falls below its reported value.
    fn adjust(&mut self, whole_ns: u64) {
        let named_ns = self.named.iter().map(|it| it.ns).fold(0, u64::saturating_add);
        let all_ns = self.rest_ns.saturating_add(named_ns);
        self.rest_ns = self.rest_ns.saturating_add(whole_ns.saturating_sub(all_ns));
        let mut over_ns = all_ns.saturating_sub(whole_ns);
        let mut cut = |ns: &mut u64, reported_ns: u64| {
            let cut_ns = over_ns.min(ns.saturating_sub(reported_ns));
            *ns -= cut_ns;
            over_ns -= cut_ns;
            over_ns == 0
        };
        if cut(&mut self.rest_ns, self.rest_reported_ns) {
            return;
        }
        let mut by_growth: Vec<&mut Command> = self.named.iter_mut().collect();
        by_growth.sort_by_key(|it| std::cmp::Reverse(it.ns.saturating_sub(it.reported_ns)));
        for command in by_growth {
            if cut(&mut command.ns, command.reported_ns) {
                return;
            }
        }
    }

    /// Writes the state for the next start of the agent.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put(out, u64::from(self.is_reported));
        put(out, self.rest_ns);
        put(out, self.named.len().try_into().unwrap_or(0));
        for Command { comm, ns, start, .. } in &self.named {
            put(out, comm.as_str().len().try_into().unwrap_or(0));
            comm.as_str().bytes().for_each(|byte| put(out, u64::from(byte)));
            put(out, *ns);
            put(out, start.map_or(0, |start| u64::try_from(start.0).unwrap_or(0)));
        }
    }

    /// Reads the state of an earlier run; `None` if it is damaged.
    pub(super) fn restore(from: &mut Numbers<'_>) -> Option<Self> {
        let mut commands = Self { is_reported: from.take()? != 0, ..Self::default() };
        commands.rest_ns = from.take()?;
        commands.rest_reported_ns = commands.rest_ns;
        let count = usize::try_from(from.take()?).ok().filter(|count| *count <= NAMED_MAX)?;
        for _ in 0..count {
            let mut name = [0; 16];
            let length = usize::try_from(from.take()?).ok()?;
            for byte in name.get_mut(..length)? {
                *byte = from.take()?.try_into().ok()?;
            }
            let comm = Comm::of(name.get(..length)?);
            let ns = from.take()?;
            let start = match from.take()? {
                0 => None,
                start => Some(Timestamp(start.try_into().ok()?)),
            };
            commands.named.push(Command { comm, ns, reported_ns: ns, start });
        }
        Some(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn name(text: &[u8]) -> [u8; 16] {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text);
        name
    }

    #[test]
    fn a_command_that_is_named_later_starts_at_zero() {
        let mut commands = Commands::default();
        commands.add(&name(b"sh"), 10);
        commands.add(&name(b"a\n\x1b[m"), 90);
        let (named, rest) = commands.report(Timestamp(1), 100);
        let shown: Vec<_> = named.iter().map(|it| (it.comm.as_str(), it.ns, it.start)).collect();
        // Control characters are replaced.
        assert_eq!((shown, rest), (vec![("a??[m", 90, None), ("sh", 10, None)], 0));
        commands.add(&name(b"later"), 40);
        let (named, rest) = commands.report(Timestamp(2), 140);
        assert_eq!((named[2].ns, named[2].start, rest), (0, Some(Timestamp(2)), 40));
        commands.add(&name(b"later"), 7);
        commands.add(&name(b"small"), 1);
        let (named, rest) = commands.report(Timestamp(3), 148);
        assert_eq!((named.len(), named[2].ns, rest), (3, 7, 41));
        let mut state = Vec::new();
        commands.save(&mut state);
        let mut restored = Commands::restore(&mut Numbers(&state)).unwrap();
        assert_eq!(restored.report(Timestamp(4), 148).1, 41);
        assert_eq!(restored.named[2].start, Some(Timestamp(2)));
        assert!(
            (0..state.len()).all(|end| Commands::restore(&mut Numbers(&state[..end])).is_none())
        );
    }

    #[test]
    fn the_sum_over_commands_is_the_time_of_the_job() {
        let sum = |commands: &mut Commands, whole| {
            let (named, rest) = commands.report(Timestamp(1), whole);
            (named.iter().map(|it| it.ns).collect::<Vec<_>>(), rest)
        };
        // A process that moved in had used 50 before that was noticed.
        let mut to = Commands::default();
        to.add(&name(b"solve"), 100);
        assert_eq!(sum(&mut to, 150), (vec![100], 50));
        // One that moved out is read later: what it used meanwhile belongs to the other job.
        let mut from = Commands::default();
        from.add(&name(b"solve"), 900);
        from.add(&name(b"sh"), 100);
        assert_eq!(sum(&mut from, 1000), (vec![900, 100], 0));
        from.add(&name(b"solve"), 170);
        from.add(&name(b"sh"), 10);
        from.add(&name(b"tiny"), 3);
        assert_eq!(sum(&mut from, 1020), (vec![910, 110], 0));
        assert_eq!(sum(&mut from, 1000), (vec![910, 110], 0), "no counter falls");
        from.add(&name(b"sh"), 30);
        assert_eq!(sum(&mut from, 1030), (vec![910, 120], 0));
    }

    proptest! {
                /// At most ten names; no counter falls; the sum is the total use.
        #[test]
        fn nothing_falls_and_nothing_is_lost(used in prop::collection::vec((0..40_u8, 0..1000_u64, any::<bool>(), 0..2000_u64), 1..300)) {
            let (mut commands, mut all, mut last) = (Commands::default(), 0, BTreeMap::new());
            let (mut rest_before, mut whole) = (0, 0);
            for (place, (of, ns, reports, of_job)) in used.into_iter().enumerate() {
                commands.add(&name(&[b'a', of]), ns);
                all += ns;
                if !reports {
                    continue;
                }
                let now = Timestamp(i64::try_from(place).unwrap());
                // Sometimes more than the tasks used, sometimes less, and never falling.
                whole = whole.max(all + of_job).saturating_sub(1000).max(whole);
                let (named, rest) = commands.report(now, whole);
                prop_assert!(named.len() <= NAMED_MAX && rest >= rest_before);
                rest_before = rest;
                prop_assert_eq!(named.iter().map(|it| it.ns).sum::<u64>() + rest, whole);
                for (place, command) in named.iter().enumerate() {
                    let before = last.insert(place, command.ns).unwrap_or(0);
                    prop_assert!(command.ns >= before);
                }
            }
        }
    }
}
