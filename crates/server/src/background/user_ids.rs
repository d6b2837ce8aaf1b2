//! Looks up the UIDs of users that only a site's directory service knows.
//!
//! Schedulers and nodes may report login names alone, but callers are identified by UID. A user without a known UID
//! would see none of their jobs.
//!
//! For each name without a UID in the registry, the server runs `getent passwd NAME`. This queries the name service
//! of the machine (NSS: LDAP, SSSD) in a separate process and for a limited time. The registry stores the UIDs found.
//! An unknown name is counted, logged once, and queried again after 1 h.

use crate::app::App;
use crate::auth::name_service::getent;
use crate::common::tasks::stopped;
use jobs::{RegistryError, UnresolvedUser, Users};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two rounds.
const EVERY: Duration = Duration::from_secs(20);
/// A round queries no further name after this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most names that a round reads from the registry, and most of them that it queries.
const NAMES_MAX: usize = 4096;
const QUERIED_MAX: usize = 16;
/// Interval between two queries of an unknown name.
const AGAIN: Duration = Duration::from_secs(3600);

/// How many names a round may still query, and when it began.
struct RoundBudget {
    left: usize,
    begun: Instant,
}

/// The state of the lookups.
#[derive(Debug)]
pub(crate) struct UserIdLookup {
    /// The program to run; `None`: no queries.
    program: Option<String>,
    /// When each unknown name was queried. Entries are kept for 2 h.
    queried: HashMap<Box<str>, Instant>,
    /// The name after which the next round begins; `None`: at the first name.
    last: Option<UnresolvedUser>,
}

/// The result of a round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundResult {
    /// Jobs that got their user's UID in this round.
    numbered: u64,
    /// Names that the name service does not know, and that have not been logged yet.
    unknown: Vec<Box<str>>,
    /// Why the name service cannot be queried.
    failure: Option<String>,
}

impl UserIdLookup {
    pub(crate) fn new(program: Option<String>) -> Self {
        Self { program, queried: HashMap::new(), last: None }
    }

    /// Assigns UIDs to names without one, as far as they are known. Waits for the disk and for the name service.
    fn round(&mut self, app: &App) -> Result<RoundResult, RegistryError> {
        let mut round = RoundResult::default();
        let page = app.registry.users_without_id(self.last.as_ref(), NAMES_MAX)?;
        let now = Instant::now();
        self.queried.retain(|_, at| now.duration_since(*at) < 2 * AGAIN);
        let mut budget = RoundBudget { left: QUERIED_MAX, begun: now };
        let mut unknown = Vec::new();
        for user in page.names {
            match app.registry.user_id_of(&user)? {
                Some(uid) => round.numbered += app.registry.number_user_of(&user, uid)?,
                None => unknown.push(user.name),
            }
        }
        // New names first: unknown names are retried, and must not delay new ones.
        let (again, new): (Vec<_>, Vec<_>) =
            unknown.into_iter().partition(|name| self.queried.contains_key(name));
        for name in new.into_iter().chain(again) {
            match self.look_up(&name, &mut budget, &mut round) {
                Ok(Some(uid)) => {
                    round.numbered += app.registry.number_user(&name, uid, app.now())?;
                }
                Ok(None) => {}
                Err(error) => {
                    round.failure = Some(error.to_string());
                    // The other queries would fail too.
                    break;
                }
            }
        }
        self.last = page.last;
        Ok(round)
    }

    fn look_up(
        &mut self,
        name: &str,
        budget: &mut RoundBudget,
        round: &mut RoundResult,
    ) -> io::Result<Option<u32>> {
        let Some(program) = &self.program else { return Ok(None) };
        let now = Instant::now();
        let before = self.queried.get(name);
        let late = now.duration_since(budget.begun) > PATIENCE;
        if late || budget.left == 0 || before.is_some_and(|at| now.duration_since(*at) < AGAIN) {
            return Ok(None);
        }
        budget.left -= 1;
        let uid = look_up(program, name)?;
        if uid.is_none() && self.queried.insert(name.into(), now).is_none() {
            round.unknown.push(name.into());
        }
        Ok(uid)
    }
}

/// Queries the name service for the UID of a login name.
fn look_up(program: &str, name: &str) -> io::Result<Option<u32>> {
    let (code, output) = getent(program, "passwd", &[name])?;
    // getent looks up a numeric name as a UID. The entry returned must have the requested name.
    Ok((code == 0).then(|| Users::parse(&output).uid(name)).flatten())
}

/// Looks up UIDs until the server stops.
pub(crate) async fn run(app: Arc<App>, mut service: UserIdLookup) {
    let mut stopping = app.stopping.clone();
    let mut failure = None;
    loop {
        let at_work = Arc::clone(&app);
        let done = tokio::task::spawn_blocking(move || {
            let round = service.round(&at_work);
            (service, round)
        });
        let done = tokio::select! {
            done = done => done,
            // The shutdown does not wait for a running query.
            () = stopped(&mut stopping) => return,
        };
        let Ok((back, round)) = done else {
            log::error!("the lookup of user IDs panicked and has stopped; restart the server");
            return;
        };
        service = back;
        match round {
            Ok(round) => log_round(&mut failure, round),
            Err(error) => log::warn!("cannot look up user IDs: {error}"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stopped(&mut stopping) => return,
        }
    }
}

fn log_round(before: &mut Option<String>, round: RoundResult) {
    if round.numbered > 0 {
        log::info!("{} jobs got the user IDs of their owners", round.numbered);
    }
    if let [first, rest @ ..] = round.unknown.as_slice() {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} others", rest.len()) };
        log::warn!(
            "the user ID of {first}{more} is unknown: these users cannot see their jobs until \
             `getent passwd` on this machine or a scheduler reports it"
        );
    }
    if round.failure != *before {
        if let Some(what) = &round.failure {
            log::warn!("the name service cannot resolve user IDs: {what}");
        }
        *before = round.failure;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    pub(crate) fn program(dir: &tempfile::TempDir, script: &str) -> String {
        let path = dir.path().join("getent");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        // A child process of another test's thread holds the file open for writing until it runs its own program.
        let path = path.to_str().unwrap().to_owned();
        let is_busy = |error: io::Error| error.kind() == io::ErrorKind::ExecutableFileBusy;
        while look_up(&path, "nobody").is_err_and(is_busy) {
            std::thread::sleep(Duration::from_millis(5));
        }
        path
    }

    #[test]
    fn a_name_is_answered_by_its_own_line_only() {
        let dir = tempfile::tempdir().unwrap();
        let known = r#"[ "$1" = passwd ] || exit 1
            case "$2" in ann|5555) echo "ann:*:5555:100::/home/ann:/bin/sh";; broken) exit 3;; *) exit 2;; esac"#;
        let program = program(&dir, known);
        assert_eq!(look_up(&program, "ann").unwrap(), Some(5555));
        assert_eq!(look_up(&program, "bob").unwrap(), None);
        assert_eq!(look_up(&program, "5555").unwrap(), None, "it is another's line");
        assert_eq!(look_up(&program, "-h").unwrap(), None);
        assert!(look_up(&program, "broken").unwrap_err().to_string().contains("code 3"));
        assert!(look_up("/nowhere/getent", "ann").is_err());
    }

    #[test]
    fn this_machines_getent_is_understood() {
        assert_eq!(look_up(crate::auth::name_service::GETENT, "root").unwrap(), Some(0));
        assert_eq!(look_up(crate::auth::name_service::GETENT, "no-such-user-here").unwrap(), None);
        assert_eq!(look_up(crate::auth::name_service::GETENT, "0").unwrap(), None);
    }
}
