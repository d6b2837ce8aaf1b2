//! Verification of TLS certificates by commands: a known authority must have signed the certificate, and it
//! must name the server.

use crate::common::programs::{Server, output, program};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Authority::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a file with mode 0600, and returns its path.
fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Starts a server with a certificate for a name, signed by an authority or self-signed.
fn server(dir: &Path, name: &str, authority: Option<&Authority>) -> Server {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = match authority {
        Some(authority) => params.signed_by(&key, authority).unwrap(),
        None => params.self_signed(&key).unwrap(),
    };
    let cert = file(dir, &format!("{name}.pem"), &certificate.pem());
    let key = file(dir, &format!("{name}.key"), &key.serialize_pem());
    // Beside another server's data.
    let data = dir.join(format!("data-{name}"));
    std::fs::create_dir(&data).unwrap();
    Server::start(&data, &["--cert", &cert, "--key", &key])
}

#[test]
fn a_command_sends_nothing_to_a_server_of_an_unknown_authority_or_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, another) = (authority(), authority());
    let ca = file(dir.path(), "ca.pem", &ours.pem());
    let wrong = file(dir.path(), "wrong.pem", &another.pem());
    let token = file(dir.path(), "token", "a-token-of-somebody\n");
    let request = |server: &Server, ca: Option<&str>| {
        let mut command = Command::new(program("jobmeter"));
        command.args(["--server", &server.url, "--token-file", &token, "nodes", "--json"]);
        command.args(ca.map(|ca| ["--ca", ca]).into_iter().flatten());
        output(&mut command)
    };
    let good = server(dir.path(), "127.0.0.1", Some(&ours));
    // TLS succeeds, so the server receives the token, which it does not know.
    let (code, _, error) = request(&good, Some(&ca));
    assert!(code != 0 && error.contains("token"), "{error}");
    assert!(!error.contains("TLS with"), "{error}");
    let misnamed = server(dir.path(), "other.example", Some(&ours));
    let own = tempfile::tempdir().unwrap();
    let own = server(own.path(), "127.0.0.1", None);
    for (server, ca, why) in [
        (&good, Some(&*wrong), "certificate"),
        // Without `ca`, the command uses the system's authorities.
        (&good, None, "certificate"),
        (&misnamed, Some(&*ca), "is for another name"),
        (&own, Some(&*ca), "certificate"),
        (&own, None, "certificate"),
    ] {
        let (code, out, error) = request(server, ca);
        assert!(code != 0 && out.is_empty(), "{out}");
        assert!(error.contains(why), "{error}");
        // The failure is one of TLS: no request reached the server, and so no token did.
        assert!(
            error.contains("TLS with") || error.contains("CA certificates to verify"),
            "{error}"
        );
    }
}
