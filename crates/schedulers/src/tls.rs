//! TLS to schedulers, by rustls. Each certificate is verified.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The authorities that may sign the certificate of a scheduler.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ClientConfig>);

/// Why the certificates of the authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate is malformed.
    #[error("invalid certificate in PEM format: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// No certificate of an authority is in it.
    #[error("it contains no certificate of an authority in PEM format")]
    None,
    /// rustls rejects the configuration.
    #[error(transparent)]
    Config(#[from] rustls::Error),
}

impl Tls {
    /// Reads the certificates of the authorities, in PEM format. Certificates that rustls cannot use are skipped,
    /// because the bundles of systems contain some.
    ///
    /// # Errors
    /// The text is malformed, or holds no usable certificate.
    pub fn new(authorities: &[u8]) -> Result<Self, TlsError> {
        let certificates =
            CertificateDer::pem_slice_iter(authorities).collect::<Result<Vec<_>, _>>()?;
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(certificates).0 == 0 {
            return Err(TlsError::None);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// Encrypts a connection to the host `name`, and verifies the certificate of the host.
    pub(crate) async fn connect(
        &self,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }

    /// The same for connections of `tokio_postgres`.
    pub(crate) fn for_postgres(&self) -> MakeRustlsConnect {
        MakeRustlsConnect::new((*self.0).clone())
    }
}
