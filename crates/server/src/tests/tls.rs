//! TLS: a certificate of the server, and an agent's certificate instead of a token.

use super::ingest::{HEADERS, batch, frame, statuses};
use super::{Answer, Site, answer, request, secret};
use crate::Limits;
use crate::auth::tls::provider;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Write;
use std::sync::Arc;
use wire::AckStatus;

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate for a name, and returns it with its key.
    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    fn identity(&self, name: &str) -> Identity {
        let (certificate, key) = self.issue(name);
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

fn send(
    site: &Site,
    trusted: &Authority,
    shown: Option<Identity>,
    line: &str,
    headers: &str,
    body: &[u8],
) -> Result<Answer, String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.0.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
    };
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(client, site.connect());
    stream.write_all(&request(line, headers, body)).map_err(|error| error.to_string())?;
    answer(&mut stream)
}

fn write(dir: &std::path::Path, authority: &Authority) -> [String; 3] {
    let (certificate, key) = authority.issue("localhost");
    let files = ["cert.pem", "key.pem", "ca.pem"].map(|name| dir.join(name));
    std::fs::write(&files[0], certificate.pem()).unwrap();
    secret(&files[1], &key.serialize_pem());
    std::fs::write(&files[2], authority.0.pem()).unwrap();
    files.map(|file| file.to_str().unwrap().to_owned())
}

#[test]
fn an_agents_certificate_is_its_token() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let [cert, key, ca] = write(dir.path(), &authority);
    let flags = [("cert", &*cert), ("key", &key), ("client_ca", &ca)];
    let site = Site::within(dir, Limits::default(), &flags);
    assert!(site.server.as_ref().unwrap().url().starts_with("https://127.0.0.1:"));
    let post = |shown, origin: &str| {
        let body = frame(&batch(origin, 0));
        send(&site, &authority, shown, "POST /v1/batches", HEADERS, &body)
    };
    let n1 = authority.identity("n1");
    let acks = |answer: Result<Answer, String>| statuses(&answer.unwrap());
    assert_eq!(acks(post(Some((n1.0.clone(), n1.1.clone_key())), "n1")), [AckStatus::Stored]);
    assert_eq!(acks(post(Some(n1), "n8")), [AckStatus::RejectedTemporarily]);
    // Without a certificate the kernel identifies the caller: this test's user, who is the server's own.
    assert_eq!(acks(post(None, "n8")), [AckStatus::Stored]);
    // A certificate of another authority is not accepted.
    assert!(post(Some(Authority::new().identity("n9")), "n9").is_err());
    let before = "jobmeter_connections_total{outcome=\"handshake_failed\"}";
    let get = |path: &str| {
        send(&site, &authority, None, &format!("GET {path}"), "Host: localhost\r\n", b"").unwrap()
    };
    assert!(get("/metrics").text().contains(&format!("{before} 1")), "{}", get("/metrics").text());
    let always = get("/api/v1/ready");
    assert_eq!(always.header("strict-transport-security"), Some("max-age=31536000"));
    // A client without TLS gets no response, and does not block others.
    let mut plain = site.connect();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(answer(&mut plain).is_err());
    assert_eq!(get("/api/v1/ready").status, 200);
}

#[test]
fn a_new_certificate_holds_for_new_connections_and_a_bad_one_for_none() {
    let (dir, old) = (tempfile::tempdir().unwrap(), Authority::new());
    let [cert, key, _] = write(dir.path(), &old);
    let flags = [("cert", &*cert), ("key", &*key)];
    let site = Site::within(dir, Limits::default(), &flags);
    let server = site.server.as_ref().unwrap();
    let reload = || site.runtime.block_on(server.reload(&Site::config(&site.dir, &flags)));
    let ready = |trusted: &Authority| {
        let line = "GET /api/v1/ready";
        send(&site, trusted, None, line, "Host: localhost\r\n", b"")
            .map(|answer| answer.status)
            .ok()
    };
    assert_eq!(ready(&old), Some(200));
    let new = Authority::new();
    write(site.dir.path(), &new);
    reload().unwrap();
    assert_eq!((ready(&new), ready(&old)), (Some(200), None));
    std::fs::write(&cert, "no certificate").unwrap();
    assert!(reload().unwrap_err().to_string().contains("cert.pem"));
    assert_eq!(ready(&new), Some(200));
    let without = site.runtime.block_on(server.reload(&Site::config(&site.dir, &[])));
    assert!(without.unwrap_err().to_string().contains("restart"));
}
