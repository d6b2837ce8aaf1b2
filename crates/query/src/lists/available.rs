//! What `available_metrics` is restricted to.

use crate::QueryError;
use jobs::JobName;
use model::{DeviceId, JobId};
use serde_json::Value;

/// What `available_metrics` is restricted to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableFilter {
    /// Only these devices.
    pub devices: Option<Vec<DeviceId>>,
    /// Only the devices of this job.
    pub job: Option<JobName>,
}

impl AvailableFilter {
    /// Parses the parameter `params`: an object with `devices`, `job_id`, both or neither.
    ///
    /// # Errors
    /// It is no object, or `devices` is no list of names.
    pub fn parse(params: &Value) -> Result<Self, QueryError> {
        if !(params.is_object() || params.is_null()) {
            return Err(QueryError::Params("params is a JSON object"));
        }
        let devices = match params.get("devices") {
            None | Some(Value::Null) => None,
            Some(Value::Array(names)) => {
                let name = |name: &Value| name.as_str().and_then(|name| DeviceId::new(name).ok());
                let devices: Option<Vec<DeviceId>> = names.iter().map(name).collect();
                let invalid = QueryError::Params("params->devices contains an invalid device name");
                Some(devices.ok_or(invalid)?)
            }
            Some(_) => {
                let text = "Cannot parse params->devices, should be JSON array";
                return Err(QueryError::Params(text));
            }
        };
        // A job ID with other characters than digits is ignored, as in Kwollect.
        let job = params.get("job_id").and_then(|job| match job {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        Ok(Self { devices, job: job.and_then(JobId::new).map(JobName::number) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_available_metrics_is_restricted_to() {
        let parse = |params: Value| AvailableFilter::parse(&params);
        let both = parse(json!({"devices": ["a", "b"], "job_id": "7"})).unwrap();
        assert_eq!(both.devices.unwrap().len(), 2);
        assert_eq!(both.job.unwrap().to_string(), "7");
        let none = parse(json!({"job_id": "7; DROP TABLE"})).unwrap();
        assert_eq!(none, AvailableFilter::default());
        let error = parse(json!({"devices": "a"})).unwrap_err();
        assert_eq!((error.status(), error.code()), (400, "P0001"));
        assert!(error.to_string().contains("should be JSON array"));
        assert!(parse(json!({"devices": [1]})).is_err());
        assert!(parse(json!([null])).is_err() && parse(json!(null)).is_ok());
    }
}
