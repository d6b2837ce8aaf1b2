//! Accounts: who pays for a job, their members, and access between members.
//!
//! A user becomes a member in one of two ways:
//! - A scheduler's record of a job of the account names the user. The membership lasts while such
//!   records exist and the last of them is recent enough.
//! - An administrator or manager adds the user.
//!
//! Node reports create no members. A removed user stays removed, whatever the scheduler reports. A
//! manager has access to all jobs of the account, and sets its members' access to each other's jobs.
//! The default is no access.

use crate::{AccessLevel, Registry, RegistryError};
use model::{ClusterId, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::{fmt, str::FromStr};

/// Maximum length of an account name, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// Maximum number of accounts that people create. Accounts of schedulers arrive with jobs.
const ACCOUNTS_MAX: i64 = 100_000;
/// Maximum number of users that people add to one account.
const USERS_MAX: i64 = 10_000;

/// The tables. Only a record's own user ID (`record_uid`) creates a member: the user ID of a run may come
/// from a node, and who registers a job could name any account. Members by job leave when their jobs do.
/// `runs` counts the user's runs on the account since they joined. Only when it drops to 0 do the
/// triggers search for another run there. `last` is the start of the latest run. Each `+` keeps SQLite on
/// the index of a user's runs, which are fewer than an account's.
pub(crate) const TABLES: &str = "
CREATE TABLE accounts (
    cluster TEXT NOT NULL,
    name TEXT NOT NULL,
    members_see TEXT NOT NULL DEFAULT 'nothing' CHECK (members_see IN ('nothing', 'jobs', 'all')),
    PRIMARY KEY (cluster, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE account_users (
    cluster TEXT NOT NULL,
    name TEXT NOT NULL,
    uid INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('reported', 'member', 'manager', 'removed')),
    runs INTEGER NOT NULL DEFAULT 0,
    last INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (cluster, name, uid)
) STRICT, WITHOUT ROWID;
CREATE INDEX account_users_uid ON account_users (uid);
CREATE VIEW account_sight AS
    SELECT u.uid, u.cluster, u.name AS account,
        CASE u.role WHEN 'manager' THEN 'all' ELSE a.members_see END AS sees
    FROM account_users u JOIN accounts a ON a.cluster = u.cluster AND a.name = u.name
    WHERE u.role = 'manager' OR (u.role <> 'removed' AND a.members_see <> 'nothing');
CREATE TRIGGER member_told AFTER INSERT ON runs
WHEN NEW.account IS NOT NULL AND NEW.record_uid IS NOT NULL AND NEW.registered = 0 BEGIN
    INSERT OR IGNORE INTO accounts (cluster, name) VALUES (NEW.cluster, NEW.account);
    INSERT INTO account_users (cluster, name, uid, role, runs, last)
        VALUES (NEW.cluster, NEW.account, NEW.record_uid, 'reported', 1, NEW.start)
        ON CONFLICT DO UPDATE SET runs = runs + 1, last = max(last, excluded.last);
END;
CREATE TRIGGER member_reported_later AFTER UPDATE OF account, record_uid ON runs
WHEN NEW.registered = 0 AND (NEW.account IS NOT OLD.account OR NEW.record_uid IS NOT OLD.record_uid) BEGIN
    INSERT OR IGNORE INTO accounts (cluster, name) SELECT NEW.cluster, NEW.account
        WHERE NEW.account IS NOT NULL AND NEW.record_uid IS NOT NULL;
    INSERT INTO account_users (cluster, name, uid, role, runs, last)
        SELECT NEW.cluster, NEW.account, NEW.record_uid, 'reported', 1, NEW.start
        WHERE NEW.account IS NOT NULL AND NEW.record_uid IS NOT NULL
        ON CONFLICT DO UPDATE SET runs = runs + 1, last = max(last, excluded.last);
    UPDATE account_users SET runs = runs - 1
        WHERE cluster = OLD.cluster AND name = OLD.account AND uid = OLD.record_uid;
    DELETE FROM account_users
        WHERE cluster = OLD.cluster AND name = OLD.account AND uid = OLD.record_uid AND role = 'reported'
        AND runs <= 0 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.uid = OLD.record_uid AND +r.record_uid = OLD.record_uid
            AND +r.cluster = OLD.cluster AND +r.account = OLD.account AND r.registered = 0);
END;
CREATE TRIGGER member_untold AFTER DELETE ON runs
WHEN OLD.account IS NOT NULL AND OLD.record_uid IS NOT NULL AND OLD.registered = 0 BEGIN
    UPDATE account_users SET runs = runs - 1
        WHERE cluster = OLD.cluster AND name = OLD.account AND uid = OLD.record_uid;
    DELETE FROM account_users
        WHERE cluster = OLD.cluster AND name = OLD.account AND uid = OLD.record_uid AND role = 'reported'
        AND runs <= 0 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.uid = OLD.record_uid AND +r.record_uid = OLD.record_uid
            AND +r.cluster = OLD.cluster AND +r.account = OLD.account AND r.registered = 0);
END;
";

/// The key of an account: `slurm:physics`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountKey {
    /// The cluster of the account.
    pub cluster: ClusterId,
    /// The account's name in the cluster.
    pub name: Box<str>,
}

/// The text is not an account key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an account; write CLUSTER:NAME, such as slurm:physics")]
pub struct AccountKeyError(pub String);

impl FromStr for AccountKey {
    type Err = AccountKeyError;

    fn from_str(text: &str) -> Result<Self, AccountKeyError> {
        let wrong = || AccountKeyError(text.chars().take(100).collect());
        let (cluster, name) = text.split_once(':').ok_or_else(wrong)?;
        let cluster = ClusterId::new(cluster).map_err(|_| wrong())?;
        let fine = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        if !fine || name.contains(model::is_unprintable) {
            return Err(wrong());
        }
        Ok(Self { cluster, name: name.into() })
    }
}

/// Writes the form that the parser reads.
impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.cluster, self.name)
    }
}

/// The role of a user in an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Member because a scheduler reported a recent job.
    Scheduler,
    /// Member because an administrator or manager added them.
    Member,
    /// Manager: has access to all jobs and sets the members' access.
    Manager,
    /// Removed by an administrator or manager.
    Removed,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Scheduler, Self::Member, Self::Manager, Self::Removed];

    /// Returns the role's name in responses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Member => "member",
            Self::Manager => "manager",
            Self::Removed => "removed",
        }
    }

    /// Returns the role's name in the registry file.
    const fn stored(self) -> &'static str {
        if matches!(self, Self::Scheduler) { "reported" } else { self.word() }
    }
}

impl AccessLevel {
    /// All levels.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Listed, Self::All];

    /// Returns the level's name in settings of an account.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Listed => "jobs",
            Self::All => "all",
        }
    }

    pub(super) fn of_word(word: &str) -> Self {
        Self::ALL.into_iter().find(|sees| sees.word() == word).unwrap_or(Self::Nothing)
    }
}

/// An account with its users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The key.
    pub key: AccountKey,
    /// Access of members to each other's jobs.
    pub members_see: AccessLevel,
    /// The users, by user ID.
    pub users: Vec<(u32, Role)>,
}

/// A change of an account. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountChange {
    /// Access of members to each other's jobs.
    pub members_see: Option<AccessLevel>,
    /// New roles. The last entry of a user counts.
    pub users: Vec<(u32, Role)>,
}

impl Registry {
    /// Returns the accounts by name: all, or those of one user.
    ///
    /// # Errors
    /// SQLite fails, or the number exceeds the registry's row limit.
    pub fn accounts(&self, of: Option<u32>) -> Result<Vec<Account>, RegistryError> {
        let reader = self.reader.lock();
        let limit = self.limits.rows_max;
        let mut find = reader.prepare_cached(
            "SELECT a.cluster, a.name FROM accounts a WHERE ?1 IS NULL OR EXISTS (
                 SELECT 1 FROM account_users u WHERE u.cluster = a.cluster AND u.name = a.name
                 AND u.uid = ?1 AND u.role <> 'removed')
             ORDER BY a.cluster, a.name LIMIT ?2",
        )?;
        let most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
        let mut rows = find.query(params![of, most])?;
        let mut accounts = Vec::new();
        while let Some(row) = rows.next()? {
            let key = key(row.get(0)?, row.get(1)?)?;
            accounts.extend(account(&reader, &key)?);
        }
        if accounts.len() > limit { Err(RegistryError::TooMany(limit)) } else { Ok(accounts) }
    }

    /// Returns an account, if it is known.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn account(&self, key: &AccountKey) -> Result<Option<Account>, RegistryError> {
        account(&self.reader.lock(), key)
    }

    /// Changes an account and creates it if it is missing. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails, or the limit of accounts or of users per account is exceeded. Nothing is changed then.
    pub fn change_account(
        &self,
        key: &AccountKey,
        change: &AccountChange,
    ) -> Result<Account, RegistryError> {
        let mut writer = self.writer.lock();
        let step = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (cluster, name) = (key.cluster.as_str(), &*key.name);
        let count = |sql: &str, most: i64, what: &'static str| {
            let count: i64 = step.query_row(sql, params![cluster, name], |row| row.get(0))?;
            if count > most { Err(RegistryError::TooManyOf(most, what)) } else { Ok(()) }
        };
        step.execute(
            "INSERT OR IGNORE INTO accounts (cluster, name) VALUES (?1, ?2)",
            [cluster, name],
        )?;
        let accounts = "SELECT count(*) FROM accounts WHERE ?1 <> '' AND ?2 <> ''";
        count(accounts, ACCOUNTS_MAX, "accounts")?;
        if let Some(sees) = change.members_see {
            step.execute(
                "UPDATE accounts SET members_see = ?3 WHERE cluster = ?1 AND name = ?2",
                params![cluster, name, sees.word()],
            )?;
        }
        for (uid, role) in &change.users {
            step.prepare_cached(
                "INSERT INTO account_users (cluster, name, uid, role) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET role = excluded.role",
            )?
            .execute(params![cluster, name, uid, role.stored()])?;
        }
        let users = "SELECT count(*) FROM account_users WHERE cluster = ?1 AND name = ?2 AND role <> 'reported'";
        count(users, USERS_MAX, "people in one account")?;
        let changed = account(&step, key)?;
        step.commit()?;
        changed.ok_or_else(|| RegistryError::Damaged(key.to_string()))
    }

    /// Deletes an account with its users; `None`: unknown account. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn delete_account(&self, key: &AccountKey) -> Result<Option<Account>, RegistryError> {
        let mut writer = self.writer.lock();
        let step = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let deleted = account(&step, key)?;
        let named = [key.cluster.as_str(), &*key.name];
        step.execute("DELETE FROM account_users WHERE cluster = ?1 AND name = ?2", named)?;
        step.execute("DELETE FROM accounts WHERE cluster = ?1 AND name = ?2", named)?;
        step.commit()?;
        Ok(deleted)
    }

    /// Removes members by job whose last job is too old, and returns their number. The last job on the
    /// account must have started before `before`, and no job of theirs may run or wait there. The next job
    /// makes them a member again.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn leave_accounts(&self, before: Timestamp) -> Result<usize, RegistryError> {
        let writer = self.writer.lock();
        let mut leave = writer.prepare_cached(
            "DELETE FROM account_users AS u WHERE u.role = 'reported' AND u.last < ?1 AND NOT EXISTS (
                 SELECT 1 FROM runs r WHERE r.stop IS NULL AND +r.uid = u.uid
                 AND +r.record_uid = u.uid
                 AND +r.cluster = u.cluster AND +r.account = u.name AND r.registered = 0)",
        )?;
        Ok(leave.execute([before.0])?)
    }
}

fn account(db: &Connection, key: &AccountKey) -> Result<Option<Account>, RegistryError> {
    let named = params![key.cluster.as_str(), key.name];
    let mut find =
        db.prepare_cached("SELECT members_see FROM accounts WHERE cluster = ?1 AND name = ?2")?;
    let word: Option<String> = find.query_row(named, |row| row.get(0)).optional()?;
    let Some(word) = word else { return Ok(None) };
    let mut find = db.prepare_cached(
        "SELECT uid, role FROM account_users WHERE cluster = ?1 AND name = ?2 ORDER BY uid",
    )?;
    let mut rows = find.query(named)?;
    let mut users = Vec::new();
    while let Some(row) = rows.next()? {
        let word: String = row.get(1)?;
        let role = Role::ALL.into_iter().find(|role| role.stored() == word);
        users.push((row.get(0)?, role.ok_or(RegistryError::Damaged(word))?));
    }
    Ok(Some(Account { key: key.clone(), members_see: AccessLevel::of_word(&word), users }))
}

fn key(cluster: String, name: String) -> Result<AccountKey, RegistryError> {
    let cluster = ClusterId::new(&cluster).map_err(|_| RegistryError::Damaged(cluster))?;
    Ok(AccountKey { cluster, name: name.into() })
}
