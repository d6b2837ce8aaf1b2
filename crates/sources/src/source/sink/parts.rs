//! Parts of a source that stand apart: how each stands.

use super::Sink;
use crate::SourceError;

/// The state of a part of a source that stands apart from the rest: `exits`, `io`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartState {
    /// It is read.
    Ok,
    /// It gives nothing, or not all, for this reason.
    Not(SourceError),
}

impl Sink {
    /// Sets the state of a part of the source.
    pub fn part(&mut self, name: &'static str, state: PartState) {
        match self.parts.iter_mut().find(|(part, _)| *part == name) {
            Some((_, old)) if *old == state => {}
            Some((_, old)) => *old = state,
            None => self.parts.push((name, state)),
        }
    }

    /// The same, by what is refused of it, if anything is; asks for no memory where it stands so already.
    pub(crate) fn part_as(&mut self, name: &'static str, refused: Option<&SourceError>) {
        let is_it = |state: &PartState| match (state, refused) {
            (PartState::Ok, None) => true,
            (PartState::Not(old), Some(now)) => old == now,
            _ => false,
        };
        if !self.parts.iter().any(|(part, state)| *part == name && is_it(state)) {
            self.part(name, refused.cloned().map_or(PartState::Ok, PartState::Not));
        }
    }

    /// The parts that were ever told of, and their states.
    pub fn parts(&self) -> &[(&'static str, PartState)] {
        &self.parts
    }
}
