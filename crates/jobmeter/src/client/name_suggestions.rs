//! Detects names that the server does not know, and suggests similar ones.

use crate::client::http_client::{Client, path};

/// Filters of `jobmeter jobs` whose values are names.
const NAMES: [&str; 7] = ["cluster", "user", "account", "project", "queue", "name", "device"];
/// Number of newest jobs whose names are suggested.
const JOBS_SEEN: usize = 1000;

/// Messages for devices and metrics without any samples on the server; both parameters are comma-separated
/// lists.
pub(crate) fn names(
    client: &Client,
    devices: Option<String>,
    metrics: Option<String>,
) -> anyhow::Result<Vec<String>> {
    let mut unknown = Vec::new();
    for device in words(devices.as_deref()) {
        if !has_series(client, device)? {
            let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
            // A server of an earlier version has no list of devices.
            let devices: Vec<api::Device> = client.get("/api/v1/devices").unwrap_or_default();
            let known = nodes.iter().map(|node| &*node.device);
            let known = known.chain(devices.iter().map(|one| &*one.device));
            // A device in the list may have no samples: its entries have errors.
            if !known.clone().any(|name| name == device) {
                unknown.push(unknown_name("device", device, known));
            }
        }
    }
    if metrics.is_some() {
        let catalogue: Vec<api::MetricInfo> = client.get("/api/v1/catalogue")?;
        let known = || catalogue.iter().map(|metric| &*metric.name);
        let missing = |metric: &&str| !known().any(|name| name == *metric);
        let metrics = words(metrics.as_deref()).filter(missing);
        unknown.extend(metrics.map(|metric| unknown_name("metric", metric, known())));
    }
    Ok(unknown)
}

/// A message for a node that has not reported to the server, if another one has. The node may be new.
pub(crate) fn silent_node(client: &Client, device: &str) -> Option<String> {
    let nodes: Vec<api::Node> = client.get("/api/v1/nodes").ok()?;
    let is_known = nodes.is_empty() || nodes.iter().any(|node| node.device == device);
    let meant = meant(device, nodes.iter().map(|node| &*node.device));
    (!is_known).then(|| format!("no node `{device}` has reported to the server yet{meant}"))
}

/// Messages for job filters that match no job. Suggestions include only jobs and nodes that are visible to the
/// user.
pub(crate) fn filters(
    client: &Client,
    filters: &[(&'static str, Option<String>)],
) -> anyhow::Result<Vec<String>> {
    let jobs = |filter: (&'static str, Option<String>), limit: usize| {
        let parameters = [filter, ("limit", Some(limit.to_string()))];
        client.get::<Vec<api::Job>>(&path("/api/v1/jobs", &parameters))
    };
    let mut unknown = Vec::new();
    for (filter, value) in filters {
        if let (true, Some(value)) = (NAMES.contains(filter), value)
            && jobs((*filter, Some(value.clone())), 1)?.is_empty()
        {
            unknown.push((*filter, value));
        }
    }
    if unknown.is_empty() {
        return Ok(Vec::new());
    }
    let seen = jobs(("after", None), JOBS_SEEN)?;
    let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
    let line = |(filter, value): (&str, &String)| {
        let of_nodes = nodes.iter().filter(|_| filter == "device").map(|node| node.device.clone());
        let known: Vec<String> =
            seen.iter().flat_map(|job| names_of(job, filter)).chain(of_nodes).collect();
        let meant = meant(value, known.iter().map(String::as_str));
        format!("no job that is visible to you has the {filter} `{value}`{meant}")
    };
    Ok(unknown.into_iter().map(line).collect())
}

/// The values of a job that a filter of this name compares.
fn names_of(job: &api::Job, filter: &str) -> Vec<String> {
    let one = match filter {
        "cluster" => return vec![job.cluster.clone()],
        "device" => return job.devices.clone(),
        "account" => {
            let with_cluster = job.account.as_ref().map(|name| format!("{}:{name}", job.cluster));
            return job.account.clone().into_iter().chain(with_cluster).collect();
        }
        "user" => &job.user,
        "project" => &job.project,
        "queue" => &job.queue,
        _ => &job.name,
    };
    one.clone().into_iter().collect()
}

/// The names in a comma-separated list.
pub(crate) fn words(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Whether the server has samples of a device, or of a device with this alias.
fn has_series(client: &Client, device: &str) -> anyhow::Result<bool> {
    let alias = serde_json::json!({ "_device_alias": device }).to_string();
    for (key, value) in [("device", device.to_owned()), ("labels", alias)] {
        let since = ("start", Some("0".to_owned()));
        // The limit avoids an error: a node may have more series than the server lists.
        let one = ("limit", Some("1".to_owned()));
        let series: Vec<api::SeriesInfo> =
            client.get(&path("/api/v1/series", &[(key, Some(value)), since, one]))?;
        if !series.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unknown_name<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    format!("the server knows no {what} `{name}`{}", meant(name, known))
}

fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = config::nearest(name, known);
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant() {
        let known = ["load_1m", "load_5m"];
        let unknown_name = |name| unknown_name("metric", name, known.into_iter());
        assert_eq!(
            unknown_name("lod_1m"),
            "the server knows no metric `lod_1m`; did you mean `load_1m`?"
        );
        assert_eq!(unknown_name("xyz"), "the server knows no metric `xyz`");
        assert_eq!(words(Some("a, b,,")).collect::<Vec<_>>(), ["a", "b"]);
    }
}
