//! The caller, tokens, accounts and the audit log.

use crate::param::unprintable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const SCOPE: &str = concat!(
    "^(admin|(agent|user|read|staff|push)(:[^.,/",
    unprintable!(),
    "-][^,/",
    unprintable!(),
    "]{0,252})?|poller:[^.,/",
    unprintable!(),
    "-][^,/",
    unprintable!(),
    "]{0,200}|jobs(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,62})?)$"
);
const PRINTABLE: &str = concat!("^[^", unprintable!(), "]*$");
/// Ten years of 366 days.
const TOKEN_SECONDS_MAX: u64 = 3660 * 86_400;

/// `GET /api/v1/me`: the caller and their permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Me {
    /// The caller, without a secret: `uid 1000`, ``token 7 of `read` ``, `nobody`.
    pub caller: String,
    /// The role: `admin`, `staff`, `user`, `read`, `guest`, or `nobody`.
    pub role: String,
    /// The user ID, if the caller is a user.
    pub uid: Option<u32>,
    /// The user's login name.
    pub user: Option<String>,
    /// Visible jobs: `all`, `own` (and those that accounts share), or `none`.
    pub sees_jobs: String,
    /// Visible node samples: `always`, or `own`: while a visible job runs on the node.
    pub sees_nodes: String,
}

/// An element of `GET /api/v1/tokens`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// The ID of the token.
    pub id: i64,
    /// Its scope: `read:1000`.
    pub scope: String,
    /// The ID of the user who owns it.
    pub uid: Option<u32>,
    /// Its purpose, as its creator describes it.
    pub note: String,
    /// The caller who created it.
    pub created_by: String,
    /// When it was created.
    pub created: f64,
    /// When it expires.
    pub expires: f64,
    /// When it was revoked.
    pub revoked: Option<f64>,
    /// When it was last used, to about an hour.
    pub last_used: Option<f64>,
}

/// Body of `POST /api/v1/tokens`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The scope, as in the token file: `agent[:NODE]`, `poller:NAME`, `push[:NAME]`, `user[:USER]`, `read:USER`,
    /// `jobs[:CLUSTER]`, `staff[:USER]` or `admin`. `read` alone means the caller; callers other than administrators may create only that.
    #[schemars(regex(pattern = SCOPE))]
    pub scope: String,
    /// Validity in seconds. Default: `access.token_age_max`, which is also the most for callers other than
    /// administrators.
    #[schemars(range(min = 1, max = TOKEN_SECONDS_MAX))]
    pub expires_in_seconds: Option<u64>,
    /// Its purpose: 200 bytes at most, printable characters only.
    #[schemars(length(max = 200), regex(pattern = PRINTABLE))]
    pub note: Option<String>,
}

impl NewToken {
    /// Largest value of `expires_in_seconds`.
    pub const SECONDS_MAX: u64 = TOKEN_SECONDS_MAX;
}

/// Answer to it, and the only answer that contains the token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedToken {
    /// The token, for the header `Authorization: Bearer TOKEN`.
    pub token: String,
    /// The stored description of the token.
    pub info: Token,
}

/// An element of `GET /api/v1/accounts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// The cluster of the account: `oar`, `slurm`.
    pub cluster: String,
    /// The name of the account.
    pub name: String,
    /// What members see of each other's jobs: `nothing`, the list of `jobs`, or `all`.
    pub members_see: String,
    /// The caller's role in it: `scheduler` (a member by a scheduler's record), `member`, `manager`, or null.
    pub role: Option<String>,
    /// Its users, for managers, staff and administrators; else null.
    pub users: Option<Vec<AccountUser>>,
}

/// A user of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountUser {
    /// The user ID.
    pub uid: u32,
    /// Login name.
    pub user: Option<String>,
    /// `scheduler` (a member by a scheduler's record), `member`, `manager`, or `removed`.
    pub role: String,
}

/// Body of `POST /api/v1/accounts/{CLUSTER:NAME}`: the changes. Users are given by login name or user ID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountChange {
    /// Administrators only: creates the account if no scheduler has reported it. Without this, an unknown account is an error.
    #[serde(default)]
    pub create: bool,
    /// What members see of each other's jobs: `nothing`, `jobs` or `all`.
    #[schemars(regex(pattern = "^(nothing|jobs|all)$"))]
    pub members_see: Option<String>,
    /// Users who become members. A manager remains one; removed first, they become a member.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub members: Vec<String>,
    /// Users who become managers; administrators only.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub managers: Vec<String>,
    /// Users to remove, also where a scheduler reports them as members.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub remove: Vec<String>,
}

/// An element of `GET /api/v1/audit`: an audited action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// The time.
    pub time: f64,
    /// The caller, without a secret: `uid 1000`, ``token 7 of `read:1000` ``, `rule hot`.
    pub actor: String,
    /// The address of the caller.
    pub address: String,
    /// Method and path; of a rule, its effect.
    pub action: String,
    /// The job that was read or changed; `*`: jobs of other users, none in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The user ID of the job's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// The changes, by the names of the request's fields.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}
