//! What other programs read from the database, and what its functions answer.

use crate::server::database;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

/// The first column of the rows of a statement.
pub(crate) fn query(config: &Config, statement: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, io) = config.connect(NoTls).await.unwrap();
        let io = tokio::spawn(io);
        let rows = client.simple_query(statement).await.unwrap();
        drop(client);
        io.await.unwrap().unwrap();
        let text = |row: &SimpleQueryMessage| match row {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        };
        rows.iter().filter_map(text).collect()
    })
}

/// Samples of a node every 8 s, a gauge and a counter, with a job from 3 s before the fourth one to the eighth one, and one with two
/// allocations.
const JOBS: &str = r#"
INSERT INTO metrics SELECT to_timestamp(1767700000 + 8 * i), 'n1', metric, 80 * i, '{}'
    FROM generate_series(0, 12) AS i, unnest('{ticks_total,level}'::text[]) AS metric;
INSERT INTO jobmeter.job_metrics SELECT to_timestamp(1767700021 + i), 'n1', 'cpu_seconds_total', i, '{}', 'oar', 7 FROM generate_series(-4, 4) AS i;
INSERT INTO jobmeter.allocations VALUES ('oar', 7, 'n1', to_timestamp(1767700021), to_timestamp(1767700056)),
    ('oar', 8, 'n1', to_timestamp(1767700011), to_timestamp(1767700017)), ('oar', 8, 'n1', to_timestamp(1767700047), to_timestamp(1767700060));
INSERT INTO metrics VALUES (to_timestamp(1767700000), 'n2.site.example', 'level', 1, '{}');
"#;

/// The time of each row, in seconds, and its value.
fn values(config: &Config, arguments: &str) -> String {
    let text = format!(
        "SELECT string_agg((extract(epoch FROM timestamp) - 1767700000)::int || '=' || coalesce(value::text, '-'), ' ' ORDER BY timestamp) \
         FROM api.get_metrics({arguments})"
    );
    query(config, &text).concat()
}

fn site() -> Config {
    let config = database();
    query(&config, &::database::everything());
    query(&config, JOBS);
    config
}

/// As the server answers by HTTP: all samples of the time range of the job and 10 s before it have rates, and then those of nodes without
/// the job are left out.
#[test]
fn the_first_rate_of_a_job_counts_from_the_last_reading_before_it() {
    let config = site();
    let ticks = |more: &str| values(&config, &format!("metrics => 'ticks_total', {more}"));
    assert_eq!(ticks("job_id => 7"), "24=240 32=320 40=400 48=480 56=560");
    let rates = "24=10 32=10 40=10 48=10 56=10";
    assert_eq!(
        [ticks("job_id => 7, as_rate => true"), ticks("job_id => 7, as_rate => 'auto'")],
        [rates; 2]
    );
    // A given start is a bound for readings, too.
    let since = "job_id => 7, start_time => '1767700020'";
    assert_eq!(ticks(&format!("{since}, as_rate => true")), rates.replacen("=10", "=-", 1));
    let until = "job_id => 7, end_time => '1767700040', as_rate => true";
    assert_eq!(ticks(until), "24=10 32=10 40=10");
    let level = "job_id => 7, metrics => 'level', as_rate => true";
    assert_eq!(values(&config, level), rates);
    // Each allocation of a job counts from the reading before it.
    assert_eq!(ticks("job_id => 8, as_rate => true"), "16=10 48=10 56=10");
    // Samples of the job itself begin up to 10 s before it.
    let own = "job_id => 7, metrics => 'cpu_seconds_total', as_rate => true";
    assert_eq!(values(&config, own), "17=- 18=1 19=1 20=1 21=1 22=1 23=1 24=1 25=1");
    let used = "SELECT api.get_job_metrics(7)->>'mean'";
    let request = "INSERT INTO jobmeter.job_requests VALUES (1, '{mean}', \
                   $$SELECT count(value) AS mean FROM jobmetrics WHERE metric_id = 'ticks_total'$$)";
    query(&config, request);
    assert_eq!(query(&config, used), ["5"]);
}

#[test]
fn lists_are_read_as_the_server_reads_them() {
    let config = site();
    let count = |arguments: &str| {
        query(&config, &format!("SELECT count(*) FROM api.get_metrics({arguments})")).concat()
    };
    let range = "start_time => '1767700000', end_time => '1767700099'";
    for (lists, rows) in [
        ("nodes => 'n1'", "35"),
        ("nodes => 'n1', metrics => ','", "35"),
        (r"nodes => E'n1\n', metrics => E' \n'", "35"),
        (r"devices => E'x,\u2003n1\u00a0\r', metrics => E'level,\n'", "13"),
        ("nodes => 'n1', metrics => 'x, level'", "13"),
        ("nodes => 'n1.site.example'", "35"),
        ("nodes => 'n2.site.example'", "1"),
        ("devices => 'n1', nodes => 'n2.site.example'", "36"),
    ] {
        assert_eq!(count(&format!("{lists}, {range}")), rows, "{lists}");
    }
    let missing = r"DO $$ BEGIN PERFORM api.get_metrics(nodes => E'\r\n', devices => ' , '); RAISE 'none'; EXCEPTION WHEN OTHERS THEN
        IF SQLERRM NOT LIKE 'Missing %' THEN RAISE; END IF; END $$";
    query(&config, missing);
}
