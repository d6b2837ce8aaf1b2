//! The output `elasticsearch` beside a real OpenSearch and a real Elasticsearch.
//!
//! Each test starts its server once, because a start takes 10 to 20 s.

use crate::documents::{POSITIONS, counted, expected, samples, with_positions};
use crate::kit::Site;
use crate::search_server::{Kind, SearchServer, wait_until};
use conformance::spec;
use outputs::{OutputState, OutputStatus};
use std::fs;

/// The password `test-password` as Elasticsearch's users file has it.
const PASSWORD_HASH: &str = "$2a$10$PyeKt.GiG1nnS.zAsAz8Uu0cVRj4tbXNx6.fk4rXJwOD3Xt1MU6Na";
/// A token of a service account, and its line in Elasticsearch's file of tokens.
const TOKEN: &str = "AAEAAWVsYXN0aWMvZmxlZXQtc2VydmVyL2pvYm1ldGVyOm5UYksyZFJnVEZHUks5bkJfU2E5emc";
const TOKEN_LINE: &str = "elastic/fleet-server/jobmeter:{PBKDF2_STRETCH}10000$rEkkG7y8c5i+AHg6sWUXV1ilRfgdCfk6RklR258Z9+8=$E8d9FhxPCZsN5ljDyaF5nZ1yoTXp3eoKpbMxuq49NCI=\n";
/// The header of the user with the password.
const BASIC: &str = "Basic YWRtaW46dGVzdC1wYXNzd29yZA==";

fn of_output(url: &str, more: &str) -> String {
    let uids = "server_uids = [\"65534\"]\n";
    format!(
        "[outputs.es]\nkind = \"elasticsearch\"\naddress = \"{url}\"\nfrom = \"all\"\n{uids}{more}"
    )
}

fn status(site: &Site) -> OutputStatus {
    site.outputs.status().remove(0)
}

/// Waits until the output waits for a reason with this text.
fn waits(site: &Site, text: &str) {
    wait_until(
        || format!("no wait for {text}: {:?}", status(site)),
        || match status(site).state {
            OutputState::Waiting { why, .. } => why.contains(text),
            OutputState::Working => false,
        },
    );
}

fn settle(site: &Site) {
    wait_until(
        || format!("{:?}", status(site)),
        || {
            let status = status(site);
            status.behind == Some(0) && status.state == OutputState::Working
        },
    );
}

#[test]
fn opensearch_has_each_sample_once() {
    let mut server = SearchServer::new(Kind::OpenSearch);
    let text = of_output(&server.url(), "bulk_bytes = \"16KiB\"\n");
    let mut site = Site::new();
    site.apply(&text);
    // Down for a while.
    site.store(&samples(0..20));
    waits(&site, &server.url());
    server.start();
    settle(&site);
    assert_eq!(counted(&server.documents("jobmeter")), expected(&samples(0..20)));
    // Killed under load.
    for second in 20..60 {
        site.store(&samples(second..second + 1));
    }
    server.kill();
    for second in 60..80 {
        site.store(&samples(second..second + 1));
    }
    waits(&site, &server.url());
    server.start();
    settle(&site);
    assert_eq!(counted(&server.documents("jobmeter")), expected(&samples(0..80)));
    // Read-only.
    server.call("PUT", "/jobmeter/_settings", r#"{"index.blocks.write": true}"#);
    site.store(&samples(80..90));
    waits(&site, "read-only");
    server.call("PUT", "/jobmeter/_settings", r#"{"index.blocks.write": false}"#);
    settle(&site);
    // The output is killed before the confirmation, and a rollover comes before it begins again.
    site = site.restart();
    let positions = fs::read(site.path(POSITIONS)).unwrap();
    site.store(&samples(90..200));
    site.apply(&text);
    settle(&site);
    site = with_positions(site, &positions);
    server.call("POST", "/jobmeter/_rollover", "");
    site.store(&samples(200..210));
    site.apply(&text);
    settle(&site);
    assert_eq!(counted(&server.documents("jobmeter")), expected(&samples(0..210)));
    let backing = server.call("GET", "/_data_stream/jobmeter", "");
    assert_eq!(backing["data_streams"][0]["indices"].as_array().unwrap().len(), 2);
    a_bad_document(&mut site, &server);
}

/// The mapping is wrong for one metric, and is repaired by a rollover.
fn a_bad_document(site: &mut Site, server: &SearchServer) {
    let mapping = r#"{"properties": {"metrics": {"properties": {"odd_address": {"type": "ip"}}}}}"#;
    server.call("PUT", "/jobmeter/_mapping", mapping);
    let odd = (spec("n1", "odd_address"), 210, 0.5);
    site.store(&[samples(210..212), vec![odd.clone()]].concat());
    settle(site);
    let aside = status(site).set_aside;
    let message = aside.message.unwrap();
    assert!(aside.items == 1 && message.contains("odd_address"), "{message}");
    assert_eq!(counted(&server.documents("jobmeter")), expected(&samples(0..212)));
    server.call("POST", "/jobmeter/_rollover", "");
    site.outputs.retry("es").unwrap();
    wait_until(
        || format!("{:?}", status(site)),
        || {
            let aside = status(site).set_aside;
            aside.items == 0 && !aside.is_retrying
        },
    );
    let all = [samples(0..212), vec![odd]].concat();
    assert_eq!(counted(&server.documents("jobmeter")), expected(&all));
}

/// Prepares security, and TLS with a certificate of the test.
fn secure(server: &mut SearchServer) -> String {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = certified.signing_key.serialize_pem();
    for (name, text) in [
        ("config/cert.pem", certified.cert.pem()),
        ("config/key.pem", key),
        ("config/users", format!("admin:{PASSWORD_HASH}\n")),
        ("config/users_roles", "superuser:admin\n".to_owned()),
        ("config/service_tokens", TOKEN_LINE.to_owned()),
        ("config/roles.yml", String::new()),
        ("config/role_mapping.yml", String::new()),
    ] {
        fs::write(server.path(name), text).unwrap();
    }
    let settings = "xpack.security.enabled: true\nxpack.security.http.ssl.enabled: true\n\
         xpack.security.http.ssl.certificate: cert.pem\nxpack.security.http.ssl.key: key.pem\n";
    let ca = server.path("config/cert.pem");
    server.secure(BASIC, settings, &ca);
    ca.display().to_string()
}

#[test]
fn elasticsearch_with_security_and_tls() {
    let mut server = SearchServer::new(Kind::Elasticsearch);
    let ca = secure(&mut server);
    server.start();
    let secret = server.private_file("secret", "admin:wrong");
    let auth = |kind: &str| {
        format!("ca = \"{ca}\"\nauth = \"{kind}\"\nauth_file = \"{}\"\n", secret.display())
    };
    let basic = auth("basic");
    let mut site = Site::new();
    // An authority that nobody knows here.
    site.apply(&of_output(&server.url(), &basic.replacen("ca =", "#", 1)));
    site.store(&samples(0..10));
    waits(&site, "certificate");
    site.apply(&of_output(&server.url(), &basic));
    waits(&site, "401");
    // The file is read again.
    server.private_file("secret", "admin:test-password");
    settle(&site);
    assert_eq!(counted(&server.documents("jobmeter")), expected(&samples(0..10)));
    // This build cannot make API keys. It rejects a wrong one as one, and knows the user of a token, who may not write.
    server.private_file("secret", "d3Jvbmc6a2V5");
    site.apply(&of_output(&server.url(), &auth("api_key")));
    site.store(&samples(10..20));
    waits(&site, "401; check `auth`");
    server.private_file("secret", TOKEN);
    site.apply(&of_output(&server.url(), &auth("bearer")));
    waits(&site, "403");
    server.private_file("secret", "admin:test-password");
    site.apply(&of_output(&server.url(), &basic));
    settle(&site);
    assert_eq!(counted(&server.documents("jobmeter")), expected(&samples(0..20)));
    colmet_indices(&mut site, &server, &basic);
}

/// Colmet's documents, in indices with Colmet's mapping.
fn colmet_indices(site: &mut Site, server: &SearchServer, auth: &str) {
    let colmet = format!("{auth}layout = \"colmet\"\ncluster = \"oar\"\n");
    let text = of_output(&server.url(), &colmet).replace("outputs.es", "outputs.colmet");
    site.apply(&text);
    for second in 20..23 {
        let load = (spec("n1", "load_1m"), second, 0.5);
        site.store(&[load, (spec("n1", "cpu_forks_total"), second, second as f64)]);
    }
    settle(site);
    let documents = server.documents("colmet_procstats_default");
    // Each instant but the last, which may still get samples.
    let of_load = documents.iter().filter(|one| one["stat_processes"].is_number());
    assert_eq!(of_load.count(), 2, "{documents:?}");
    assert!(documents.iter().all(|one| one["involved_jobs"].is_array()));
    let mapping = server.call("GET", "/colmet_procstats_default/_mapping", "");
    let of_time = &mapping["colmet_procstats_default"]["mappings"]["properties"]["timestamp"];
    assert_eq!((&of_time["type"], &of_time["format"]), (&"date".into(), &"epoch_second".into()));
}
