//! The certificates that targets present, to pin them.

use super::http;
use super::reading::Failure;
use super::tls;
use crate::descriptions::{Target, TlsVerification};
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time for a connection.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The SHA-256 of the certificate that a target presents; `None` if the system's roots verify it.
///
/// # Errors
/// The target cannot be reached, or speaks no TLS.
pub(super) async fn presented(target: &Target) -> Result<Option<[u8; 32]>, Failure> {
    if let Ok(config) = tls::client(&TlsVerification::SystemRoots)
        && connect(target, &config).await.is_ok()
    {
        return Ok(None);
    }
    connect(target, &tls::client(&TlsVerification::Insecure)?).await
}

async fn connect(target: &Target, config: &Arc<ClientConfig>) -> Result<Option<[u8; 32]>, Failure> {
    let connection = async {
        let stream = TcpStream::connect((&*target.host, target.port)).await;
        let stream =
            stream.map_err(|error| Failure::unreachable(format!("cannot connect: {error}")))?;
        http::connect_tls(target, config, stream).await
    };
    let late = |_| Failure::timeout(format!("no answer within {} s", TIME_MAX.as_secs()));
    let stream = timeout(TIME_MAX, connection).await.map_err(late)??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
    let digest = certificate.map(|one| ring::digest::digest(&ring::digest::SHA256, one));
    Ok(digest.and_then(|digest| digest.as_ref().try_into().ok()))
}
