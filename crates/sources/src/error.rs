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
