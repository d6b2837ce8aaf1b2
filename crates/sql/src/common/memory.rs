//! Memory of all statements, and each statement's share of it.

use parking_lot::Mutex;
use std::sync::Arc;

/// The memory for all statements together. A statement gets half of the free memory. It leaves at least the
/// smallest share for each other statement that may run beside it.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    all: usize,
    smallest: usize,
    /// Free bytes, and the number of running statements.
    state: Arc<Mutex<(usize, usize)>>,
    statements_max: usize,
}

impl Memory {
    pub(crate) fn new(all: usize, statements_max: usize) -> Self {
        let statements_max = statements_max.max(1);
        let smallest = all / statements_max.saturating_mul(2);
        Self { all, smallest, state: Arc::new(Mutex::new((all, 0))), statements_max }
    }

    /// Grants a share to one statement.
    pub(crate) fn grant(&self) -> Grant {
        let mut state = self.state.lock();
        let (free, running) = *state;
        let others = self.statements_max.saturating_sub(running).saturating_sub(1);
        let spared = free.saturating_sub(others.saturating_mul(self.smallest));
        let half = (free / 2).min(spared).max(self.smallest).min(free);
        let bytes = if others == 0 { free } else { half };
        *state = (free - bytes, running + 1);
        Grant { memory: self.clone(), bytes }
    }

    /// Memory granted now.
    pub(crate) fn granted(&self) -> usize {
        self.all - self.state.lock().0
    }
}

/// Share of one statement. Dropping it frees the memory.
#[derive(Debug)]
pub(crate) struct Grant {
    memory: Memory,
    bytes: usize,
}

impl Grant {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut state = self.memory.state.lock();
        *state = (state.0 + self.bytes, state.1.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_half_of_the_rest_and_the_last_no_nothing() {
        let memory = Memory::new(1024, 4);
        let mut grants: Vec<Grant> = (0..4).map(|_| memory.grant()).collect();
        assert_eq!(grants.iter().map(Grant::bytes).collect::<Vec<_>>(), [512, 256, 128, 128]);
        assert_eq!(memory.granted(), 1024);
        // In any order of ends, 4 statements never exceed the total, and each gets at least an eighth of it.
        for turn in 0..100 {
            drop(grants.swap_remove(turn * 7 % 4));
            grants.push(memory.grant());
            let sum: usize = grants.iter().map(Grant::bytes).sum();
            assert!(sum <= 1024 && grants.iter().all(|grant| grant.bytes() >= 128), "{grants:?}");
        }
        grants.clear();
        assert_eq!((memory.granted(), Memory::new(1024, 1).grant().bytes()), (0, 1024));
    }
}
