//! Job names as people write them: `[CLUSTER:]ID`.

use model::{ClusterId, JobId};
use std::{fmt, str::FromStr};

/// Maximum length of a job ID as text, in bytes. The wire protocol has the same limit.
const DISPLAY_ID_BYTES_MAX: usize = 64;

/// A job name as a person writes it: `42`, `123_4`, `slurm:42`. [`crate::Registry::resolve`] finds the
/// job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobName {
    /// The cluster, if given.
    pub cluster: Option<ClusterId>,
    /// The job ID, or the scheduler's notation for it.
    pub display_id: Box<str>,
}

/// The text is not a job name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a job; write its ID, such as 42, 123_4 or slurm:42")]
pub struct JobNameError(pub String);

impl JobName {
    /// Creates a name from a job ID without a cluster.
    pub fn number(id: JobId) -> Self {
        Self { cluster: None, display_id: id.to_string().into() }
    }

    /// Returns the numeric job ID; `None` for notations such as `123_4`.
    pub fn id(&self) -> Option<JobId> {
        self.display_id.parse().ok()
    }
}

impl FromStr for JobName {
    type Err = JobNameError;

    fn from_str(text: &str) -> Result<Self, JobNameError> {
        let wrong = || JobNameError(text.chars().take(100).collect());
        let (cluster, display_id) = match text.split_once(':') {
            Some((cluster, rest)) => (Some(ClusterId::new(cluster).map_err(|_| wrong())?), rest),
            None => (None, text),
        };
        let ok = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'+' | b'.' | b'-');
        let starts = display_id.bytes().next().is_some_and(|first| first.is_ascii_digit());
        if !starts || display_id.len() > DISPLAY_ID_BYTES_MAX || !display_id.bytes().all(ok) {
            return Err(wrong());
        }
        Ok(Self { cluster, display_id: display_id.into() })
    }
}

/// Writes the form that `FromStr` reads: `slurm:123_4`.
impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cluster {
            Some(cluster) => write!(f, "{cluster}:{}", self.display_id),
            None => f.write_str(&self.display_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_jobs() {
        for (text, cluster, number) in [
            ("42", None, Some(42)),
            ("slurm:42", Some("slurm"), Some(42)),
            ("123_4", None, None),
            ("oar-2:9+1", Some("oar-2"), None),
        ] {
            let name: JobName = text.parse().unwrap();
            assert_eq!(name.cluster.as_ref().map(ClusterId::as_str), cluster);
            assert_eq!(name.id().map(JobId::get), number);
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn what_names_no_job() {
        let long = "1".repeat(65);
        for text in ["", ":", "a:", ":4", "a b:4", "-4", "x", "4 2", "1'2", "a:b:4", &long] {
            assert!(text.parse::<JobName>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            if let Ok(name) = text.parse::<JobName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
