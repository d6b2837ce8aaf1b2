//! `slurmrestd`: its paths by version, its tokens and its answers.

use crate::http::CallLimits;
use crate::{Endpoint, SchedulerError};
use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// Longest token, generously: a JWT has some hundred bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// Versions of slurmrestd's paths to try, newest first, if it does not list its own.
const VERSIONS: std::ops::RangeInclusive<u32> = 37..=46;

/// slurmrestd with the credentials for it.
#[derive(Clone, Debug)]
pub struct SlurmRest {
    /// Its HTTP interface.
    pub endpoint: Endpoint,
    /// User name for `X-SLURM-USER-NAME`, sent together with a token.
    pub user: Option<String>,
    /// File with the token (`X-SLURM-USER-TOKEN`) in its first line. Each call reads it again, since tokens expire.
    pub token_file: Option<PathBuf>,
}

/// The paths of one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Paths {
    /// The controller's jobs.
    pub(super) jobs: String,
    /// The accounting's jobs; empty if slurmrestd has none.
    pub(super) accounting: String,
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum Reply {
    Body(Bytes),
    /// Nothing changed since the time in the request.
    Unchanged,
    /// The path does not exist.
    NoPath,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Listing {
    paths: BTreeMap<String, IgnoredAny>,
}

impl SlurmRest {
    /// The newest paths that it has, and the number of calls to find them.
    pub(super) async fn paths(&self, limits: CallLimits) -> Result<(Paths, u32), SchedulerError> {
        let mut calls = 0;
        for path in ["/openapi/v3", "/openapi"] {
            calls += 1;
            let Reply::Body(body) = self.get(path, limits).await? else { continue };
            let Ok(listing) = serde_json::from_slice::<Listing>(&body) else { continue };
            let paths = newest(listing.paths.keys().map(String::as_str));
            if !paths.jobs.is_empty() {
                return Ok((paths, calls));
            }
        }
        // It does not list its paths: some sites close that path.
        for version in VERSIONS.rev() {
            calls += 1;
            let ping = format!("/slurm/v0.0.{version}/ping");
            if matches!(self.get(&ping, limits).await?, Reply::Body(_)) {
                let jobs = format!("/slurm/v0.0.{version}/jobs");
                let accounting = format!("/slurmdb/v0.0.{version}/jobs");
                return Ok((Paths { jobs, accounting }, calls));
            }
        }
        let what = format!("it has no jobs of version v0.0.{} or later", VERSIONS.start());
        Err(self.endpoint.malformed(what))
    }

    /// Gets a path.
    pub(super) async fn get(
        &self,
        path: &str,
        limits: CallLimits,
    ) -> Result<Reply, SchedulerError> {
        let (status, body) = self.endpoint.get(path, &self.headers()?, limits).await?;
        match status {
            StatusCode::NOT_MODIFIED => Ok(Reply::Unchanged),
            StatusCode::NOT_FOUND => Ok(Reply::NoPath),
            // Slurm reports errors as JSON, with status 500.
            status if status.is_success() || body.first() == Some(&b'{') => Ok(Reply::Body(body)),
            status => Err(self.endpoint.rejected(status, &body)),
        }
    }

    fn headers(&self) -> Result<Vec<(&'static str, String)>, SchedulerError> {
        let Some(file) = &self.token_file else { return Ok(Vec::new()) };
        let token = read_token(file).map_err(|error| SchedulerError::Unreachable {
            target: self.endpoint.target(),
            what: format!("the token in {}: {error}", file.display()),
        })?;
        let user = self.user.clone().map(|user| ("x-slurm-user-name", user));
        Ok([("x-slurm-user-token", token)].into_iter().chain(user).collect())
    }
}

fn read_token(file: &std::path::Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    let line = text.lines().next().unwrap_or_default().trim();
    // The output format of `scontrol token`.
    Ok(line.strip_prefix("SLURM_JWT=").unwrap_or(line).to_owned())
}

/// The newest version with the controller's jobs, with paths as listed.
fn newest<'a>(listed: impl Iterator<Item = &'a str> + Clone) -> Paths {
    let version = |path: &str, service: &str| {
        let rest =
            path.strip_prefix(service)?.strip_suffix('/').unwrap_or(path.strip_prefix(service)?);
        rest.strip_prefix("/v0.0.")?.strip_suffix("/jobs")?.parse::<u32>().ok()
    };
    let jobs = listed.clone().filter_map(|path| Some((version(path, "/slurm")?, path))).max();
    let Some((number, jobs)) = jobs else { return Paths::default() };
    let accounting = listed.into_iter().find(|path| version(path, "/slurmdb") == Some(number));
    Paths { jobs: jobs.to_owned(), accounting: accounting.unwrap_or_default().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_listed_version() {
        let text = include_str!("../../../../testdata/schedulers/slurm-22.05/openapi.json");
        let listing: Listing = serde_json::from_str(text).unwrap();
        let paths = newest(listing.paths.keys().map(String::as_str));
        assert_eq!(paths.jobs, "/slurm/v0.0.38/jobs");
        assert_eq!(paths.accounting, "/slurmdb/v0.0.38/jobs");
        let listed = ["/slurm/v0.0.9/jobs/", "/slurm/v0.0.40/jobs/", "/slurm/v0.0.40/job/{job_id}"];
        let paths = newest(listed.into_iter());
        assert_eq!((&*paths.jobs, &*paths.accounting), ("/slurm/v0.0.40/jobs/", ""));
        assert_eq!(newest(["/slurm/jobs", "/", ""].into_iter()), Paths::default());
    }
}
