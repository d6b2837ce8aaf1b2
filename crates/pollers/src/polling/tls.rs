//! How the certificates of targets are verified.

use super::reading::Failure;
use crate::descriptions::TlsVerification;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;

/// The TLS configuration of a target.
pub(super) fn client(verification: &TlsVerification) -> Result<Arc<ClientConfig>, Failure> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Failure::broken(error.to_string()))?;
    let pinned = |digest| Arc::new(Pinned { digest, provider });
    let config = match verification {
        TlsVerification::SystemRoots => {
            let file = config::paths::authorities(None).map_err(Failure::denied)?;
            builder.with_root_certificates(roots(&file)?)
        }
        TlsVerification::Ca(file) => builder.with_root_certificates(roots(file)?),
        TlsVerification::Fingerprint(digest) => {
            builder.dangerous().with_custom_certificate_verifier(pinned(Some(**digest)))
        }
        TlsVerification::Insecure => {
            builder.dangerous().with_custom_certificate_verifier(pinned(None))
        }
    };
    Ok(Arc::new(config.with_no_client_auth()))
}

fn roots(file: &Path) -> Result<RootCertStore, Failure> {
    let failed = |what: String| Failure::denied(format!("{}: {what}", file.display()));
    let text = config::read_small(file, config::CERTIFICATES_BYTES_MAX);
    let text = text.map_err(|error| failed(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let mut roots = RootCertStore::empty();
    let certificates = certificates.map_err(|error| failed(error.to_string()))?;
    match roots.add_parsable_certificates(certificates).0 {
        0 => Err(failed("it contains no certificate of an authority in PEM format".into())),
        _ => Ok(roots),
    }
}

/// Accepts the certificate with a SHA-256, or any. The signatures of the handshake are verified in both cases: the
/// device has the key of the certificate.
#[derive(Debug)]
struct Pinned {
    digest: Option<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = ::ring::digest::digest(&::ring::digest::SHA256, certificate);
        match self.digest {
            Some(digest) if digest[..] != *found.as_ref() => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
