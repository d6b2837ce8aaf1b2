//! Tests of the sender.

#[path = "../../../tests/server/mod.rs"]
mod server;

use super::*;
use crate::common::clock::MachineClock;
use crate::sending::outbox::tests::{Bench, bench};
use config::{AgentConfig, ConfigFile, ConfigInputs, Raw};
use model::Cause;
use model::JobId;
use model::setting::{Rejection, RejectionCode, UnreadReason, UnreadSource};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use server::{Reply, Server, answer};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use wire::AckStatus;

struct Rig {
    bench: Bench,
    orders: SyncSender<Order>,
    wanted: Receiver<Wanted>,
    thread: JoinHandle<()>,
}

fn config(url: &str, more: &[(&str, &str)]) -> AgentConfig {
    let flags = [("server", url), ("answer_time_max", "400ms")];
    let flags = flags.iter().chain(more);
    let flags =
        flags.map(|(key, text)| ((*key).to_owned(), Raw::One((*text).to_owned()))).collect();
    let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
    config::load_agent(&given, &[]).unwrap().config
}

impl Rig {
    fn new(config: &AgentConfig) -> Self {
        let bench = bench();
        let (orders, take_orders) = sync_channel(16);
        let (want, wanted) = sync_channel(4);
        let (waker, _) = UnixStream::pair().unwrap();
        let sender = Sender::new(
            Arc::clone(&bench.outbox),
            Arc::clone(&bench.counters),
            Arc::new(MachineClock),
            (take_orders, want, waker),
            Arc::new(Connect::new(config.into())),
            Backoff::new(Duration::from_millis(10), 1),
            Duration::ZERO,
        );
        let thread = std::thread::spawn(move || sender.run());
        Self { bench, orders, wanted, thread }
    }

    fn sent(&self) -> u64 {
        self.bench.counters.sent_batches.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.orders.send(Order::End).unwrap();
        self.bench.outbox.ring();
        self.bench.outbox.end(Duration::ZERO);
        self.thread.join().unwrap();
    }
}

/// Waits until a condition is true, at most 10 s.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come");
}

#[test]
fn batches_come_with_their_headers_over_one_connection() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let rig = Rig::new(&config(&server.url, &[("token_file", token.to_str().unwrap())]));
    rig.bench.counters.wait_us.store(5_000_000, Ordering::Relaxed);
    for second in 1..=3 {
        rig.bench.push(second);
        until("the batch", || rig.sent() == u64::try_from(second).unwrap());
    }
    let posts = server.posts();
    assert_eq!(server.seqs(), [1, 2, 3]);
    assert!(posts.iter().all(|post| post.connection == 0), "kept alive");
    let head = posts[0].head.join("\n").to_lowercase();
    for want in [
        "post /v1/batches http/1.1",
        "content-type: application/x-jobmeter-batches",
        "authorization: bearer s3cret",
        "user-agent: jobmeter-agent/",
        "x-jobmeter-status: ",
    ] {
        assert!(head.contains(want), "{want} is not in {head}");
    }
    let status = &posts[0].status;
    assert!(status.now > Timestamp(0) && !status.stops, "{status:?}");
    assert_eq!((status.generation, status.wait_us), (0, 5_000_000));
    rig.end();
}

#[test]
fn a_server_that_is_slow_closes_or_talks_nonsense_gets_it_again() {
    let server = Server::start(Box::new(|number, post| match number {
        0 => Reply::Silence,
        1 => Reply::Close,
        2 => Reply::Status(503, "busy"),
        3 => Reply::Status(200, "\u{ff}nonsense"),
        4 => Reply::Answer(Answer::default()),
        5 => Reply::All(AckStatus::RejectedTemporarily),
        _ => Reply::Answer(answer(post, AckStatus::Duplicate)),
    }));
    let rig = Rig::new(&config(&server.url, &[]));
    rig.bench.push(1);
    until("the batch", || rig.sent() == 1);
    assert_eq!(server.seqs(), [1; 7]);
    assert_eq!(rig.bench.gaps(), []);
    rig.end();
}

#[test]
fn one_bad_batch_among_many_is_found_and_costs_itself() {
    let server = Server::start(Box::new(|_, post| {
        if post.frames.iter().any(|(_, seq)| *seq == 5) {
            Reply::Status(422, "batch 5 is none")
        } else {
            Reply::All(AckStatus::Stored)
        }
    }));
    let config = config(&server.url, &[]);
    let bench_first = Rig::new(&config);
    for second in 1..=8 {
        bench_first.bench.push(second);
    }
    let counters = &bench_first.bench.counters;
    until("the refusal", || counters.rejected_batches.load(Ordering::Relaxed) == 1);
    until("the others", || bench_first.sent() == 7);
    let gaps = bench_first.bench.gaps();
    assert_eq!(gaps.len(), 1);
    assert_eq!((gaps[0].cause, &*gaps[0].detail), (Cause::Rejected, "batch 5 is none"));
    bench_first.end();
}

#[test]
fn another_token_is_taken_when_the_old_one_is_no_longer_known() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "old\n").unwrap();
    let rewrite = token.clone();
    let server = Server::start(Box::new(move |number, _| {
        if number == 0 {
            std::fs::write(&rewrite, "new\n").unwrap();
            return Reply::Status(401, "unknown token");
        }
        Reply::All(AckStatus::Stored)
    }));
    let rig = Rig::new(&config(&server.url, &[("token_file", token.to_str().unwrap())]));
    rig.bench.push(1);
    until("the batch", || rig.sent() == 1);
    let head = server.posts()[1].head.join("\n").to_lowercase();
    assert!(head.contains("authorization: bearer new"), "{head}");
    rig.end();
}

#[test]
fn a_request_of_the_server_is_applied_once_and_its_generation_sent_back() {
    let server = Server::start(Box::new(|number, post| {
        let mut answer = answer(post, AckStatus::Stored);
        answer.generation = 7;
        if number == 0 {
            answer.settings = b"any bytes".to_vec();
        }
        answer.local_jobs = vec![(JobId::new(12).unwrap(), 1000)];
        Reply::Answer(answer)
    }));
    let rig = Rig::new(&config(&server.url, &[]));
    rig.bench.push(1);
    let wanted = rig.wanted.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(wanted, Wanted::Settings { generation: 7, settings: b"any bytes".to_vec() });
    let jobs = rig.wanted.recv_timeout(Duration::from_secs(10)).unwrap();
    let local = vec![(JobId::new(12).unwrap(), 1000)];
    assert_eq!(jobs, Wanted::Jobs(WantedJobs { local, ..WantedJobs::default() }));
    let rejected = vec![Rejection {
        setting: "sources.x".to_owned(),
        code: RejectionCode::Unknown,
        reason: "no such source".to_owned(),
        until: None,
    }];
    let source = "load".to_owned();
    let unread = vec![UnreadSource { source, reason: UnreadReason::Server, optional: Vec::new() }];
    rig.orders.send(Order::Generation { generation: 7, rejected: rejected.clone() }).unwrap();
    rig.orders.send(Order::Unread(unread.clone())).unwrap();
    rig.bench.outbox.ring();
    rig.bench.push(2);
    until("the batch", || rig.sent() == 2);
    let posts = server.posts();
    let status = &posts[1].status;
    assert_eq!((status.generation, &status.rejected, &status.unread), (7, &rejected, &unread));
    assert_eq!(posts[0].status.unread, []);
    assert!(rig.wanted.try_recv().is_err());
    rig.end();
}

#[test]
fn the_spool_is_sent_at_its_rate_and_live_batches_get_through() {
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    let config = config(&server.url, &[("spool_send_bytes_per_second", "1KiB")]);
    let rig = Rig::new(&config);
    // These frames are in the spool before the first server starts.
    let bench = &rig.bench;
    bench.spool(1..=20);
    until("the spool", || server.seqs().contains(&1));
    bench.push(1000);
    until("the live one", || server.seqs().contains(&1000));
    until("all of it", || rig.sent() >= 21);
    rig.end();
}

#[test]
fn it_ends_while_the_server_is_away_and_what_it_has_is_spooled() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let rig = Rig::new(&config(&url, &[]));
    rig.bench.push(1);
    std::thread::sleep(Duration::from_millis(300));
    let counters = Arc::clone(&rig.bench.counters);
    rig.end();
    assert!(counters.spool_bytes.load(Ordering::Relaxed) > 0);
}

/// A certificate authority for tests.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate with its key for a name.
    fn issue(&self, name: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }
}

type Issued = (rcgen::Certificate, KeyPair);

/// Starts a server with TLS. With `of_clients` it requires client certificates of that authority. Also returns the
/// number of connections.
fn tls_server(
    (certificate, key): &Issued,
    of_clients: Option<&Authority>,
) -> (Server, Arc<AtomicUsize>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match of_clients {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            config.with_client_cert_verifier(clients.build().unwrap())
        }
        None => config.with_no_client_auth(),
    };
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let config = Arc::new(config);
    let script = Box::new(|_: usize, _: &server::Post| Reply::All(AckStatus::Stored));
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let server = Server::over("https", script, move |stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream)
    });
    (server, connections)
}

#[test]
fn an_agent_sends_no_token_to_a_server_of_an_unknown_authority_or_another_name() {
    let (ours, another) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (ca, token) = (file("ca", &ours.0.pem()), file("token", "s3cret\n"));
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let own = (own.self_signed(&key).unwrap(), key);
    let good = ours.issue("127.0.0.1");
    let rejected = [own, ours.issue("other.example"), another.issue("127.0.0.1")];
    let servers = rejected.each_ref().map(|issued| tls_server(issued, None));
    let agent = |server: &Server| {
        let rig = Rig::new(&config(&server.url, &[("ca", &ca), ("token_file", &token)]));
        rig.bench.push(1);
        rig
    };
    let rigs = servers.each_ref().map(|(server, _)| agent(server));
    let (trusted, _) = tls_server(&good, None);
    let trusting = agent(&trusted);
    until("the batch", || trusting.sent() == 1);
    let head = trusted.posts()[0].head.join("\n").to_lowercase();
    assert!(head.contains("authorization: bearer s3cret"), "{head}");
    for ((server, connections), rig) in servers.iter().zip(&rigs) {
        // The second attempt follows a failed one.
        until("attempts", || connections.load(Ordering::Relaxed) > 1);
        assert_eq!((rig.sent(), server.posts().len()), (0, 0));
    }
    rigs.into_iter().chain([trusting]).for_each(Rig::end);
}

#[test]
fn over_tls_both_sides_are_checked() {
    let (ours, another) = (Authority::new(), Authority::new());
    let (server, _) = tls_server(&ours.issue("127.0.0.1"), Some(&ours));
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (ca, wrong_ca) = (file("ca", &ours.0.pem()), file("wrong", &another.0.pem()));
    let (certificate, key) = ours.issue("n1");
    let (cert, key) = (file("cert", &certificate.pem()), file("key", &key.serialize_pem()));

    let distrusting =
        Rig::new(&config(&server.url, &[("ca", &wrong_ca), ("cert", &cert), ("key", &key)]));
    let nameless = Rig::new(&config(&server.url, &[("ca", &ca)]));
    let trusting = Rig::new(&config(&server.url, &[("ca", &ca), ("cert", &cert), ("key", &key)]));
    for rig in [&distrusting, &nameless, &trusting] {
        rig.bench.push(1);
    }
    until("the batch", || trusting.sent() == 1);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!((distrusting.sent(), nameless.sent()), (0, 0));
    assert_eq!(server.posts().len(), 1);
    for rig in [distrusting, nameless, trusting] {
        rig.end();
    }
}

#[test]
fn a_file_without_a_certificate_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    let tls = |path: &std::path::Path| crate::tls(Some(path), None, None).unwrap_err().to_string();
    assert!(tls(&path).contains("No such file"), "{}", tls(&path));
    std::fs::write(&path, "nothing").unwrap();
    assert!(
        tls(&path).ends_with("ca.pem: contains no certificate in PEM format"),
        "{}",
        tls(&path)
    );
}
