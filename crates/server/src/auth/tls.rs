//! TLS: the server's certificate and key, and the CAs of client certificates.
//!
//! Every configuration names its crypto provider, `ring`: with two providers in one program rustls panics
//! at run time. A reloaded configuration applies to new connections only.

use config::{SecretFileError, read_secret_file};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of the TLS files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server certificate and its intermediate certificates; PEM.
    pub cert: PathBuf,
    /// The private key; PEM, not accessible to other users.
    pub key: PathBuf,
    /// CA certificates for client certificates; PEM. A client certificate remains optional.
    pub client_ca: Option<PathBuf>,
}

/// A reason why the TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The key file cannot be read, or other users can access it.
    #[error(transparent)]
    Key(#[from] SecretFileError),
    /// A file is not PEM, or lacks the expected content.
    #[error("{}: {what}", path.display())]
    Pem {
        /// Path of the file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The key belongs to another certificate.
    #[error("the key {} is not of the certificate {}; set `key` to the key that it was made with", key.display(), cert.display())]
    Pair {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
    /// The files contradict each other, or have an unsupported format.
    #[error("{} and {}: {error}", files.cert.display(), files.key.display())]
    Config {
        /// Paths of the files.
        files: Box<TlsFiles>,
        /// The error of rustls.
        error: rustls::Error,
    },
}

/// Returns the single crypto provider.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Errors, each with the setting that names its file.
pub(crate) type TlsErrors = Vec<(&'static str, TlsError)>;

/// Reads the files.
///
/// # Errors
/// Every file that cannot be read or parsed, or a key that other users can access or that does not match the
/// certificate.
pub(crate) fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsErrors> {
    let chain = certificates(&files.cert);
    let key = private_key(&files.key);
    let authorities = files.client_ca.as_deref().map(authorities).transpose();
    let (chain, key, verifier) = match (chain, key, authorities) {
        (Ok(chain), Ok(key), Ok(verifier)) => (chain, key, verifier),
        (chain, key, verifier) => {
            let errors = [("cert", chain.err()), ("key", key.err()), ("client_ca", verifier.err())];
            return Err(errors
                .into_iter()
                .filter_map(|(key, error)| Some((key, error?)))
                .collect());
        }
    };
    configured(files, chain, key, verifier).map_err(|error| vec![("cert", error)])
}

fn configured(
    files: &TlsFiles,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let wrong = |error| TlsError::Config { files: Box::new(files.clone()), error };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Pair { cert: files.cert.clone(), key: files.key.clone() }
        }
        other => wrong(other),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(read_secret_file(path)?.as_bytes())
        .map_err(|error| no_pem(path, "private key", &error))
}

/// The verifier of client certificates, which remain optional.
fn authorities(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |what: String| TlsError::Pem { path: path.to_owned(), what };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| wrong(error.to_string()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = config::read_small(path, config::CERTIFICATES_BYTES_MAX)
        .map_err(|error| TlsError::Read { path: path.to_owned(), error })?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| no_pem(path, "certificate", &error))?;
    if certificates.is_empty() {
        return Err(no_pem(path, "certificate", &pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

fn no_pem(path: &Path, want: &str, error: &pem::Error) -> TlsError {
    TlsError::Pem { path: path.to_owned(), what: format!("no {want} in PEM: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use std::os::unix::fs::PermissionsExt;

    fn files(dir: &Path) -> TlsFiles {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = TlsFiles { cert: dir.join("cert"), key: dir.join("key"), client_ca: None };
        std::fs::write(&files.cert, cert.pem()).unwrap();
        std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
        files
    }

    fn texts(files: &TlsFiles) -> Vec<String> {
        load(files).unwrap_err().iter().map(|(_, error)| error.to_string()).collect()
    }

    #[test]
    fn errors_of_the_files_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        assert!(load(&files).is_ok());
        assert!(load(&TlsFiles { client_ca: Some(files.cert.clone()), ..files.clone() }).is_ok());

        let swapped = TlsFiles { cert: files.key.clone(), ..files.clone() };
        assert!(texts(&swapped)[0].contains("no certificate in PEM"));
        let missing = TlsFiles { cert: dir.path().join("none"), ..files.clone() };
        assert!(matches!(&*load(&missing).unwrap_err(), [("cert", TlsError::Read { .. })]));
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(texts(&files)[0].contains("chmod 600"));
        // Every file is checked, also beside an error of another one.
        let wrong = TlsFiles { client_ca: Some(files.key.clone()), ..missing };
        let keys: Vec<&str> = load(&wrong).unwrap_err().iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["cert", "key", "client_ca"]);
    }

    #[test]
    fn a_key_of_another_certificate_is_rejected() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mixed = TlsFiles { key: files(b.path()).key, ..files(a.path()) };
        let error = &texts(&mixed)[0];
        assert!(error.contains("is not of the certificate"), "{error}");
    }
}
