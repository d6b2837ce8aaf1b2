//! What the commands print.

use crate::operate::db::options::{SetupArgs, quoted};
use database::{Executed, Found, SetupOptions, Shape, Status};
use std::io::{self, Write as _};
use tokio_postgres::Client;

/// The share of the memory that the newest partition may fill, and the bytes of a row with its indexes (Kwollect's rule and figures).
const MEMORY_SHARE: f64 = 0.25;
const ROW_BYTES: f64 = 200.0;

/// Prints the result of a setup, and what the administrator needs next.
pub(crate) async fn setup(
    args: &SetupArgs,
    options: &SetupOptions,
    before: &Found,
    executed: &Executed,
    client: &Client,
) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let (host, port) = (args.address.host(), args.address.port());
    let (database, user) = (&options.database, &options.user);
    let done = match (before.version, before.shape) {
        (Some(_), _) => "is up to date",
        (None, None) => "is set up",
        (None, Some(Shape::Hypertable)) => {
            "of Kwollect is adopted: `metrics` remains a hypertable of TimescaleDB"
        }
        (None, Some(Shape::Partitioned)) => "is set up: its table `metrics` keeps its partitions",
        (None, Some(Shape::Plain)) => {
            "of Kwollect is adopted: its table `metrics` is the first partition"
        }
    };
    writeln!(out, "The database {database} {done}.")?;
    let Executed { longest, retries } = executed;
    writeln!(out, "Longest lock: {} ms. Waits for locks: {retries}.", longest.as_millis())?;
    if before.trusts_plpython && !options.distrust_plpython {
        writeln!(
            out,
            "plpython3u is trusted, as Kwollect's setup left it: who can connect as {user} can run programs as the database \
             server. jobmeter does not need it; --distrust-plpython withdraws the trust."
        )?;
    }
    if let Some(hours) = proposed_hours(client).await? {
        writeln!(
            out,
            "New partitions have {} h (--chunk_interval_hour). By the rows of the last hour and the memory of this machine, {hours} h \
             fit into a quarter of the memory.",
            chunk_hours(client).await?
        )?;
    }
    writeln!(out, "\nSettings of the server (/etc/jobmeter/server.toml):\n-----------------")?;
    writeln!(out, "store = \"postgres\"")?;
    let parameters = format!(
        "host={} port={port} user={} dbname={}",
        quoted(host),
        quoted(user),
        quoted(database)
    );
    writeln!(out, "postgres.database = {}", serde_json::Value::from(parameters))?;
    writeln!(out, "postgres.password_file = {}", serde_json::Value::from(args.password_file()?))?;
    match args.oar.settings()? {
        Some(oar) => write!(out, "{oar}")?,
        None if before.has_own_nodetime() => {
            writeln!(out, "schedulers.nodetime.view = \"nodetime_by_job\"")?;
        }
        None => {}
    }
    writeln!(out, "-----------------")?;
    if let Some(password) = args.owner_password()? {
        let configuration =
            database::postgrest_configuration(host, port, database, user, &password);
        writeln!(
            out,
            "\nPostgrest configuration file:\n-----------------\n{configuration}-----------------"
        )?;
        let token = database::token(user, &password);
        writeln!(out, "\nAPI token:\n-----------------\n{token}\n-----------------")?;
    }
    Ok(())
}

async fn chunk_hours(client: &Client) -> anyhow::Result<i32> {
    let text = "SELECT chunk_interval_hour FROM jobmeter.state";
    Ok(client.query_one(text, &[]).await?.try_get(0)?)
}

/// The hours of a partition that fits into a share of this machine's memory, at the rate of the last hour.
async fn proposed_hours(client: &Client) -> anyhow::Result<Option<u64>> {
    let text = "SELECT count(*) FROM public.metrics WHERE timestamp BETWEEN now() - interval '1 hour' AND now()";
    let rows: i64 = client.query_one(text, &[]).await?.try_get(0)?;
    let Ok(memory) = std::fs::read_to_string("/proc/meminfo") else { return Ok(None) };
    let total =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    let Some(total_kib) = total.and_then(|text| text.trim().parse::<u32>().ok()) else {
        return Ok(None);
    };
    if rows < 1 {
        return Ok(None);
    }
    let bytes = f64::from(total_kib) * 1024.0 * MEMORY_SHARE;
    let hours = bytes / (rows as f64 * ROW_BYTES);
    // A partition of more than a month, or of less than an hour, has no use.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 720")]
    Ok(Some(hours.clamp(1.0, 720.0) as u64))
}

/// An instant, by the seconds since then.
fn ago(seconds: Option<f64>) -> String {
    match seconds {
        None => "none".to_owned(),
        Some(seconds) if seconds < 0.0 => format!("{:.0} s in the future", -seconds),
        Some(seconds) => format!("{seconds:.0} s ago"),
    }
}

/// Prints the state of a database.
pub(crate) fn status(status: &Status, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let Status {
        found,
        sample_bytes,
        rollup_bytes,
        chunks,
        samples,
        not_partitioned,
        settled_s,
        newest_s,
        is_used,
    } = status;
    let shape = match found.shape {
        Some(Shape::Plain) => "table",
        Some(Shape::Partitioned) => "partitions",
        Some(Shape::Hypertable) => "hypertable",
        None => "missing",
    };
    if json {
        let answer = serde_json::json!({
            "postgresql": found.server_text(), "timescaledb": found.timescaledb, "schema": found.version,
            "metrics": shape, "chunks": chunks, "samples": samples, "sample_bytes": sample_bytes,
            "rollup_bytes": rollup_bytes, "not_partitioned": not_partitioned, "rollups_behind_s": settled_s,
            "newest_sample_age_s": newest_s, "in_use": is_used, "plpython_trusted": found.trusts_plpython,
        });
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    let rows = [
        ("PostgreSQL", found.server_text()),
        ("TimescaleDB", found.timescaledb.clone().unwrap_or_else(|| "none".to_owned())),
        ("schema", format!("version {} of {}", found.version.unwrap_or(0), database::VERSION)),
        ("server", if *is_used { "running" } else { "none" }.to_owned()),
        ("metrics", shape.to_owned()),
        ("chunks", chunks.to_string()),
        ("samples", format!("about {samples:.0}")),
        ("bytes of samples", sample_bytes.to_string()),
        ("bytes of rollups", rollup_bytes.to_string()),
        ("newest sample", ago(*newest_s)),
        ("final rollups until", ago(*settled_s)),
        ("rows without partition", not_partitioned.to_string()),
        ("plpython3u", if found.trusts_plpython { "trusted" } else { "not trusted" }.to_owned()),
    ];
    for (name, value) in rows {
        writeln!(out, "{name:<24}{value}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::ago;

    #[test]
    fn an_instant_after_now_is_in_the_future() {
        assert_eq!(ago(Some(-3_895_102_515.2)), "3895102515 s in the future");
        assert_eq!(ago(Some(12.4)), "12 s ago");
        assert_eq!(ago(None), "none");
    }
}
