//! The token file: tokens for callers whom neither the kernel nor a certificate identifies.
//!
//! ```text
//! # one token a line: SCOPE[:NAME] TOKEN
//! agent:node-1 7sTn0k3Xq…                # appends batches of the origin node-1, and nothing else
//! agent        sha256:9f86d081884c7d65…  # appends batches of any origin
//! poller:lab   cG9sbGVyIG9m…             # appends batches of the groups of the poller `lab`, and nothing else
//! colmet:oar   Y29sbWV0IG9m…             # appends what Colmet's nodes send, with jobs of the cluster `oar`
//! push:lab     aW5zZXJ0IHJv…             # inserts rows of any device, and reads nothing; also without a name
//! user:ann     V2hhdCBhIGxv…             # reads what she may see, registers jobs of her own
//! read:ann     aHVzaCBodXNo…             # reads what she may see, and writes nothing
//! user         Qm9yaW5nIHRv…             # reads what belongs to no job
//! jobs:slurm   cHJvbG9ndWUg…             # tells of Slurm's jobs, as its prologue does, and reads nothing
//! jobs         ZXBpbG9ndWUg…             # tells of any scheduler's jobs, and reads nothing
//! staff        c3RhZmYgb25s…             # reads everything, and writes nothing; staff:NAME names who
//! admin        c2VjcmV0IHRv…             # may do everything but begin a job, which is a user's
//! QSB0b2tlbiBh…                          # as `agent`: the same file does for a server and its agents
//! ```
//!
//! A user is a name of `/etc/passwd` or a user ID. A token is 8 to 256 printable characters without blanks.
//! The file holds it as plain text, or as `sha256:` and the 64 hexadecimal digits of its SHA-256. Readers
//! of the file cannot use the hash as a token. Random tokens need no slower hash. The server keeps only the
//! SHA-256 in memory.
//!
//! `user_tokens`: tokens that users create. `json_web_tokens`: tokens that another program makes.

pub(crate) mod json_web_tokens;
pub(crate) mod user_tokens;

use crate::auth::caller::Rights;
use config::{SecretFileError, read_secret_file};
use kernel::user_files::uid_of;
use model::{ClusterId, DeviceId, Origin};
use ring::digest::{SHA256, digest};
use std::fmt;
use std::path::{Path, PathBuf};

/// Wrong lines that one run reports.
const ERRORS_MAX: usize = 100;
const TOKEN_BYTES_MIN: usize = 8;
const TOKEN_BYTES_MAX: usize = 256;

/// Scopes that a line may begin with.
const SCOPES: [&str; 9] =
    ["agent", "poller", "colmet", "push", "user", "read", "jobs", "staff", "admin"];

/// Error for the scopes `jobs:local` and `colmet:local`.
const OF_LOCAL: &str =
    "users report `local` jobs themselves; this scope needs a scheduler's cluster";

/// A SHA-256.
pub(crate) type Sha256 = [u8; 32];

/// A reason why a file of secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read, or other users could read or change it.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// A line is invalid.
    #[error("{}:{line}: {what}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The problem, without the secret.
        what: String,
    },
}

/// Tokens and their rights.
#[derive(Clone, Default)]
pub(crate) struct Tokens {
    known: Vec<(Sha256, Rights)>,
}

/// Shows the number of tokens, never their hashes.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("known", &self.known.len()).finish()
    }
}

impl Tokens {
    /// Reads a token file; `passwd` is the text of `/etc/passwd`.
    ///
    /// # Errors
    /// The file cannot be read, others could read or change it, or lines are invalid: all of them.
    pub(crate) fn read(path: &Path, passwd: &[u8]) -> Result<Self, Vec<SecretError>> {
        let text = read_secret_file(path).map_err(|error| vec![error.into()])?;
        let wrong = |(line, what)| SecretError::Line { path: path.to_owned(), line, what };
        Self::parse(&text, passwd).map_err(|errors| errors.into_iter().map(wrong).collect())
    }

    /// Parses the text of a token file. Returns all errors, each with its line, from 1.
    pub(crate) fn parse(text: &str, passwd: &[u8]) -> Result<Self, Vec<(usize, String)>> {
        let mut tokens = Self::default();
        let mut errors = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (scope, token) = line.split_once([' ', '\t']).unwrap_or(("agent", line));
            let form = |what| format!("{what}; a line is `SCOPE[:NAME] TOKEN`");
            let (rights, hash) = (rights(scope, passwd).map_err(form), hash(token.trim()));
            let is_known = |hash| tokens.known.iter().any(|(known, _)| same(known, hash));
            if hash.as_ref().is_ok_and(is_known) {
                errors.push((number, "duplicate of a token on an earlier line".to_owned()));
            }
            match (rights, hash) {
                (Ok(rights), Ok(hash)) => tokens.known.push((hash, rights)),
                (rights, hash) => {
                    let wrong = rights.err().into_iter().chain(hash.err());
                    errors.extend(wrong.map(|what| (number, what)));
                }
            }
            if errors.len() >= ERRORS_MAX {
                errors.push((number, "later lines were not checked".to_owned()));
                break;
            }
        }
        if errors.is_empty() { Ok(tokens) } else { Err(errors) }
    }

    /// Returns the rights of a token, in a time that does not depend on how much of the token is right.
    pub(crate) fn rights(&self, token: &str) -> Option<Rights> {
        let presented = sha256(token);
        let mut found = None;
        for (known, rights) in &self.known {
            if same(known, &presented) {
                found = Some(rights);
            }
        }
        found.cloned()
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

/// Parses the scope of a line into rights.
pub(crate) fn rights(scope: &str, passwd: &[u8]) -> Result<Rights, String> {
    let (scope, name) = match scope.split_once(':') {
        Some((scope, name)) => (scope, Some(name)),
        None => (scope, None),
    };
    let user = |name: &str| {
        let uid = name.parse().ok().or_else(|| uid_of(passwd, name));
        uid.ok_or_else(|| format!("no user `{name}` in /etc/passwd; use the user ID instead"))
    };
    if name == Some("") && SCOPES.contains(&scope) && scope != "admin" {
        return Err(format!("`{scope}:` without a name"));
    }
    match (scope, name) {
        ("agent", None) => Ok(Rights::Agent(None)),
        ("agent", Some(name)) => {
            let origin = Origin::new(name).map_err(|error| error.to_string())?;
            Ok(Rights::Agent(Some(origin)))
        }
        ("poller", None) => Err("`poller` needs a name: poller:NAME".to_owned()),
        ("poller", Some(name)) => Ok(Rights::Poller(sender_name(name)?)),
        ("colmet", None) => Err("`colmet` needs a cluster: colmet:CLUSTER".to_owned()),
        ("colmet", Some(name)) => Ok(Rights::Colmet(cluster(name)?)),
        ("push", None) => Ok(Rights::Push(None)),
        ("push", Some(name)) => Ok(Rights::Push(Some(sender_name(name)?))),
        ("user", None) => Ok(Rights::Guest),
        ("user", Some(name)) => Ok(Rights::User(user(name)?)),
        ("read", None) => Err("`read` needs a user: read:NAME".to_owned()),
        ("read", Some(name)) => Ok(Rights::Reading(user(name)?)),
        ("jobs", None) => Ok(Rights::JobReporter(None)),
        ("jobs", Some(name)) => Ok(Rights::JobReporter(Some(cluster(name)?))),
        ("staff", None) => Ok(Rights::Staff(None)),
        ("staff", Some(name)) => Ok(Rights::Staff(Some(user(name)?))),
        ("admin", None) => Ok(Rights::Admin(None)),
        ("admin", Some(_)) => Err("an admin has no name: write `admin`".to_owned()),
        _ => {
            let meant = config::nearest(scope, SCOPES);
            let meant = meant.map(|word| format!("; `{word}`?")).unwrap_or_default();
            Err(format!(
                "unknown scope; use agent, poller, colmet, push, user, read, jobs, staff or admin{meant}"
            ))
        }
    }
}

/// A scheduler's cluster.
fn cluster(name: &str) -> Result<ClusterId, String> {
    let cluster = ClusterId::new(name).map_err(|error| error.to_string())?;
    if cluster.reads_as_local() { Err(OF_LOCAL.to_owned()) } else { Ok(cluster) }
}

/// The name of a poller or of a program that inserts rows, which is a part of the names of its origins.
fn sender_name(name: &str) -> Result<DeviceId, String> {
    let name = DeviceId::new(name).map_err(|error| error.to_string())?;
    let longest = Origin::of_poller_group(&name, usize::MAX);
    longest.map(|_| name).map_err(|error| error.to_string())
}

fn hash(token: &str) -> Result<[u8; 32], String> {
    if let Some(hex) = token.strip_prefix("sha256:") {
        return unhex(hex).ok_or_else(|| "want 64 hexadecimal digits after `sha256:`".to_owned());
    }
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Err(format!(
            "the token has {} characters; {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}",
            token.len()
        ));
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("the token has a character that is a blank or not ASCII".to_owned());
    }
    Ok(sha256(token))
}

fn unhex(hex: &str) -> Option<[u8; 32]> {
    let digits = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(i * 2..i * 2 + 2)?, 16).ok()?;
    }
    digits.then_some(bytes)
}

pub(crate) fn sha256(text: impl AsRef<[u8]>) -> Sha256 {
    let mut bytes = [0; 32];
    // SHA-256 has 32 bytes, so `zip` drops nothing and leaves no byte unset.
    for (to, from) in bytes.iter_mut().zip(digest(&SHA256, text.as_ref()).as_ref()) {
        *to = *from;
    }
    bytes
}

/// The first digits of a token's SHA-256, which name the token in the audit log.
pub(crate) fn fingerprint(token: &str) -> String {
    sha256(token).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    const PASSWD: &[u8] = b"root:x:0:0::/:/bin/sh\nann:x:1000:1::/:\n\nbad\n";
    const TOKEN: &str = "correct-horse-battery";
    /// `printf correct-horse-battery | sha256sum`
    const HASH: &str = "62249369389075490555a758353aec61500c6218fa597252d52dc4bd0148f12d";

    #[test]
    fn each_scope() {
        let text = "# c\n\ngggggggggggggggggggg\nagent:node-1 aaaaaaaaaaaaaaaaaaaa\nagent\tbbbbbbbbbbbbbbbbbbbb\n\
                    user:ann  cccccccccccccccccccc\nuser:17 hhhhhhhhhhhhhhhhhhhh\nuser dddddddddddddddddddd\nadmin eeeeeeeeeeeeeeeeeeee\n\
                    read:ann iiiiiiiiiiiiiiiiiiii\nstaff jjjjjjjjjjjjjjjjjjjj\nstaff:5 kkkkkkkkkkkkkkkkkkkk\n\
                    jobs llllllllllllllllllll\njobs:oar-2 mmmmmmmmmmmmmmmmmmmm\n\
                    poller:lab nnnnnnnnnnnnnnnnnnnn\npush oooooooooooooooooooo\npush:lab pppppppppppppppppppp\n";
        let tokens = Tokens::parse(text, PASSWD).unwrap();
        let who = |letter: &str| tokens.rights(&letter.repeat(20));
        assert_eq!(who("a"), Some(Rights::Agent(Some(Origin::new("node-1").unwrap()))));
        assert_eq!(who("b"), Some(Rights::Agent(None)));
        assert_eq!(who("c"), Some(Rights::User(1000)));
        assert_eq!(who("d"), Some(Rights::Guest));
        assert_eq!(who("h"), Some(Rights::User(17)));
        assert_eq!(who("e"), Some(Rights::Admin(None)));
        assert_eq!(who("i"), Some(Rights::Reading(1000)));
        assert_eq!((who("j"), who("k")), (Some(Rights::Staff(None)), Some(Rights::Staff(Some(5)))));
        let lab = DeviceId::new("lab").unwrap();
        assert_eq!(who("n"), Some(Rights::Poller(lab.clone())));
        assert_eq!((who("o"), who("p")), (Some(Rights::Push(None)), Some(Rights::Push(Some(lab)))));
        let oar = ClusterId::new("oar-2").unwrap();
        let reports = (Some(Rights::JobReporter(None)), Some(Rights::JobReporter(Some(oar))));
        assert_eq!((who("l"), who("m")), reports);
        assert_eq!(who("g"), Some(Rights::Agent(None)));
        assert_eq!(who("f"), None);
        assert_eq!(tokens.rights(""), None);
    }

    #[test]
    fn a_hashed_token_is_known_and_its_hash_is_no_token() {
        let hex: String = sha256(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
        let tokens = Tokens::parse(&format!("admin sha256:{hex}"), PASSWD).unwrap();
        assert_eq!(tokens.rights(TOKEN), Some(Rights::Admin(None)));
        assert_eq!(tokens.rights(&hex), None);
        assert_eq!(tokens.rights(&format!("sha256:{hex}")), None);
        assert_eq!(hex, HASH);
    }

    #[test]
    fn errors_are_reported_with_their_line_and_without_the_secret() {
        for (text, want) in [
            ("admin", "5 characters"),
            ("\nagnet:n aaaaaaaaaaaaaaaaaaaa", "`agent`?"),
            ("admin:x aaaaaaaaaaaaaaaaaaaa", "no name"),
            ("user: aaaaaaaaaaaaaaaaaaaa", "without a name"),
            ("user:bob aaaaaaaaaaaaaaaaaaaa", "no user `bob`"),
            ("jobs:local aaaaaaaaaaaaaaaaaaaa", "a scheduler's cluster"),
            ("jobs:Local aaaaaaaaaaaaaaaaaaaa", "a scheduler's cluster"),
            ("jobs: aaaaaaaaaaaaaaaaaaaa", "`jobs:` without a name"),
            ("poller aaaaaaaaaaaaaaaaaaaa", "poller:NAME"),
            ("poller: aaaaaaaaaaaaaaaaaaaa", "`poller:` without a name"),
            ("poller:a/b aaaaaaaaaaaaaaaaaaaa", "has the character"),
            ("push: aaaaaaaaaaaaaaaaaaaa", "`push:` without a name"),
            ("pusher aaaaaaaaaaaaaaaaaaaa", "`push`?"),
            ("aaaaaaaaaaaaaaaaaaaa admin", "a line is `SCOPE[:NAME] TOKEN`"),
            ("admin short", "5 characters; 8 to 256"),
            ("admin two words that are long", "a blank"),
            ("admin sha256:12", "64 hexadecimal"),
            ("user aaaaaaaaaaaaaaaaaaaa\nadmin aaaaaaaaaaaaaaaaaaaa", "earlier line"),
        ] {
            let errors = Tokens::parse(text, PASSWD).unwrap_err();
            let last = text.lines().count();
            assert!(errors.iter().all(|(line, _)| *line == last), "{text}: {errors:?}");
            assert!(errors[0].1.contains(want), "{text}: {errors:?}");
            assert!(errors.iter().all(|(_, what)| !what.contains("aaaa")), "{errors:?}");
        }
    }

    #[test]
    fn every_wrong_line_is_reported_up_to_a_limit() {
        let text =
            "agnet aaaaaaaaaaaaaaaaaaaa\nadmin short\nadmin bbbbbbbbbbbbbbbbbbbb\nroot tiny\n";
        let lines = |text: &str| -> Vec<usize> {
            Tokens::parse(text, PASSWD).unwrap_err().iter().map(|(line, _)| *line).collect()
        };
        assert_eq!(lines(text), [1, 2, 4, 4], "a line may have two errors");
        assert_eq!(lines(&"admin short\n".repeat(500)).len(), ERRORS_MAX + 1);
    }

    #[test]
    fn a_file_that_others_can_open_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        std::fs::write(&path, format!("admin {TOKEN}\n")).unwrap();
        for (mode, ok) in [(0o600, true), (0o640, true), (0o644, false), (0o660, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Tokens::read(&path, PASSWD).is_ok(), ok, "{mode:o}");
        }
        let errors = |path: &Path| Tokens::read(path, PASSWD).unwrap_err();
        assert!(matches!(
            errors(dir.path())[..],
            [SecretError::File(SecretFileError::Open { .. })]
        ));
        assert!(matches!(
            errors(&dir.path().join("no"))[..],
            [SecretError::File(SecretFileError::Read { .. })]
        ));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(agent|user|jobs|admin)?:?[ -~\n]{0,60}") {
            Tokens::parse(&text, PASSWD).ok();
        }
    }
}
