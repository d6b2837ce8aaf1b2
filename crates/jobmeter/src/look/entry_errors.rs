//! Errors in the description files of pollers.

use crate::client::http_client::Client;
use crate::client::name_suggestions;
use crate::client::plain::note;

/// Path of the list of pollers.
const POLLERS: &str = "/api/v1/pollers";
/// Maximum errors without a device, per poller.
const ERRORS_SHOWN: usize = 5;

/// Notes the errors in description files that belong to no device.
pub(crate) fn note_unread_files(client: &Client) -> anyhow::Result<()> {
    let pollers: Vec<api::Poller> = client.get(POLLERS).unwrap_or_default();
    for poller in &pollers {
        let errors = poller.entry_errors.listed.iter().filter(|error| error.device.is_none());
        for error in errors.clone().take(ERRORS_SHOWN) {
            note(&format!("poller {}: {}", poller.poller, line(error)))?;
        }
        let listed = poller.entry_errors.listed.len();
        let unlisted =
            usize::try_from(poller.entry_errors.count).unwrap_or(0).saturating_sub(listed);
        let more = errors.count().saturating_sub(ERRORS_SHOWN) + unlisted;
        if more > 0 {
            note(&format!(
                "poller {}: {more} more errors in its files, of devices that may not be listed: `jobmeter check DIR` there \
                 lists them",
                poller.poller
            ))?;
        }
    }
    Ok(())
}

/// What pollers do not request of devices because of errors in their description files, of the metrics in a list:
/// entries that name them, or that do not name what they are of.
pub(crate) fn of(
    client: &Client,
    (devices, metrics): (Option<&str>, &str),
) -> Vec<api::EntryError> {
    // A server of an earlier version has no list of pollers.
    let pollers: Vec<api::Poller> = client.get(POLLERS).unwrap_or_default();
    let has = |list: &str, name: &str| name_suggestions::words(Some(list)).any(|one| one == name);
    let is_of = |error: &api::EntryError| {
        let device = error.device.as_deref();
        let of_device = devices.zip(device).is_none_or(|(devices, device)| has(devices, device));
        // The name of an exporter's entry is none of its metrics.
        let of_exporter = error.metric.as_deref().is_some_and(|name| name.starts_with("prom_"))
            && name_suggestions::words(Some(metrics)).any(|one| one.starts_with("prom_"));
        let of_metric = error.metric.as_deref().is_none_or(|metric| has(metrics, metric));
        of_device && (of_metric || of_exporter && devices.is_some() && device.is_some())
    };
    let errors = pollers.into_iter().flat_map(|poller| poller.entry_errors.listed);
    errors.filter(is_of).collect()
}

/// What an error in a description file costs.
pub(crate) fn line(error: &api::EntryError) -> String {
    let what = match (&error.device, &error.metric) {
        (Some(device), Some(metric)) => format!("{device}: {metric} is not polled"),
        (Some(device), None) => format!("{device}: an entry without a valid name is not polled"),
        (None, Some(metric)) => {
            format!("an entry of {metric} without a valid device is not polled")
        }
        (None, None) => "entries are not read, or only their last valid version is".to_owned(),
    };
    format!("{what}: {}", error.text())
}
