//! Warnings about settings that weaken the protection of the server.

use crate::app::App;
use crate::auth::tokens::json_web_tokens::{JwtVerifier, WEAK_SECRET};
use config::ServerConfig;
use std::net::SocketAddr;

pub(crate) fn warn_of_weak_secret(app: &App) {
    if app.live().jwt.as_ref().is_some_and(JwtVerifier::is_weak) {
        log::warn!("access.jwt_secret_file: {WEAK_SECRET}");
    }
}

pub(crate) fn warn_of_openness(app: &App, config: &ServerConfig, addresses: &[SocketAddr]) {
    let mut beyond =
        addresses.iter().filter(|address| !address.ip().to_canonical().is_loopback()).peekable();
    if config.listen.plain && beyond.peek().is_none() {
        log::info!("`plain` has no effect: the server is reachable only from this machine");
    }
    for address in beyond.filter(|_| app.live().tls.is_none()) {
        log::warn!(
            "listening on {address} without TLS (`plain`): everyone on the way can read tokens and samples"
        );
    }
}
