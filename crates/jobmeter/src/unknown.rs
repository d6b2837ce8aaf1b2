//! Names of devices and metrics that the server does not know, and what was probably meant.

use crate::client::{Client, path};

/// What to say of each of these names that the server never had a sample of; both are lists with commas.
pub(crate) fn names(
    client: &Client,
    devices: Option<String>,
    metrics: Option<String>,
) -> anyhow::Result<Vec<String>> {
    let mut unknown = Vec::new();
    for device in words(devices.as_deref()) {
        if !has_series(client, device)? {
            let nodes: Vec<api::Node> = client.get("/api/v1/nodes")?;
            unknown.push(told("device", device, nodes.iter().map(|node| &*node.device)));
        }
    }
    if metrics.is_some() {
        let catalogue: Vec<api::MetricInfo> = client.get("/api/v1/catalogue")?;
        let known = || catalogue.iter().map(|metric| &*metric.name);
        let missing = |metric: &&str| !known().any(|name| name == *metric);
        let metrics = words(metrics.as_deref()).filter(missing);
        unknown.extend(metrics.map(|metric| told("metric", metric, known())));
    }
    Ok(unknown)
}

/// The names in a list with commas.
pub(crate) fn words(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Whether anything was ever measured of a device, or of one that has it as its other name.
fn has_series(client: &Client, device: &str) -> anyhow::Result<bool> {
    let alias = serde_json::json!({ "_device_alias": device }).to_string();
    for (key, value) in [("device", device.to_owned()), ("labels", alias)] {
        let since = ("start", Some("0".to_owned()));
        // A node may have more series than the server lists.
        let one = ("limit", Some("1".to_owned()));
        let series: Vec<api::SeriesInfo> =
            client.get(&path("/api/v1/series", &[(key, Some(value)), since, one]))?;
        if !series.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn told<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let meant = config::nearest(name, known);
    let meant = meant.map_or_else(String::new, |near| format!("; is `{near}` meant?"));
    format!("no {what} `{name}` is known here{meant}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant() {
        let known = ["load_1m", "load_5m"];
        let told = |name| told("metric", name, known.into_iter());
        assert_eq!(told("lod_1m"), "no metric `lod_1m` is known here; is `load_1m` meant?");
        assert_eq!(told("xyz"), "no metric `xyz` is known here");
        assert_eq!(words(Some("a, b,,")).collect::<Vec<_>>(), ["a", "b"]);
    }
}
