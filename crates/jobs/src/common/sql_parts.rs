//! SQL fragments and column conversions that all queries share.

use crate::RegistryError;
use model::{ClusterId, DeviceId, JobId, JobKey};
use rusqlite::types::Value;

/// A `WHERE` clause with bound values.
#[derive(Clone, Default)]
pub(crate) struct Clauses {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

impl Clauses {
    pub(crate) fn and(&mut self, clause: &str, value: Value) {
        self.and_all(clause, [value]);
    }

    /// Adds a clause with one placeholder for each value.
    pub(crate) fn and_all(&mut self, clause: &str, values: impl IntoIterator<Item = Value>) {
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(clause);
        self.values.extend(values);
    }

    /// Adds other clauses with their values.
    pub(crate) fn and_these(&mut self, others: Self) {
        let text = others.text.strip_prefix(" WHERE ").unwrap_or(&others.text);
        if !text.is_empty() {
            self.and_all(text, others.values);
        }
    }
}

/// Builds a job key from its columns.
pub(crate) fn key(cluster: String, id: i64) -> Result<JobKey, RegistryError> {
    let Some(number) = JobId::new(id) else { return Err(RegistryError::Damaged(id.to_string())) };
    let cluster = ClusterId::new(&cluster).map_err(|_| RegistryError::Damaged(cluster))?;
    Ok(JobKey { cluster, id: number })
}

/// Builds a device ID from its column.
pub(crate) fn device(name: String) -> Result<DeviceId, RegistryError> {
    DeviceId::new(&name).map_err(|_| RegistryError::Damaged(name))
}
