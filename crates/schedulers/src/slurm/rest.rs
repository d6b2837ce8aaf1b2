//! `slurmrestd`: HTTP/1.1 over a unix socket or TCP, one connection per call.

use crate::SchedulerError;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

/// Longest token, generously: a JWT has some hundred bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// Versions of slurmrestd's paths to try, newest first, if it does not list its own.
const VERSIONS: std::ops::RangeInclusive<u32> = 37..=46;

/// The address of slurmrestd.
#[derive(Clone, Debug)]
pub enum RestAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// `host:port`, without TLS: use a token on loopback or on a trusted network only.
    Tcp(String),
}

/// slurmrestd with the credentials for it.
#[derive(Clone, Debug)]
pub struct SlurmRest {
    /// Its address.
    pub address: RestAddress,
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
    /// The name in errors.
    pub(super) fn target(&self) -> String {
        match &self.address {
            RestAddress::Unix(path) => format!("slurmrestd at {}", path.display()),
            RestAddress::Tcp(address) => format!("slurmrestd at {address}"),
        }
    }

    /// The newest paths that it has, and the number of calls to find them.
    pub(super) async fn paths(
        &self,
        time_max: Duration,
        bytes_max: u64,
    ) -> Result<(Paths, u32), SchedulerError> {
        let mut calls = 0;
        for path in ["/openapi/v3", "/openapi"] {
            calls += 1;
            let Reply::Body(body) = self.get(path, time_max, bytes_max).await? else { continue };
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
            if matches!(self.get(&ping, time_max, bytes_max).await?, Reply::Body(_)) {
                let jobs = format!("/slurm/v0.0.{version}/jobs");
                let accounting = format!("/slurmdb/v0.0.{version}/jobs");
                return Ok((Paths { jobs, accounting }, calls));
            }
        }
        let what = format!("it has no jobs of version v0.0.{} or later", VERSIONS.start());
        Err(SchedulerError::Answer { target: self.target(), what })
    }

    /// Gets a path.
    pub(super) async fn get(
        &self,
        path: &str,
        time_max: Duration,
        bytes_max: u64,
    ) -> Result<Reply, SchedulerError> {
        let call = async {
            match &self.address {
                RestAddress::Unix(socket) => {
                    let stream = UnixStream::connect(socket).await;
                    self.call(stream.map_err(|error| self.broken(&error))?, path, bytes_max).await
                }
                RestAddress::Tcp(address) => {
                    let stream = TcpStream::connect(address.as_str()).await;
                    self.call(stream.map_err(|error| self.broken(&error))?, path, bytes_max).await
                }
            }
        };
        let silent = |_| SchedulerError::Silent { target: self.target(), time: time_max };
        tokio::time::timeout(time_max, call).await.map_err(silent)?
    }

    async fn call(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        path: &str,
        bytes_max: u64,
    ) -> Result<Reply, SchedulerError> {
        let request = self.request(path)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error))?;
        // Aborted when this call ends, in any case.
        let mut task = JoinSet::new();
        task.spawn(connection);
        let answer = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        let limit = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let body = Limited::new(answer.into_body(), limit).collect().await;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                let what = format!("more than {bytes_max} bytes");
                return SchedulerError::Answer { target: self.target(), what };
            }
            self.broken(&*error)
        })?;
        self.reply(status, body.to_bytes())
    }

    fn reply(&self, status: StatusCode, body: Bytes) -> Result<Reply, SchedulerError> {
        match status {
            StatusCode::NOT_MODIFIED => Ok(Reply::Unchanged),
            StatusCode::NOT_FOUND => Ok(Reply::NoPath),
            // Slurm reports errors as JSON, with status 500.
            status if status.is_success() || body.first() == Some(&b'{') => Ok(Reply::Body(body)),
            status => {
                let words: String =
                    String::from_utf8_lossy(&body).trim().chars().take(300).collect();
                let what = format!("{status}: {words}");
                Err(SchedulerError::Rejected { target: self.target(), what })
            }
        }
    }

    fn request(&self, path: &str) -> Result<Request<Empty<Bytes>>, SchedulerError> {
        let host = match &self.address {
            RestAddress::Unix(_) => "localhost",
            RestAddress::Tcp(address) => address,
        };
        let mut request =
            Request::get(path).header("host", host).header("accept", "application/json");
        if let Some(file) = &self.token_file {
            let token = read_token(file).map_err(|error| SchedulerError::Unreachable {
                target: self.target(),
                what: format!("the token in {}: {error}", file.display()),
            })?;
            request = request.header("x-slurm-user-token", token);
            if let Some(user) = &self.user {
                request = request.header("x-slurm-user-name", user);
            }
        }
        let unfit = |error: hyper::http::Error| self.broken(&error);
        request.body(Empty::new()).map_err(unfit)
    }

    fn broken(&self, error: &dyn std::error::Error) -> SchedulerError {
        let mut what = error.to_string();
        if let Some(cause) = error.source() {
            what = format!("{what}: {cause}");
        }
        SchedulerError::Unreachable { target: self.target(), what }
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
