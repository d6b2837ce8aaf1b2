//! Why a source has no value: absent, denied or broken.

use kernel::ReadError;
use std::borrow::Cow;

/// Why a source, or a part of it, has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// This machine does not have it. Logged once; not an error.
    #[error("absent: {0}")]
    Absent(Cow<'static, str>),
    /// It exists, but the agent may not read it. Logged once, with the permission to grant.
    #[error("denied: {what}; grant {grant}")]
    Denied {
        /// The file or call that was denied.
        what: Cow<'static, str>,
        /// The capability, group or sysctl that permits it.
        grant: Cow<'static, str>,
    },
    /// It exists, but its content is invalid. Counted, and logged at most once a minute.
    #[error("broken: {0}")]
    Broken(Cow<'static, str>),
}

impl SourceError {
    /// A source or part that this machine does not have.
    pub fn absent(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Absent(what.into())
    }

    /// A file or call that the agent may not use, and the permission that it needs.
    pub fn denied(what: impl Into<Cow<'static, str>>, grant: impl Into<Cow<'static, str>>) -> Self {
        Self::Denied { what: what.into(), grant: grant.into() }
    }

    /// Invalid content.
    pub fn broken(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Broken(what.into())
    }

    /// Appends text to the subject of the error.
    pub(crate) fn with(self, more: &str) -> Self {
        match self {
            Self::Absent(what) => Self::Absent((what.into_owned() + more).into()),
            Self::Denied { what, grant } => {
                Self::Denied { what: (what.into_owned() + more).into(), grant }
            }
            Self::Broken(what) => Self::Broken((what.into_owned() + more).into()),
        }
    }

    /// `absent`, `denied` or `broken`.
    pub const fn state(&self) -> &'static str {
        match self {
            Self::Absent(_) => "absent",
            Self::Denied { .. } => "denied",
            Self::Broken(_) => "broken",
        }
    }
}

/// Converts a file's error: `?` keeps the difference between absent, denied and broken.
impl From<ReadError> for SourceError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Absent { path } => Self::Absent(format!("{path}: not there").into()),
            ReadError::Denied { path } => {
                Self::denied(path, "root, or CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE")
            }
            ReadError::Failed { .. } => Self::Broken(error.to_string().into()),
        }
    }
}

/// Maximum number of errors of one kind that are named; further ones are counted.
const NAMED_MAX: usize = 8;

/// Errors of several parts of one source, combined into one. It keeps the three kinds apart, and lists
/// each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    absent: Failures,
    denied: Failures,
    grants: Vec<Cow<'static, str>>,
    broken: Failures,
}

/// Failures of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Failures {
    named: Vec<Cow<'static, str>>,
    more: usize,
}

impl Errors {
    pub(crate) fn push(&mut self, error: SourceError) {
        match error {
            SourceError::Absent(what) => self.absent.add(what),
            SourceError::Denied { what, grant } => {
                self.denied.add(what);
                if !self.grants.contains(&grant) && self.grants.len() < NAMED_MAX {
                    self.grants.push(grant);
                }
            }
            SourceError::Broken(what) => self.broken.add(what),
        }
    }

    /// Whether there is no error.
    pub(crate) fn is_empty(&self) -> bool {
        [&self.absent, &self.denied, &self.broken].iter().all(|failures| failures.named.is_empty())
    }

    /// Combines all errors; `None` if there is none. Denied comes first, because an administrator can grant
    /// it; then broken, then absent.
    pub(crate) fn into_one(self) -> Option<SourceError> {
        let Self { absent, denied, grants, broken } = self;
        let also = |name: &str, failures: &Failures| match failures.named.is_empty() {
            true => String::new(),
            false => format!("; {name}: {}", failures.words("; ")),
        };
        if !denied.named.is_empty() {
            let others = also("broken", &broken) + &also("absent", &absent);
            let grant = grants.join("; ") + &others;
            return Some(SourceError::denied(denied.words(", "), grant));
        }
        if !broken.named.is_empty() {
            let what = broken.words("; ") + &also("absent", &absent);
            return Some(SourceError::broken(what));
        }
        (!absent.named.is_empty()).then(|| SourceError::absent(absent.words("; ")))
    }
}

impl Failures {
    fn add(&mut self, what: Cow<'static, str>) {
        match self.named.len() {
            _ if self.named.contains(&what) => {}
            ..NAMED_MAX => self.named.push(what),
            _ => self.more += 1,
        }
    }

    fn words(&self, between: &str) -> String {
        let named = self.named.join(between);
        match self.more {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_errors_combine_into_one_that_names_each_by_kind() {
        let mut errors = Errors::default();
        assert!(errors.is_empty());
        assert_eq!(errors.clone().into_one(), None);
        errors.push(SourceError::absent("no a"));
        assert_eq!(errors.clone().into_one(), Some(SourceError::absent("no a")));
        errors.push(SourceError::broken("b: nonsense"));
        let text = errors.clone().into_one().unwrap().to_string();
        assert_eq!(text, "broken: b: nonsense; absent: no a");
        errors.push(SourceError::denied("/c", "CAP_X"));
        errors.push(SourceError::denied("/d", "CAP_X"));
        let text = errors.into_one().unwrap().to_string();
        assert_eq!(text, "denied: /c, /d; grant CAP_X; broken: b: nonsense; absent: no a");
    }

    #[test]
    fn of_many_errors_eight_are_named_and_the_rest_counted() {
        let mut errors = Errors::default();
        for number in 0..NAMED_MAX + 3 {
            errors.push(SourceError::denied(format!("/{number}"), "CAP_X"));
        }
        let text = errors.into_one().unwrap().to_string();
        assert_eq!(text, "denied: /0, /1, /2, /3, /4, /5, /6, /7 and 3 more; grant CAP_X");
    }
}
