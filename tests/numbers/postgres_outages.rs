//! The server keeps samples in PostgreSQL: outages of the database and kills of the server lose and repeat no sample.

use crate::common::database::{Database, psql};
use crate::common::programs::{Running, Server, get, until};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The seconds of the node's load.
fn seconds(url: &str) -> Option<Vec<String>> {
    let (status, text) =
        get(url, "/rpc/get_metrics?nodes=n1&metrics=load_1m&start_time=2020-01-01&end_time=now");
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(&text).ok().filter(|_| status == 200)?;
    Some(rows.iter().map(|row| row["timestamp"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn outages_of_the_database_and_kills_of_the_server_lose_no_sample() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let folder: PathBuf = dir.path().join("database");
    std::fs::create_dir(&folder).unwrap();
    let mut database = Some(Database::start(&folder));
    let parameters = format!("host={} user=postgres dbname=postgres", folder.display());
    let arguments = ["--store", "postgres", "--postgres-database", &parameters];
    let data = dir.path().join("data");
    let mut server = Server::start(&data, &arguments);
    let mut agent = Running::agent(&server.url, "n1", &dir.path().join("spool"));
    let more = |server: &Server, than: usize| {
        until("more samples", LIMIT, || seconds(&server.url).filter(|all| all.len() > than)).len()
    };
    let mut known = more(&server, 2);
    for round in 0..2 {
        drop(database.take());
        let (status, text) = get(&server.url, "/rpc/get_metrics?nodes=n1&metrics=load_1m");
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("57P03"), "{text}");
        if round == 1 {
            // It starts without its database not at all, and the agent keeps its batches.
            server.running.kill();
        }
        std::thread::sleep(Duration::from_secs(2));
        database = Some(Database::start(&folder));
        if round == 1 {
            server.again(&data, &arguments);
        }
        known = more(&server, known + 3);
    }
    server.running.kill();
    server.again(&data, &arguments);
    more(&server, known + 3);
    assert_eq!(agent.end(), 0);
    let found = seconds(&server.url).unwrap();
    let different: BTreeSet<&String> = found.iter().collect();
    assert_eq!(found.len(), different.len(), "a sample is stored once");
    // The agent measured each second, in which no gap is.
    let statement = "SELECT count(*), extract(epoch FROM max(timestamp) - min(timestamp))::int + 1 \
                     FROM metrics WHERE metric_id = 'load_1m'";
    let counts = psql(&folder, statement).unwrap();
    let (stored, wanted) = counts.trim().split_once('|').unwrap();
    assert_eq!(stored, found.len().to_string());
    let (_, gaps) = get(&server.url, "/api/v1/gaps?device=n1");
    if gaps.contains("\"gaps\":[]") || gaps.trim() == "[]" {
        assert_eq!(stored, wanted, "{gaps}");
    } else {
        // A machine that stalls misses ticks, and says so.
        assert!(gaps.contains("missed ticks"), "{gaps}");
    }
}
