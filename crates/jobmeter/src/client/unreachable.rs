//! Explains why a server is unreachable, and what to do.

use rustls::{CertificateError, Error as Tls};

use std::io::ErrorKind;

/// The explanation for a server that did not answer; the caller appends the error itself.
pub(crate) fn unreachable(url: &str, error: &ureq::Error) -> String {
    let tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    };
    if let Some(error) = tls {
        return format!("TLS with {url} failed: {}", of_tls(error));
    }
    if let ureq::Error::Io(error) = error
        && error.kind() == ErrorKind::PermissionDenied
    {
        return format!("{url} is not trusted");
    }
    if matches!(error, ureq::Error::Http(_) | ureq::Error::BadUri(_)) {
        return format!("the query for {url} is too long or invalid; shorten it");
    }
    if url.starts_with("http://") && answers_otherwise(error) {
        let rest = url.trim_start_matches("http://");
        return format!("{url} does not speak HTTP; if it uses TLS, write https://{rest}");
    }
    format!(
        "no server responds at {url}{}; start one with `jobmeter up`, or choose one with --server",
        recorded(url)
    )
}

/// Names the file in which a server of this node recorded this URL. The file of a killed server remains.
fn recorded(url: &str) -> String {
    let root = rustix::process::geteuid().is_root();
    let record = config::paths::server_record(root, &|name: &str| std::env::var(name).ok());
    let record = record.filter(|(_, known)| known.as_str().trim_end_matches('/') == url);
    record.map_or_else(String::new, |(file, _)| {
        format!(", which its last server on this node recorded in {}", file.display())
    })
}

fn of_tls(error: &Tls) -> &'static str {
    match error {
        Tls::InvalidMessage(_) => {
            "the response is not TLS; if the server does not use TLS, write \
                                   http://"
        }
        Tls::AlertReceived(_) => {
            "the server ended the TLS connection; it may need another certificate in --cert and \
             --key"
        }
        Tls::InvalidCertificate(error) => of_certificate(error),
        _ => "check its certificate, and --ca, --cert and --key",
    }
}

fn of_certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::UnknownIssuer => {
            "its certificate has an unknown issuer; add the issuer's certificate with --ca FILE"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name; use a name of the certificate, or install a \
             certificate with this name"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired; install a new one"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; check both clocks"
        }
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it uses a CA certificate as its own; install a certificate signed by the CA \
             (basicConstraints CA:FALSE), and add the CA certificate with --ca FILE"
        }
        _ => "its certificate is not trusted; add its CA certificate with --ca FILE",
    }
}

/// Whether a program answers at this address with another protocol.
fn answers_otherwise(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Protocol(_) => true,
        ureq::Error::Io(error) => {
            matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use ureq::tls::TlsConfig;

    /// The explanation for a server that answers with these bytes.
    fn message_for(scheme: &str, answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let bytes_read = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(answer).unwrap();
            bytes_read
        });
        // The answer contains no certificate to verify.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder().disable_verification(true);
        let tls = tls.unversioned_rustls_crypto_provider(provider).build();
        let agent: ureq::Agent = ureq::Agent::config_builder().tls_config(tls).build().into();
        let error = agent.get(&url).call().unwrap_err();
        assert!(server.join().unwrap() > 0);
        unreachable(&url, &error)
    }

    #[test]
    fn a_server_that_speaks_something_else() {
        // A fatal TLS alert: the answer of a TLS server to plain HTTP.
        let explain_tls = message_for("http", &[21, 3, 3, 0, 2, 2, 10]);
        assert!(explain_tls.contains("if it uses TLS, write https://127.0.0.1:"), "{explain_tls}");
        let closed = message_for("http", b"");
        assert!(closed.contains("write https://"), "{closed}");
        let plain = message_for("https", b"HTTP/1.1 400 Bad Request\r\n\r\n");
        assert!(plain.contains("if the server does not use TLS, write http://"), "{plain}");
        let alert = message_for("https", &[21, 3, 3, 0, 2, 2, 42]);
        assert!(alert.contains("--cert and --key"), "{alert}");
    }

    #[test]
    fn a_server_that_is_not_there() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("http://{free}");
        let error = ureq::get(&url).call().unwrap_err();
        let message_for = unreachable(&url, &error);
        assert!(
            message_for.contains("no server responds") && message_for.contains("jobmeter up"),
            "{message_for}"
        );
    }

    #[test]
    fn errors_of_a_certificate_are_reported_with_what_to_do() {
        let message_for = |error: Tls| {
            let error = ureq::Error::Io(std::io::Error::new(ErrorKind::InvalidData, error));
            unreachable("https://h", &error)
        };
        for (error, want) in [
            (CertificateError::UnknownIssuer, "--ca FILE"),
            (CertificateError::NotValidForName, "another name"),
            (CertificateError::Expired, "expired"),
            (CertificateError::BadSignature, "--ca FILE"),
        ] {
            let message_for = message_for(Tls::InvalidCertificate(error));
            assert!(
                message_for.starts_with("TLS with https://h failed: ")
                    && message_for.contains(want),
                "{message_for}"
            );
        }
    }
}
