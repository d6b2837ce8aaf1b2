//! Server and credentials. The thread that reads the settings shares them with the sender thread.

use crate::connection::endpoints::requested_server;
use crate::connection::http::Http;
use config::{AgentConfig, ServerSettings, ServerUrl, SpoolSettings};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The program of agents.
pub(crate) const AGENT: &str = "jobmeter-agent";

/// Settings of a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The server and the credentials for it.
    pub server: &'a ServerSettings,
    /// Limits of the spool.
    pub spool: &'a SpoolSettings,
    /// Whether samples stay on this machine, so that no server is used.
    pub local: bool,
    /// The program that sends.
    pub program: &'static str,
}

impl<'a> From<&'a AgentConfig> for Settings<'a> {
    fn from(AgentConfig { server, spool, local, .. }: &'a AgentConfig) -> Self {
        Self { server, spool, local: *local, program: AGENT }
    }
}

/// The settings of the connection.
#[derive(Debug)]
pub(crate) struct Connect {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    settings: ServerSettings,
    spool_bytes_per_second: u64,
    /// Whether samples stay on this machine, so that no server is used.
    local: bool,
    program: &'static str,
    /// Server of the last client.
    used: Option<ServerUrl>,
}

impl Connect {
    pub(crate) fn new(settings: Settings<'_>) -> Self {
        Self { state: Mutex::new(State::new(settings, None)) }
    }

    /// Replaces the settings.
    pub(crate) fn set(&self, settings: Settings<'_>) {
        let mut state = self.state();
        *state = State::new(settings, state.used.take());
    }

    /// Rate limit for sending the spool.
    pub(crate) fn spool_bytes_per_second(&self) -> u64 {
        self.state().spool_bytes_per_second
    }

    /// Creates a client and reads its token and certificates again. Returns `None`, and logs the reason, without a
    /// server or if a file cannot be read.
    pub(crate) fn client(&self) -> Option<Http> {
        let mut state = self.state();
        let Some(url) = state.url() else {
            if state.local {
                log::info!("samples are not sent; add `--server` to the command line to send them");
                return None;
            }
            log::warn!(
                "no server: `server` is not set, and no local server is running; set \
                        `server`"
            );
            return None;
        };
        match Http::new(&url, &state.settings, state.program) {
            Ok(http) => {
                if state.used.as_ref() != Some(&url) {
                    log::info!("batches go to {}", http.url());
                    if url.is_plain() && !url.is_local() && state.settings.token_file.is_some() {
                        log::warn!("everyone on the way can read the token: {}", http.url());
                    }
                }
                state.used = Some(url);
                Some(http)
            }
            Err(why) => {
                log::error!("batches wait: {why}");
                None
            }
        }
    }

    /// Whether the address of the local server differs from the one last used.
    pub(crate) fn has_moved(&self) -> bool {
        let state = self.state();
        state.url() != state.used
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(settings: Settings<'_>, used: Option<ServerUrl>) -> Self {
        let Settings { server, spool, local, program } = settings;
        let spool_bytes_per_second = spool.spool_send_bytes_per_second.0;
        Self { settings: server.clone(), spool_bytes_per_second, local, program, used }
    }

    fn url(&self) -> Option<ServerUrl> {
        if self.local { None } else { requested_server(&self.settings) }
    }
}
