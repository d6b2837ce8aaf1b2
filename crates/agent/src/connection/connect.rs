//! Which server, and what is shown to it: shared by the thread that reads the settings and the one that
//! sends.

use crate::connection::endpoints::server_asked;
use crate::connection::http::Http;
use config::{AgentConfig, ServerSettings, ServerUrl};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The settings of the connection.
#[derive(Debug)]
pub(crate) struct Connect {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    settings: ServerSettings,
    spool_bytes_per_second: u64,
    /// Whether samples stay here, so that no server is looked for.
    local: bool,
    /// Where the last client sends to.
    used: Option<ServerUrl>,
}

impl Connect {
    pub(crate) fn new(config: &AgentConfig) -> Self {
        let settings = config.server.clone();
        let spool_bytes_per_second = config.spool.spool_send_bytes_per_second.0;
        Self {
            state: Mutex::new(State {
                settings,
                spool_bytes_per_second,
                local: config.local,
                used: None,
            }),
        }
    }

    /// Takes other settings.
    pub(crate) fn set(&self, config: &AgentConfig) {
        let mut state = self.state();
        state.settings = config.server.clone();
        state.local = config.local;
        state.spool_bytes_per_second = config.spool.spool_send_bytes_per_second.0;
    }

    /// How fast the spool may be sent.
    pub(crate) fn spool_bytes_per_second(&self) -> u64 {
        self.state().spool_bytes_per_second
    }

    /// A new client; its token and certificates are read anew. `None`, and said why, if there is no
    /// server or something of it cannot be read.
    pub(crate) fn client(&self) -> Option<Http> {
        let mut state = self.state();
        let Some(url) = state.url() else {
            if state.local {
                log::info!("samples stay here; `--server` on the command line sends them");
                return None;
            }
            log::warn!("no server: none is set and none runs here; give `server`");
            return None;
        };
        match Http::new(&url, &state.settings) {
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

    /// Whether the server that runs here is at another address than the one last used.
    pub(crate) fn has_moved(&self) -> bool {
        let state = self.state();
        state.url() != state.used
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn url(&self) -> Option<ServerUrl> {
        if self.local { None } else { server_asked(&self.settings) }
    }
}
