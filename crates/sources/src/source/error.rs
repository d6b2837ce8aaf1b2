//! Why a source gave nothing: absent, denied and broken are three things.

use kernel::ReadError;
use std::borrow::Cow;

/// Why a source, or a part of it, gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// This machine does not have it: said once, and no error.
    #[error("absent: {0}")]
    Absent(Cow<'static, str>),
    /// It is here, and closed to us: said once, with what to grant.
    #[error("denied: {what}; grant {grant}")]
    Denied {
        /// What was refused.
        what: Cow<'static, str>,
        /// The capability, group or sysctl that opens it.
        grant: Cow<'static, str>,
    },
    /// It is here and makes no sense: counted, and said at most once a minute.
    #[error("broken: {0}")]
    Broken(Cow<'static, str>),
}

impl SourceError {
    /// Something this machine does not have.
    pub fn absent(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Absent(what.into())
    }

    /// Something closed to us, and what opens it.
    pub fn denied(what: impl Into<Cow<'static, str>>, grant: impl Into<Cow<'static, str>>) -> Self {
        Self::Denied { what: what.into(), grant: grant.into() }
    }

    /// Something that makes no sense.
    pub fn broken(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Broken(what.into())
    }

    /// The same with something added to what it is about.
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

/// A file's error as the source's: `?` keeps the difference between absent, denied and broken.
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

/// Most things of one kind that are named where several were refused; the rest is counted.
const NAMED_MAX: usize = 8;

/// What was refused at several places of one source, as one error of it: none of the three kinds is told as
/// another one, and none hides another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    absent: Refused,
    denied: Refused,
    grants: Vec<Cow<'static, str>>,
    broken: Refused,
}

/// What was refused for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Refused {
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

    /// Whether nothing was refused.
    pub(crate) fn is_empty(&self) -> bool {
        [&self.absent, &self.denied, &self.broken].iter().all(|refused| refused.named.is_empty())
    }

    /// All of it; none where nothing was refused. What is closed comes before what is broken, as somebody can open
    /// it, and both before what is not there.
    pub(crate) fn into_one(self) -> Option<SourceError> {
        let Self { absent, denied, grants, broken } = self;
        let also = |name: &str, refused: &Refused| match refused.named.is_empty() {
            true => String::new(),
            false => format!("; {name}: {}", refused.words("; ")),
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

impl Refused {
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
    fn several_errors_are_one_that_names_each_by_its_kind() {
        let mut errors = Errors::default();
        assert!(errors.is_empty());
        assert_eq!(errors.clone().into_one(), None);
        errors.push(SourceError::absent("no a"));
        assert_eq!(errors.clone().into_one(), Some(SourceError::absent("no a")));
        errors.push(SourceError::broken("b: nonsense"));
        let told = errors.clone().into_one().unwrap().to_string();
        assert_eq!(told, "broken: b: nonsense; absent: no a");
        errors.push(SourceError::denied("/c", "CAP_X"));
        errors.push(SourceError::denied("/d", "CAP_X"));
        let told = errors.into_one().unwrap().to_string();
        assert_eq!(told, "denied: /c, /d; grant CAP_X; broken: b: nonsense; absent: no a");
    }

    #[test]
    fn however_many_are_refused_few_are_named_and_all_are_counted() {
        let mut errors = Errors::default();
        for number in 0..NAMED_MAX + 3 {
            errors.push(SourceError::denied(format!("/{number}"), "CAP_X"));
        }
        let told = errors.into_one().unwrap().to_string();
        assert_eq!(told, "denied: /0, /1, /2, /3, /4, /5, /6, /7 and 3 more; grant CAP_X");
    }
}
