//! Rows of tables, found by the text of a column: `{{ PREFIX == TEXT }}`.
//!
//! The column is walked at the start, every 300 s, and when the text of a row has changed. The text is read again with
//! each value: a renumbered row never gives its number to another one.

use super::client::SnmpClient;
use super::requests::{RowText, Variable};
use super::values::text;
use crate::polling::reading::Failure;
use crate::protocols::OidTemplate;
use async_snmp::{Oid, Value};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Interval of walks.
const WALK_EVERY: Duration = Duration::from_secs(300);

/// The known rows, by column.
#[derive(Default)]
pub(super) struct Rows {
    columns: HashMap<Oid, Column>,
}

struct Column {
    walked: Instant,
    /// The index of each text; `None` if several rows have it.
    indexes: HashMap<String, Option<Vec<u32>>>,
}

impl Rows {
    /// Whether the column of a template was walked.
    pub(super) fn has(&self, template: &OidTemplate) -> bool {
        let known = self.columns.get(&Oid::from_slice(&template.column.0));
        known.is_some_and(|known| known.walked.elapsed() < WALK_EVERY)
    }

    /// Walks the column of a template. `is_unanswered` becomes false when the agent answers.
    pub(super) async fn walk(
        &mut self,
        client: &SnmpClient,
        template: &OidTemplate,
        is_unanswered: &mut bool,
    ) -> Result<(), Failure> {
        let column = Oid::from_slice(&template.column.0);
        let indexes = walk(client, &column, is_unanswered).await?;
        self.columns.insert(column, Column { walked: Instant::now(), indexes });
        Ok(())
    }

    /// The variable of a template's row, of a column that was walked.
    pub(super) fn find(&self, template: &OidTemplate) -> Result<Variable, Failure> {
        let column = Oid::from_slice(&template.column.0);
        let shown = template.text.escape_debug();
        let found = self.columns.get(&column).and_then(|known| known.indexes.get(&template.text));
        match found {
            Some(Some(index)) => {
                let all = [&template.before.0[..], index, &template.after.0].concat();
                let row = [&template.column.0[..], index].concat();
                let row = RowText { oid: Oid::new(row), text: template.text.clone(), column };
                Ok(Variable { row: Some(row), ..Variable::of(Oid::new(all)) })
            }
            Some(None) => Err(Failure::broken(format!("several rows have the text `{shown}`"))),
            None => Err(Failure::broken(format!("no row has the text `{shown}`"))),
        }
    }

    /// Forgets a column, because a row of it has another text now.
    pub(super) fn forget(&mut self, column: &Oid) {
        self.columns.remove(column);
    }
}

async fn walk(
    client: &SnmpClient,
    column: &Oid,
    is_unanswered: &mut bool,
) -> Result<HashMap<String, Option<Vec<u32>>>, Failure> {
    let mut indexes = HashMap::new();
    for found in client.walk(column, is_unanswered).await? {
        let Some(index) = found.oid.arcs().get(column.arcs().len()..) else { continue };
        if let Some(text) = of_row(&found.value) {
            let index = Some(index.to_vec());
            indexes.entry(text).and_modify(|known| *known = None).or_insert(index);
        }
    }
    Ok(indexes)
}

/// The text of a row, as a template names it.
pub(super) fn of_row(value: &Value) -> Option<String> {
    match value {
        Value::OctetString(bytes) => Some(text(bytes).trim().to_owned()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Counter32(number) | Value::Gauge32(number) => Some(number.to_string()),
        Value::ObjectIdentifier(oid) => Some(oid.to_string()),
        Value::IpAddress([a, b, c, d]) => Some(format!("{a}.{b}.{c}.{d}")),
        _ => None,
    }
}
