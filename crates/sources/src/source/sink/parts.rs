//! States of the separate parts of a source.

use super::Sink;
use crate::SourceError;

/// The state of a part of a source, reported separately: `exits`, `io`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartState {
    /// The part is read.
    Ok,
    /// The part has no values, or not all, for this reason.
    Not(SourceError),
}

impl Sink {
    /// Sets the state of a part.
    pub fn part(&mut self, name: &'static str, state: PartState) {
        match self.parts.iter_mut().find(|(part, _)| *part == name) {
            Some((_, old)) if *old == state => {}
            Some((_, old)) => *old = state,
            None => self.parts.push((name, state)),
        }
    }

    /// Sets the state of a part by its error, if any; allocates nothing if the state is unchanged.
    pub(crate) fn part_as(&mut self, name: &'static str, error: Option<&SourceError>) {
        let is_it = |state: &PartState| match (state, error) {
            (PartState::Ok, None) => true,
            (PartState::Not(old), Some(now)) => old == now,
            _ => false,
        };
        if !self.parts.iter().any(|(part, state)| *part == name && is_it(state)) {
            self.part(name, error.cloned().map_or(PartState::Ok, PartState::Not));
        }
    }

    /// All parts reported so far, and their states.
    pub fn parts(&self) -> &[(&'static str, PartState)] {
        &self.parts
    }
}
