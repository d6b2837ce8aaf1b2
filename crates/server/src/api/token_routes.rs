//! `/api/v1/me` and `/api/v1/tokens`: the caller's identity, and the tokens that users create.

use crate::api::job_routes::object;
use crate::app::App;
use crate::auth::caller::{Caller, Rights};
use crate::auth::tokens::{rights, sha256};
use crate::common::http_error::{HttpError, Why};
use crate::http::params::part;
use crate::queries::answers::{json, unchanged, wrote};
use crate::queries::series_routes::known;
use api::Operation;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jobs::{NewToken, Reader, RegistryError, StoredToken};
use model::{Timestamp, is_unprintable};
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::Arc;

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;
/// Prefix of every token, so that a leaked token can be recognized.
const TOKEN_PREFIX: &str = "jobmeter_";
/// Longest note, in bytes.
const NOTE_BYTES_MAX: usize = 200;

/// `GET /api/v1/me`.
pub(crate) async fn me(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Me)?;
    let uid = caller.rights.uid();
    let reader = caller.reader().ok_or_else(crate::auth::authentication::no_credentials)?;
    let sees_jobs = match reader {
        Reader::Everything => "all",
        Reader::User(_) | Reader::Tenant(_) => "own",
        Reader::Nodes => "none",
    };
    let user =
        app.read_registry(move |app| uid.and_then(|uid| app.registry.user_name(uid))).await?;
    json(&api::Me {
        caller: caller.actor.who.to_string(),
        role: caller.rights.word().to_owned(),
        uid,
        user: user.map(String::from),
        sees_jobs: sees_jobs.to_owned(),
        sees_nodes: if reader.sees_every_node() { "always" } else { "own" }.to_owned(),
    })
}

/// `GET /api/v1/tokens`: the caller's tokens; for administrators and staff, all tokens.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Tokens)?;
    let of = match (caller.reader(), caller.rights.uid()) {
        (Some(reader), _) if reader.sees_every_job() => None,
        (_, Some(uid)) => Some(uid),
        _ => return Err(HttpError::forbidden("only users may list tokens")),
    };
    let tokens = app.read_registry(move |app| app.registry.tokens(of)).await?;
    let tokens = tokens.map_err(|error| HttpError::fault(&error))?;
    json(&tokens.iter().map(token_for).collect::<Vec<_>>())
}

/// `POST /api/v1/tokens`: creates a token. Only this response contains its secret.
pub(crate) async fn make(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    known(head.uri.query().map(str::to_owned), Operation::MakeToken)?;
    let new_token: api::NewToken = object(&app, &head, body).await?;
    let now = app.now();
    let age_max = app.live().access.token_age_max.as_secs();
    let seconds = new_token.expires_in_seconds.unwrap_or(age_max);
    let most = if caller.rights.is_admin() { api::NewToken::SECONDS_MAX } else { age_max };
    if !(1..=most).contains(&seconds) {
        let message = format!(
            "`expires_in_seconds`: a token is good for 1 s at least and {} d at most ({most} s)",
            most as f64 / 86_400.0
        );
        return Err(HttpError::malformed(message));
    }
    let note = new_token.note.unwrap_or_default();
    if note.len() > NOTE_BYTES_MAX || note.contains(is_unprintable) {
        let message =
            format!("a note has {NOTE_BYTES_MAX} bytes at most, and only printable characters");
        return Err(HttpError::malformed(message));
    }
    let token = draw()?;
    let hash = sha256(&token);
    let age_us = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(Timestamp::SECOND);
    let made = app.change_registry(caller.actor.user_key(), move |app| {
        let granted = granted(app, &caller, &new_token.scope)?;
        let new = NewToken {
            hash,
            scope: scope_text(&granted).into(),
            uid: granted.uid(),
            note: note.into(),
            made: now,
            made_by: (&*caller.actor.who).into(),
            expires: now.plus(age_us),
        };
        let id = app.registry.store_token(&new).map_err(http_error)?;
        app.user_tokens.load(&app.registry).map_err(http_error)?;
        Ok::<_, HttpError>(StoredToken { id, token: new, revoked: None, used: None })
    });
    let info = token_for(&made.await??);
    let more = serde_json::json!({"token": info.id, "scope": info.scope, "expires": info.expires});
    wrote(json(&api::CreatedToken { token, info })?, &more)
}

/// Returns the rights of a token of a scope, if the caller may grant them.
fn granted(app: &App, caller: &Caller, scope: &str) -> Result<Rights, HttpError> {
    if !matches!(caller.rights, Rights::Admin(_) | Rights::User(_) | Rights::StaffUser(_)) {
        return Err(HttpError::forbidden("only users and administrators may create tokens"));
    }
    let own = caller.rights.uid();
    let new_token = match (scope, own) {
        ("read", Some(uid)) => Rights::Reading(uid),
        _ => {
            let users = app.registry.users();
            // The name is resolved here: the registry stores the UID.
            let scope = match scope.split_once(':') {
                Some((word, name))
                    if !matches!(word, "agent" | "jobs" | "poller" | "colmet" | "push") =>
                {
                    let uid =
                        users.uid(name).map_or_else(|| name.to_owned(), |uid| uid.to_string());
                    format!("{word}:{uid}")
                }
                _ => scope.to_owned(),
            };
            rights(&scope, b"").map_err(HttpError::malformed)?
        }
    };
    match (&caller.rights, &new_token) {
        (Rights::Admin(_), _) => Ok(new_token),
        (Rights::User(uid) | Rights::StaffUser(uid), Rights::Reading(of)) if uid == of => {
            if caller.by_user_token {
                let message = "a created token or a JSON Web Token cannot create another token; use your \
                               login or a token of the token file";
                return Err(HttpError::forbidden(message));
            }
            Ok(new_token)
        }
        _ => {
            let message = "users may create tokens of scope `read` for themselves; only administrators may \
                 create others";
            Err(HttpError::forbidden(message))
        }
    }
}

/// Returns the scope as stored, with its user as a UID.
fn scope_text(rights: &Rights) -> String {
    let name = rights.scope_name().map(str::to_owned);
    match name.or_else(|| rights.uid().map(|uid| uid.to_string())) {
        Some(name) => format!("{}:{name}", rights.scope()),
        None => rights.scope().to_owned(),
    }
}

fn draw() -> Result<String, HttpError> {
    let mut bytes = [0; TOKEN_BYTES];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| HttpError::fault(&"the operating system provides no random numbers"))?;
    Ok(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// `POST /api/v1/tokens/{token}/revoke`: the token is invalid from this response on.
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, HttpError> {
    known(request.uri().query().map(str::to_owned), Operation::RevokeToken)?;
    let id = part(id)?;
    let now = app.now();
    let revoked = app.change_registry(caller.actor.user_key(), move |app| {
        let of = match (&caller.rights, caller.rights.uid()) {
            (Rights::Admin(_), _) => None,
            (Rights::User(_) | Rights::StaffUser(_), Some(uid)) => Some(uid),
            _ => return Err(HttpError::forbidden("this caller revokes no tokens")),
        };
        let find = || {
            let tokens = app.registry.tokens(of).map_err(http_error)?;
            let kept = tokens.into_iter().find(|kept| kept.id.to_string() == id);
            kept.ok_or_else(|| unknown(&id))
        };
        let kept = find()?;
        if kept.revoked.is_some() {
            return Ok((kept, false));
        }
        app.registry.revoke_token(kept.id, now).map_err(http_error)?;
        app.user_tokens.load(&app.registry).map_err(http_error)?;
        Ok((find()?, true))
    });
    let (kept, is_new) = revoked.await??;
    let kept = token_for(&kept);
    if !is_new {
        return unchanged(json(&kept)?);
    }
    let more = serde_json::json!({"token": kept.id, "scope": kept.scope});
    wrote(json(&kept)?, &more)
}

fn unknown(id: &str) -> HttpError {
    let shown: String = id.chars().take(40).collect();
    let message = format!("you have no token {shown}");
    HttpError::new(StatusCode::NOT_FOUND, "P0002", Why::Unknown, message)
}

fn token_for(kept: &StoredToken) -> api::Token {
    let NewToken { scope, uid, note, made, made_by, expires, .. } = &kept.token;
    api::Token {
        id: kept.id,
        scope: scope.to_string(),
        uid: *uid,
        note: note.to_string(),
        created_by: made_by.to_string(),
        created: made.seconds(),
        expires: expires.seconds(),
        revoked: kept.revoked.map(Timestamp::seconds),
        last_used: kept.used.map(Timestamp::seconds),
    }
}

/// Converts an error of the registry.
pub(crate) fn http_error(error: RegistryError) -> HttpError {
    match error {
        RegistryError::TooManyOf(..) => HttpError::busy(error.to_string()),
        error => HttpError::fault(&error),
    }
}
