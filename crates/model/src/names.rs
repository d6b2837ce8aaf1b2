//! Names of devices, clusters, jobs and origins, checked at their creation.

use crate::is_unprintable;
use std::{fmt, num::NonZeroI64, str::FromStr, sync::Arc};

/// Longest name of a device, a cluster or an origin, in bytes: a host name has at most 253.
pub const NAME_BYTES_MAX: usize = 253;

/// Longest name, and longest text of labels, in rows that other programs write into a database, in bytes.
pub const FOREIGN_BYTES_MAX: usize = 16 << 10;

/// Pattern of the name of a source or of an event.
pub const WORD: &str = "^[a-z0-9_]{1,64}$";

/// Returns whether a text matches [`WORD`].
pub fn is_word(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=64).contains(&text.len()) && text.bytes().all(letter)
}

/// Why a text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// An empty name.
    #[error("the {0} name is empty")]
    Empty(&'static str),
    /// More than [`NAME_BYTES_MAX`].
    #[error("the {0} name of {1} bytes is too long: {NAME_BYTES_MAX} at most")]
    TooLong(&'static str, usize),
    /// It starts like a command option or a hidden file.
    #[error("the {0} name `{1}` begins with `-` or `.`")]
    Start(&'static str, String),
    /// An unprintable character, or one that the kind of name forbids.
    #[error("the {what} name `{name}` has the character {bad:?}; {allowed}")]
    Character {
        /// Kind of name.
        what: &'static str,
        /// The name, escaped.
        name: String,
        /// The first character that is not allowed.
        bad: char,
        /// The allowed characters.
        allowed: &'static str,
    },
    /// Not a positive number.
    #[error("`{0}` is not a job ID; job IDs are 1 to 9223372036854775807")]
    Job(String),
}

fn check(
    what: &'static str,
    name: &str,
    allowed: &'static str,
    ok: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty(what));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong(what, name.len()));
    }
    let escaped = || name.escape_debug().to_string();
    if name.starts_with(['-', '.']) {
        return Err(NameError::Start(what, escaped()));
    }
    match name.chars().find(|c| !ok(*c)) {
        Some(bad) => Err(NameError::Character { what, name: escaped(), bad, allowed }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $allowed:literal, $ok:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks a name.
            ///
            /// # Errors
            /// It is empty, longer than [`NAME_BYTES_MAX`], begins with `-` or `.`, or has a character that is not
            /// allowed.
            pub fn new(name: &str) -> Result<Self, NameError> {
                check($what, name, $allowed, $ok)?;
                Ok(Self(Arc::from(name)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }
    };
}

name! {
    /// Name of a device, as given by the site: `node-1`, `pdu-3-port7`. A node's name is its host name up
    /// to the first dot.
    DeviceId, "device", "any printable ones but `,` and `/`",
    |c: char| !is_unprintable(c) && !matches!(c, ',' | '/')
}

name! {
    /// The scheduler or other source of job IDs: `oar`, `slurm`, or `local` for `jobmeter run`.
    ClusterId, "cluster", "letters, digits, `_`, `-` and `.`",
    |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

name! {
    /// The sender of batches: an agent, a poller, a user's push. An agent's origin is its device's name.
    Origin, "origin", "any printable ones", |c: char| !is_unprintable(c)
}

impl DeviceId {
    /// A device of rows that another program wrote into a database. It may have any characters; `None` if it is longer than
    /// [`FOREIGN_BYTES_MAX`].
    pub fn foreign(name: &str) -> Option<Self> {
        (name.len() <= FOREIGN_BYTES_MAX).then(|| Self(Arc::from(name)))
    }

    /// A device as lists show it: by its own name, or by one of rows that another program wrote into a database.
    ///
    /// # Errors
    /// It is longer than [`FOREIGN_BYTES_MAX`], or has a NUL, which no database stores.
    pub fn listed(name: &str) -> Result<Self, NameError> {
        if name.contains('\0') {
            let (what, allowed) = ("device", "any ones but NUL");
            let name = name.escape_debug().to_string();
            return Err(NameError::Character { what, name, bad: '\0', allowed });
        }
        Self::foreign(name).ok_or(NameError::TooLong("device", name.len()))
    }
}

impl Origin {
    /// The origin of one `jobmeter run` that sends its samples itself: `node-1/run-7`.
    pub fn of_run(device: &DeviceId, id: JobId) -> Result<Self, NameError> {
        Self::new(&format!("{device}/run-{id}"))
    }

    /// The device and the local job of such an origin; its samples end with the job. Accepts only the text
    /// of [`Self::of_run`]: otherwise one job could have any number of origins, such as `run-07` and
    /// `run-+7`.
    pub fn as_run(&self) -> Option<(&str, JobId)> {
        let (device, text) = self.as_str().rsplit_once("/run-")?;
        let id = text.parse().ok().and_then(JobId::new)?;
        (!device.is_empty() && id.to_string() == text).then_some((device, id))
    }
}

impl Origin {
    /// The origin of a group of a poller's devices: `poller-NAME/group-17`.
    ///
    /// # Errors
    /// The name of the poller is too long.
    pub fn of_poller_group(poller: &DeviceId, group: usize) -> Result<Self, NameError> {
        Self::new(&format!("poller-{poller}/group-{group}"))
    }

    /// The poller of such an origin. Accepts only the text of [`Self::of_poller_group`].
    pub fn as_poller_group(&self) -> Option<&str> {
        let (name, text) = self.as_str().strip_prefix("poller-")?.rsplit_once("/group-")?;
        let is_number = text.parse::<usize>().is_ok_and(|number| number.to_string() == text);
        (!name.is_empty() && is_number).then_some(name)
    }

    /// Whether it is such an origin. Its devices are nodes only if jobs have allocations of them.
    pub fn is_poller_group(&self) -> bool {
        self.as_poller_group().is_some()
    }
}

/// The beginning of the name of the poller that receives the messages of Colmet's nodes of a cluster.
const COLMET: &str = "colmet-";

impl Origin {
    /// The cluster of an origin of such a poller: `poller-colmet-CLUSTER/group-17`.
    pub fn as_colmet_group(&self) -> Option<&str> {
        self.as_poller_group()?.strip_prefix(COLMET).filter(|cluster| !cluster.is_empty())
    }
}

/// The end of the name of an origin of inserted rows.
const ROWS: &str = "/rows";

impl Origin {
    /// The origin of rows that a token of scope `push:NAME` inserts: `push-NAME/rows`; without a name `push/rows`.
    ///
    /// # Errors
    /// The name is too long.
    pub fn of_push(name: Option<&DeviceId>) -> Result<Self, NameError> {
        Self::new(&name.map_or_else(|| format!("push{ROWS}"), |name| format!("push-{name}{ROWS}")))
    }

    /// The origin of rows that a user inserts: `user-1000/rows`.
    pub fn of_user_push(uid: u32) -> Self {
        Self(Arc::from(format!("user-{uid}{ROWS}")))
    }

    /// The origin of rows that callers on a node insert, whose users are unknown: `node-node-1/rows`.
    ///
    /// # Errors
    /// The name is too long.
    pub fn of_node_push(node: &DeviceId) -> Result<Self, NameError> {
        Self::new(&format!("node-{node}{ROWS}"))
    }

    /// Whether it is an origin of inserted rows. Only the server sends as such an origin.
    pub fn is_push(&self) -> bool {
        let sender = self.as_str().strip_suffix(ROWS);
        sender.is_some_and(|sender| sender == "push" || sender.starts_with("push-"))
            || self.is_user_push()
    }

    /// Whether it is the origin of rows that a user inserts, or unknown users of a node.
    pub fn is_user_push(&self) -> bool {
        self.as_user_push().is_some() || self.is_node_push()
    }

    /// The user who inserts rows with this origin.
    pub fn as_user_push(&self) -> Option<u32> {
        let text = self.as_str().strip_suffix(ROWS)?.strip_prefix("user-")?;
        text.parse().ok().filter(|uid: &u32| uid.to_string() == text)
    }

    /// Whether it is the origin of rows that unknown users of a node insert.
    pub fn is_node_push(&self) -> bool {
        let sender = self.as_str().strip_suffix(ROWS);
        let node = sender.and_then(|sender| sender.strip_prefix("node-"));
        node.is_some_and(|node| DeviceId::new(node).is_ok())
    }

    /// Whether it is an origin of an ordinary user: a command of `jobmeter run`, or inserted rows.
    pub fn is_of_user(&self) -> bool {
        self.as_run().is_some() || self.is_user_push()
    }
}

impl ClusterId {
    /// The cluster of jobs that `jobmeter run` starts.
    pub const LOCAL: &'static str = "local";

    /// The cluster [`Self::LOCAL`].
    pub fn local() -> Self {
        Self(Arc::from(Self::LOCAL))
    }

    /// Whether a reader takes the name for [`Self::LOCAL`]: no scheduler's cluster has it, in any case of letters.
    pub fn reads_as_local(&self) -> bool {
        self.0.eq_ignore_ascii_case(Self::LOCAL)
    }
}

/// A scheduler's job ID, 1 to [`i64::MAX`]. Each array task has its own; Colmet's job 0, "the node", is not
/// a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(NonZeroI64);

impl JobId {
    /// A job ID, if the number is positive.
    pub fn new(id: i64) -> Option<Self> {
        NonZeroI64::new(id).filter(|id| id.get() > 0).map(Self)
    }

    /// The number.
    pub const fn get(self) -> i64 {
        self.0.get()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let id = digits.then(|| text.parse().ok()).flatten();
        id.and_then(Self::new).ok_or_else(|| NameError::Job(text.to_owned()))
    }
}

/// A job: its cluster and its ID. Part of a series, so that jobs of two schedulers with the same ID never
/// merge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey {
    /// The cluster.
    pub cluster: ClusterId,
    /// The job ID.
    pub id: JobId,
}

/// `slurm:1234`.
impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.cluster, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_pollers_have_names_that_no_agent_has() {
        let poller = DeviceId::new("one").unwrap();
        let group = Origin::of_poller_group(&poller, 17).unwrap();
        assert_eq!((group.as_poller_group(), group.is_poller_group()), (Some("one"), true));
        for name in ["poller-one", "one/group-1", "poller-/group-1", "poller-a/group-01", "n1"] {
            assert!(!Origin::new(name).unwrap().is_poller_group(), "{name}");
        }
    }

    #[test]
    fn origins_of_inserted_rows() {
        let name = DeviceId::new("lab").unwrap();
        for (origin, text, is_of_user) in [
            (Origin::of_push(Some(&name)).unwrap(), "push-lab/rows", false),
            (Origin::of_push(None).unwrap(), "push/rows", false),
            (Origin::of_user_push(1000), "user-1000/rows", true),
            (Origin::of_node_push(&name).unwrap(), "node-lab/rows", true),
        ] {
            assert_eq!((origin.as_str(), origin.is_push()), (text, true));
            assert_eq!((origin.is_user_push(), origin.is_of_user()), (is_of_user, is_of_user));
        }
        for name in [
            "push",
            "rows",
            "/rows",
            "n1/rows",
            "user-/rows",
            "user-07/rows",
            "user-x/rows",
            "node-/rows",
            "node-a/b/rows",
        ] {
            assert!(!Origin::new(name).unwrap().is_push(), "{name}");
        }
        assert!(Origin::new("n1/run-7").unwrap().is_of_user());
    }

    #[test]
    fn names_are_checked() {
        assert!(DeviceId::new("node-1.site.example").is_ok());
        let long = "x".repeat(254);
        for wrong in [
            "",
            "a,b",
            "a\nb",
            "a/b",
            "-x",
            "..",
            ".x",
            "a\u{9b}",
            "a\u{202e}b",
            "a\u{200b}",
            &long,
        ] {
            assert!(DeviceId::new(wrong).is_err(), "{wrong:?}");
        }
        assert!(Origin::new("n1/run-7").is_ok() && Origin::new("-n1/run-7").is_err());
        assert!(ClusterId::new("slurm").is_ok());
        assert!(ClusterId::new("a:b").is_err());
        assert_eq!(ClusterId::local().as_str(), "local");
    }

    #[test]
    fn origins_of_runs() {
        let run = |origin: &str| {
            let origin = Origin::new(origin).unwrap();
            origin.as_run().map(|(device, id)| (device.to_owned(), id.get()))
        };
        assert_eq!(run("n1/run-7"), Some(("n1".to_owned(), 7)));
        assert_eq!(run("a/run-1/run-7"), Some(("a/run-1".to_owned(), 7)));
        for other in
            ["n1", "n1/run-", "n1/run-0", "n1/run-x", "run-7", "/run-7", "n1/run-07", "n1/run-+7"]
        {
            assert_eq!(run(other), None, "{other}");
        }
        let device = DeviceId::new("n1").unwrap();
        let origin = Origin::of_run(&device, JobId::new(7).unwrap()).unwrap();
        assert_eq!(origin.as_str(), "n1/run-7");
    }

    #[test]
    fn job_ids_are_positive() {
        assert_eq!("123".parse().map(JobId::get), Ok(123));
        for text in ["0", "-1", "+1", "", "1.0", "9223372036854775808", "abc"] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
    }
}
