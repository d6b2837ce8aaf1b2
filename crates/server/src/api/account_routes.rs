//! `/api/v1/accounts`: the members of accounts, and what they see of each other's jobs.

use crate::api::job_routes::object;
use crate::api::token_routes::http_error;
use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::HttpError;
use crate::http::params::part;
use crate::http::selection::wrong;
use crate::queries::answers::{json, wrote};
use crate::queries::series_routes::known;
use api::Operation;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::Response;
use jobs::{AccessLevel, Account, AccountChange, AccountKey, Role, Users};
use std::sync::Arc;

/// Most users named in one change.
const USERS_MAX: usize = 3000;

/// `GET /api/v1/accounts`: the caller's accounts; for administrators and staff, all accounts.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Accounts)?;
    let every = caller.reader().is_some_and(jobs::Reader::sees_every_job);
    let Some(of) = (if every { Some(None) } else { caller.rights.uid().map(Some) }) else {
        return json(&Vec::<api::Account>::new());
    };
    let accounts = app.read_registry(move |app| {
        let users = app.registry.users();
        let accounts = app.registry.accounts(of).map_err(http_error)?;
        let account_for =
            accounts.iter().map(|account| account_for(account, &caller, every, &users));
        Ok::<_, HttpError>(account_for.collect::<Vec<_>>())
    });
    json(&accounts.await??)
}

/// `POST /api/v1/accounts/{CLUSTER:NAME}`: changes an account.
///
/// Managers set its members, and what they see. Administrators also set its managers.
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::ChangeAccount)?;
    let key: AccountKey = part(name)?.parse().map_err(wrong)?;
    let requested: api::AccountChange = object(&app, &head, body).await?;
    let more = serde_json::json!({"account": key.to_string(), "change": requested.clone()});
    let changed = app.change_registry(caller.actor.user_key(), move |app| {
        let users = app.registry.users();
        let known = app.registry.account(&key).map_err(http_error)?;
        let change = permitted(&requested, known.as_ref(), &caller, &users)?;
        if known.is_none() && !requested.create {
            return Err(unknown(app, &key));
        }
        let changed = app.registry.change_account(&key, &change).map_err(http_error)?;
        Ok::<_, HttpError>(account_for(&changed, &caller, true, &users))
    });
    wrote(json(&changed.await??)?, &more)
}

/// `DELETE /api/v1/accounts/{CLUSTER:NAME}`: for administrators.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    name: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::DeleteAccount)?;
    if !caller.rights.is_admin() {
        return Err(HttpError::forbidden("only administrators delete accounts"));
    }
    let key: AccountKey = part(name)?.parse().map_err(wrong)?;
    let more = serde_json::json!({"account": key.to_string()});
    let deleted = app.change_registry(caller.actor.user_key(), move |app| {
        let deleted = app.registry.delete_account(&key).map_err(http_error)?;
        let deleted = deleted.ok_or_else(|| unknown(app, &key))?;
        Ok::<_, HttpError>(account_for(&deleted, &caller, true, &app.registry.users()))
    });
    wrote(json(&deleted.await??)?, &more)
}

/// Returns the error for an account that was neither reported nor created, with the closest known name.
fn unknown(app: &App, key: &AccountKey) -> HttpError {
    let name = key.to_string();
    let known: Vec<String> = app
        .registry
        .accounts(None)
        .unwrap_or_default()
        .iter()
        .map(|account| account.key.to_string())
        .collect();
    let near = config::nearest(&name, known.iter().map(String::as_str));
    let hint = near.map_or_else(
        || format!("`jobmeter account create {name}` creates one before its first job"),
        |near| format!("did you mean `{near}`?"),
    );
    HttpError::not_found(format!("there is no account {name}")).hint(Some(hint))
}

/// Checks a change, and whether the caller may make it.
fn permitted(
    requested: &api::AccountChange,
    known: Option<&Account>,
    caller: &Caller,
    users: &Users,
) -> Result<AccountChange, HttpError> {
    let admin = caller.rights.is_admin();
    // A read-only token gives no rights of a manager.
    let manages =
        caller.rights.registers_for().is_some_and(|uid| role(known, uid) == Some(Role::Manager));
    if requested.create && !admin {
        return Err(HttpError::forbidden("only administrators create accounts"));
    }
    if !admin && !manages {
        let message = "only managers of the account and administrators may change an account's \
                       settings";
        return Err(HttpError::forbidden(message));
    }
    let members_see = requested.members_see.as_ref().map(|word| {
        let sees = AccessLevel::ALL.into_iter().find(|sees| sees.word() == word);
        sees.ok_or_else(|| HttpError::malformed("`members_see` must be `nothing`, `jobs` or `all`"))
    });
    let lists = [
        (&requested.members, Role::Member),
        (&requested.managers, Role::Manager),
        (&requested.remove, Role::Removed),
    ];
    if lists.iter().map(|(names, _)| names.len()).sum::<usize>() > USERS_MAX {
        return Err(HttpError::malformed(format!("more than {USERS_MAX} users")));
    }
    let mut change = AccountChange { members_see: members_see.transpose()?, users: Vec::new() };
    for (names, to) in lists {
        for name in names {
            let uid = users.uid(name).or_else(|| name.parse().ok()).ok_or_else(|| {
                let shown: String = name.chars().take(100).collect();
                HttpError::malformed(format!(
                    "the server knows no user `{shown}`; use the user ID instead"
                ))
            })?;
            if to == Role::Member && role(known, uid) == Some(Role::Manager) {
                // Only a removal ends the role of a manager.
                continue;
            }
            if !admin && (to == Role::Manager || role(known, uid) == Some(Role::Manager)) {
                let message = "only administrators may change an account's managers";
                return Err(HttpError::forbidden(message));
            }
            change.users.push((uid, to));
        }
    }
    Ok(change)
}

/// The role of a user in an account.
fn role(account: Option<&Account>, uid: u32) -> Option<Role> {
    account?.users.iter().find(|(of, _)| *of == uid).map(|(_, role)| *role)
}

fn account_for(account: &Account, caller: &Caller, every: bool, users: &Users) -> api::Account {
    let role = caller.rights.uid().and_then(|uid| role(Some(account), uid));
    let shown = every || role == Some(Role::Manager);
    let one = |(uid, role): &(u32, Role)| api::AccountUser {
        uid: *uid,
        user: users.name(*uid).map(str::to_owned),
        role: role.word().to_owned(),
    };
    api::Account {
        cluster: account.key.cluster.to_string(),
        name: account.key.name.to_string(),
        members_see: account.members_see.word().to_owned(),
        role: role.map(|role| role.word().to_owned()),
        users: shown.then(|| account.users.iter().map(one).collect()),
    }
}
