//! Who asks, tokens, and accounts: what each sees of whose jobs.

use crate::param::unprintable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const SCOPE: &str = concat!(
    "^(admin|(agent|user|read|staff)(:[^.,/",
    unprintable!(),
    "-][^,/",
    unprintable!(),
    "]{0,252})?|jobs(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,62})?)$"
);
const PRINTABLE: &str = concat!("^[^", unprintable!(), "]*$");
/// Ten years of 366 days.
const TOKEN_SECONDS_MAX: u64 = 3660 * 86_400;

/// `GET /api/v1/me`: who asks, and what he sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Me {
    /// Who, without a secret: `uid 1000`, ``token 7 of `read` ``, `nobody`.
    pub who: String,
    /// `admin`, `staff`, `user`, `read`, `guest`, or `nobody`.
    pub role: String,
    /// The user's number, where somebody is a user.
    pub uid: Option<u32>,
    /// The user's login name.
    pub user: Option<String>,
    /// Whose jobs: `all`, `own` and those that accounts show, or `none`.
    pub sees_jobs: String,
    /// When what is counted on a node for no job: `always`, or while a job that is seen is there: `own`.
    pub sees_nodes: String,
}

/// An element of `GET /api/v1/tokens`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// Its number.
    pub id: i64,
    /// What it is good for: `read:1000`.
    pub scope: String,
    /// The number of the user whose it is.
    pub uid: Option<u32>,
    /// What it is for, in its maker's words.
    pub note: String,
    /// Who made it.
    pub made_by: String,
    /// When it was made.
    pub made: f64,
    /// When it ends.
    pub expires: f64,
    /// When it was revoked.
    pub revoked: Option<f64>,
    /// When it was used last, to about an hour.
    pub used: Option<f64>,
}

/// Body of `POST /api/v1/tokens`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// As a line of the token file begins: `agent[:NODE]`, `user[:USER]`, `read:USER`, `jobs[:CLUSTER]`,
    /// `staff[:USER]` or `admin`; `read` alone is the caller's own. Who is no administrator makes that one only.
    #[schemars(regex(pattern = SCOPE))]
    pub scope: String,
    /// How many seconds it is good for; `access.token_age_max` when left out. Who is no administrator gets
    /// that at most.
    #[schemars(range(min = 1, max = TOKEN_SECONDS_MAX))]
    pub expires_in_seconds: Option<u64>,
    /// What it is for: 200 bytes at most, and printable characters only.
    #[schemars(length(max = 200), regex(pattern = PRINTABLE))]
    pub note: Option<String>,
}

impl NewToken {
    /// Most that `expires_in_seconds` may be.
    pub const SECONDS_MAX: u64 = TOKEN_SECONDS_MAX;
}

/// Answer to it, and the only one that tells the token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MadeToken {
    /// The token, to be sent as `Authorization: Bearer TOKEN`.
    pub token: String,
    /// What is kept of it.
    pub kept: Token,
}

/// An element of `GET /api/v1/accounts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Whose account: `oar`, `slurm`.
    pub cluster: String,
    /// Its name there.
    pub name: String,
    /// What its members see of each other's jobs: `nothing`, the list of `jobs`, or `all`.
    pub members_see: String,
    /// What the caller is in it: `told` (by a scheduler), `member`, `manager`, or null.
    pub role: Option<String>,
    /// Its people, for managers, staff and administrators; else null.
    pub users: Option<Vec<AccountUser>>,
}

/// Somebody in an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountUser {
    /// The user's number.
    pub uid: u32,
    /// Login name.
    pub user: Option<String>,
    /// `told` (by a scheduler), `member`, `manager`, or `removed`.
    pub role: String,
}

/// Body of `POST /api/v1/accounts/{CLUSTER:NAME}`: what is to change. Users are given by login name or
/// number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountChange {
    /// Administrators only: creates the account if no scheduler has reported it. Without this, an unknown account is an error.
    #[serde(default)]
    pub create: bool,
    /// What its members see of each other's jobs: `nothing`, `jobs` or `all`.
    #[schemars(regex(pattern = "^(nothing|jobs|all)$"))]
    pub members_see: Option<String>,
    /// Who becomes a member.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub members: Vec<String>,
    /// Who becomes a manager: administrators say so.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub managers: Vec<String>,
    /// Who is taken out, whatever a scheduler tells.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub remove: Vec<String>,
}

/// An element of `GET /api/v1/audit`: something that somebody did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditLine {
    /// When.
    pub time: f64,
    /// Who, without a secret: `uid 1000`, ``token 7 of `read:1000` ``, `rule hot`.
    pub who: String,
    /// The address from which.
    pub from: String,
    /// Method and path; of a rule, what it brought about.
    pub did: String,
    /// The job that was read or told of; `*`: others' jobs, and no one in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The number of that job's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// What was changed, by what it is called in the request.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}
