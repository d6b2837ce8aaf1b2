//! Status of the parts of a source. The log reports each change, not each reading.

use sources::{PartState, SourceError};

/// Status of a part when it was last logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoggedStatus {
    Ok,
    Absent,
    Denied,
    Broken,
}

impl LoggedStatus {
    const fn of(state: &PartState) -> Self {
        match state {
            PartState::Ok => Self::Ok,
            PartState::Not(SourceError::Absent(_)) => Self::Absent,
            PartState::Not(SourceError::Denied { .. }) => Self::Denied,
            PartState::Not(SourceError::Broken(_)) => Self::Broken,
        }
    }
}

/// The parts of a source with their logged status.
#[derive(Debug, Default)]
pub(crate) struct PartStatuses(Vec<(&'static str, PartState)>);

impl PartStatuses {
    /// Logs the parts with a changed status. A part that this machine lacks is a warning only if the source's
    /// options are not the defaults.
    pub(crate) fn log_changes(
        &mut self,
        source: &str,
        parts: &[(&'static str, PartState)],
        has_own_options: impl Fn() -> bool,
    ) {
        for (place, reported @ (part, state)) in parts.iter().enumerate() {
            let before = match self.0.get_mut(place) {
                Some(old) if old == reported => continue,
                Some(old) => Some(LoggedStatus::of(&std::mem::replace(old, reported.clone()).1)),
                None => {
                    self.0.push(reported.clone());
                    None
                }
            };
            if before == Some(LoggedStatus::of(state)) {
                continue;
            }
            match state {
                PartState::Ok if before.is_some() => log::info!("{source}/{part} works again"),
                PartState::Ok => {}
                PartState::Not(error @ SourceError::Absent(_)) if !has_own_options() => {
                    log::info!("{source}/{part} is {error}");
                }
                PartState::Not(error) => log::warn!("{source}/{part} is {error}"),
            }
        }
    }

    /// Returns the parts that are absent, denied or broken, with the error.
    pub(crate) fn wrong(&self) -> impl Iterator<Item = (&'static str, &SourceError)> {
        self.0.iter().filter_map(|(part, state)| match state {
            PartState::Ok => None,
            PartState::Not(error) => Some((*part, error)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_part_is_logged_once() {
        let mut parts = PartStatuses::default();
        let absent = |why: &str| PartState::Not(SourceError::absent(why.to_owned()));
        parts.log_changes("x", &[("a", PartState::Ok), ("b", absent("1"))], || false);
        assert_eq!(parts.0, [("a", PartState::Ok), ("b", absent("1"))]);
        parts.log_changes(
            "x",
            &[("a", absent("2")), ("b", absent("3")), ("c", PartState::Ok)],
            || true,
        );
        assert_eq!(parts.0, [("a", absent("2")), ("b", absent("3")), ("c", PartState::Ok)]);
        assert_eq!(parts.wrong().count(), 2);
        let denied = SourceError::denied("/a", "CAP_X");
        parts.log_changes("x", &[("a", PartState::Not(denied.clone()))], || true);
        assert_eq!(parts.wrong().next(), Some(("a", &denied)));
    }
}
