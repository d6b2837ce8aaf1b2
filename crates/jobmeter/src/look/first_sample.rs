//! The first sample of devices and metrics, for a question about an earlier time.

use crate::client::http_client::Client;

/// The time of the first sample of the named devices and metrics, if it is after an instant. The windows of five minutes
/// tell where to search for it.
pub(super) fn first_sample(
    client: &Client,
    (devices, metrics): (Option<&str>, Option<&str>),
    after: f64,
) -> Option<f64> {
    let list = |column: &str, names: Option<&str>| {
        let names = names?;
        let names: Vec<String> =
            names.split(',').map(|name| format!("'{}'", name.trim().replace('\'', "''"))).collect();
        Some(format!("{column} IN ({})", names.join(", ")))
    };
    let named = [list("device_id", devices), list("metric_id", metrics)];
    let named = named.into_iter().flatten().collect::<Vec<_>>().join(" AND ");
    let first = |table: &str, bound: &str| {
        let query = format!(
            "SELECT extract(epoch FROM min(timestamp)) AS first FROM {table} WHERE {named}{bound}"
        );
        let rows: Vec<serde_json::Value> =
            client.post("/api/v1/sql", &api::SqlQuery { query, time_zone: None }).ok()?;
        rows.first()?.get("first")?.as_f64()
    };
    let window = first("metrics_summary", "");
    let bound = window.map_or_else(String::new, |start| {
        format!(" AND timestamp < to_timestamp({})", start + 300.0)
    });
    first("metrics", &bound).filter(|first| *first > after)
}
