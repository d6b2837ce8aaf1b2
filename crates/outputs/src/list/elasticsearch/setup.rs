//! What an index needs before its first document: a template and a policy, or Colmet's mapping.

use super::client::{Client, Content};
use super::settings::{Documents, Settings};
use crate::spec::WriteError;
use serde_json::{Value, json};
use ureq::http::Method;

/// Age and size at which a new backing index begins.
const ROLLOVER_AGE: &str = "7d";
const ROLLOVER_SIZE: &str = "25gb";
/// Most fields of an index: metrics and labels. The servers' default is 1000.
const FIELDS_MAX: u32 = 5000;
const PRIORITY: u32 = 500;
/// Colmet's text.
const COLMET_MAPPING: &str =
    r#"{"mappings": {"properties": {"timestamp": {"type": "date", "format": "epoch_second"}}}}"#;

/// Prepares a stream or an index, if it does not exist.
///
/// # Errors
/// The server does not permit it now.
pub(super) fn prepare(
    index: &str,
    settings: &Settings,
    client: &mut Client,
) -> Result<(), WriteError> {
    if exists(&format!("/{index}"), index, client)? {
        return Ok(());
    }
    if matches!(settings.documents, Documents::Colmet(_)) {
        return create(&format!("/{index}"), COLMET_MAPPING, client);
    }
    let template_path = format!("/_index_template/{index}");
    if exists(&template_path, index, client)? {
        return Ok(());
    }
    let policy = prepare_policy(index, settings, client)?;
    if policy.is_none() {
        log::warn!(
            "output `{}`: the server has neither ILM nor ISM, so `{index}` has no rollover and no deletion",
            settings.name
        );
    }
    create(&template_path, &template(index, policy == Some(Policy::Ilm)).to_string(), client)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Ilm,
    Ism,
}

/// Creates the policy of a stream, unless one of this name exists. `None`: the server has no plugin for it.
fn prepare_policy(
    index: &str,
    settings: &Settings,
    client: &mut Client,
) -> Result<Option<Policy>, WriteError> {
    let days = settings.delete_after.map(|age| format!("{}d", age.as_secs().div_ceil(86_400)));
    for policy in [Policy::Ilm, Policy::Ism] {
        let (path, text) = match policy {
            Policy::Ilm => (format!("/_ilm/policy/{index}"), ilm(days.as_deref())),
            Policy::Ism => {
                (format!("/_plugins/_ism/policies/{index}"), ism(index, days.as_deref()))
            }
        };
        let answer = client.call(Method::GET, &path, Content::None)?;
        match answer.status {
            // The server knows no such path.
            400 | 405 => {}
            404 => {
                create(&path, &text.to_string(), client)?;
                return Ok(Some(policy));
            }
            _ if answer.is_success() => return Ok(Some(policy)),
            _ => return Err(answer.error(&path)),
        }
    }
    Ok(None)
}

fn exists(path: &str, index: &str, client: &mut Client) -> Result<bool, WriteError> {
    let answer = client.call(Method::HEAD, path, Content::None)?;
    match answer.status {
        404 => Ok(false),
        _ if answer.is_success() => Ok(true),
        // An answer to HEAD has no reason.
        _ => Err(answer.error(&format!("`{index}`"))),
    }
}

/// Creates something that another output may create meanwhile.
fn create(path: &str, text: &str, client: &mut Client) -> Result<(), WriteError> {
    let answer = client.call(Method::PUT, path, Content::Json(text))?;
    if answer.is_success() || exists_now(&answer.body) {
        return Ok(());
    }
    Err(answer.error(path))
}

fn exists_now(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("resource_already_exists_exception")
}

/// The template of a stream.
fn template(index: &str, has_ilm: bool) -> Value {
    let keyword = json!({"type": "keyword"});
    let date = json!({"type": "date_nanos"});
    let number = json!({"type": "long"});
    let text = json!({"type": "text"});
    let fields = |of: &str, mapping: Value| json!({of: {"path_match": format!("{of}.*"), "mapping": mapping}});
    let settings = if has_ilm {
        json!({"index.mapping.total_fields.limit": FIELDS_MAX, "index.lifecycle.name": index})
    } else {
        json!({"index.mapping.total_fields.limit": FIELDS_MAX})
    };
    json!({
        "index_patterns": [index],
        "data_stream": {},
        "priority": PRIORITY,
        "_meta": {"description": "by jobmeter, at its first document; it does not change it later"},
        "template": {
            "settings": settings,
            "mappings": {
                "dynamic": true,
                "dynamic_templates": [
                    fields("metrics", json!({"type": "double"})),
                    fields("not_finite", keyword.clone()),
                    fields("labels", json!({"type": "keyword", "ignore_above": 1024})),
                ],
                "properties": {
                    "@timestamp": date,
                    "device": keyword,
                    "source": keyword,
                    "job": keyword,
                    "cluster": keyword,
                    "job_id": number,
                    "start": date,
                    "gap": {"properties": {
                        "origin": keyword, "source": keyword, "from": date, "to": date, "cause": keyword, "detail": text,
                    }},
                    "output_gap": {"properties": {"from": date, "to": date, "samples": number, "why": text}},
                },
            },
        },
    })
}

/// Elasticsearch's policy.
fn ilm(delete_after: Option<&str>) -> Value {
    let rollover = json!({"max_age": ROLLOVER_AGE, "max_primary_shard_size": ROLLOVER_SIZE});
    let hot = json!({"actions": {"rollover": rollover}});
    let phases = match delete_after {
        None => json!({"hot": hot}),
        Some(age) => json!({"hot": hot, "delete": {"min_age": age, "actions": {"delete": {}}}}),
    };
    json!({"policy": {"phases": phases}})
}

/// OpenSearch's policy. It applies to new backing indices of the stream.
fn ism(index: &str, delete_after: Option<&str>) -> Value {
    let rollover = json!({"min_index_age": ROLLOVER_AGE, "min_primary_shard_size": ROLLOVER_SIZE});
    let hot = |transitions| json!({"name": "hot", "actions": [{"rollover": rollover}], "transitions": transitions});
    let states = match delete_after {
        None => vec![hot(json!([]))],
        Some(age) => {
            let after = json!([{"state_name": "delete", "conditions": {"min_rollover_age": age}}]);
            vec![
                hot(after),
                json!({"name": "delete", "actions": [{"delete": {}}], "transitions": []}),
            ]
        }
    };
    json!({"policy": {
        "description": "rollover and deletion of the stream of jobmeter",
        "default_state": "hot",
        "states": states,
        "ism_template": [{"index_patterns": [index], "priority": PRIORITY}],
    }})
}
