//! After SIGTERM the server shows an agent as stopped, whenever the signal arrives: before the first batch,
//! during a connection, or between two batches, with and without TLS.

use crate::common::programs::{Running, Server, agent, output, program, until};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Number of agents of each kind that `make test` stops; `STOPS` sets more.
const STOPS: u64 = 12;
/// Number of agents that run in parallel.
const AT_A_TIME: u64 = 4;
/// Latest stop of an agent after its start, in milliseconds; the other stops are spread over the time before
/// it.
const LATEST_MS: u64 = 2400;

/// Starts agents, and stops each at a different time after its start. Returns the nodes that the server does
/// not show as stopped.
fn not_stopped(server: &Server, dir: &Path, more: &[&str]) -> Vec<String> {
    let stops = std::env::var("STOPS").map_or(STOPS, |stops| stops.parse().unwrap());
    let start = |i: u64| {
        let mut command = agent();
        command.args(["--server", &server.url, "--period", "1s", "--device", &format!("n{i}")]);
        command.arg("--spool").arg(dir.join(format!("spool-{i}"))).args(more);
        Running::start(&mut command)
    };
    for first in (0..stops).step_by(4) {
        let round = first..stops.min(first + AT_A_TIME);
        std::thread::scope(|scope| {
            for i in round {
                scope.spawn(move || {
                    let mut agent = start(i);
                    // The agent installs its signal handlers before it creates its spool.
                    until("the agent's spool", Duration::from_secs(20), || {
                        dir.join(format!("spool-{i}/lock")).is_file().then_some(())
                    });
                    std::thread::sleep(Duration::from_millis(LATEST_MS * (i * 37 % 101) / 101));
                    assert_eq!(agent.end(), 0, "n{i}");
                });
            }
        });
    }
    let arguments = ["nodes", "--server", &server.url];
    let (_, out, errors) = output(Command::new(program("jobmeter")).args(arguments).args(more));
    println!("{out}{errors}");
    let nodes: Vec<&str> =
        out.lines().filter(|line| line.starts_with('n') && !line.starts_with("node")).collect();
    // An agent that stops before its first reading has sent no sample, so it is no node.
    let enough = usize::try_from(stops / 2).unwrap();
    assert!(nodes.len() >= enough, "{} of {stops} agents are known:\n{out}", nodes.len());
    nodes.into_iter().filter(|line| !line.contains("stopped")).map(str::to_owned).collect()
}

#[test]
fn an_agent_that_ends_is_shown_as_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    assert_eq!(not_stopped(&server, dir.path(), &[]), [""; 0]);
}

#[test]
fn an_agent_that_ends_over_tls_is_shown_as_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let (cert, key) = (file("cert", certificate.pem()), file("key", key.serialize_pem()));
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let ca = file("ca", authority.pem());
    let server = Server::start(&dir.path().join("data"), &["--cert", &cert, "--key", &key]);
    assert_eq!(not_stopped(&server, dir.path(), &["--ca", &ca]), [""; 0]);
}

#[test]
fn a_retired_node_is_forgotten_until_its_agent_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut server = Server::start(&data, &[]);
    let jobmeter = |url: &str, words: &[&str]| {
        output(Command::new(program("jobmeter")).args(["--server", url, "nodes"]).args(words))
    };
    let start = |url: &str| {
        let mut command = agent();
        command.args(["--server", url, "--period", "1s", "--device", "n1"]);
        command.arg("--spool").arg(dir.path().join("spool"));
        let agent = Running::start(&mut command);
        until("the node is alive", Duration::from_secs(30), || {
            let (code, out, _) = jobmeter(url, &[]);
            (code == 0 && out.contains("alive")).then_some(())
        });
        agent
    };
    let mut agent = start(&server.url);
    let (code, _, error) = jobmeter(&server.url, &["--forget", "n1"]);
    assert!(code == 2 && error.contains("node n1 sends samples: stop its agent first"), "{error}");
    assert_eq!(agent.end(), 0);
    let (code, _, error) = jobmeter(&server.url, &["--forget", "n11"]);
    assert!(code == 1 && error.contains("did you mean `n1`?"), "{error}");
    let (code, out, error) = jobmeter(&server.url, &["--forget", "n1"]);
    let message = "n1 is forgotten; retention deletes its samples\n";
    assert_eq!((code, &*out), (0, message), "{error}");
    assert_eq!(server.running.end(), 0);
    server.again(&data, &[]);
    assert_eq!(jobmeter(&server.url, &["--json"]).1, "[]\n");
    drop(start(&server.url));
    // A node may be new, so its jobs are registered.
    for arguments in
        [["job", "start", "--device", "n2"].as_slice(), &["run", "--device", "n2", "--", "true"]]
    {
        let mut command = Command::new(program("jobmeter"));
        let (code, _, error) = output(command.args(["--server", &server.url]).args(arguments));
        let warning = "no node `n2` has reported to the server yet; did you mean `n1`?";
        assert!(code == 0 && error.contains(warning), "{error}");
    }
}
