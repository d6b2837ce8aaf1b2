//! PREPARE, EXECUTE and DEALLOCATE: prepared statements by name, as those of the extended protocol.

use crate::lifecycle::pg::extended::{Portal, Prepared, no_statement};
use crate::lifecycle::pg::reports::Failure;
use crate::lifecycle::pg::session::Session;
use pg_wire::backend::Report;
use pg_wire::command::Command;
use pg_wire::insert::Value;
use sql::Parameter;

impl Session {
    /// Prepares the statement that begins at a byte of the text. Its names are resolved at once, as in PostgreSQL.
    pub(super) async fn prepare(
        &mut self,
        portal: &Portal,
        name: String,
        types: Vec<u32>,
        query: usize,
    ) -> Result<(), Failure> {
        let moved = |failure: Failure| failure.within(&portal.text, query);
        let text = portal.text.get(query..).unwrap_or_default();
        let mut prepared = Prepared::new(text, types).map_err(|report| moved(report.into()))?;
        if !matches!(prepared.command, Command::Read | Command::Insert(_) | Command::Write(_)) {
            let what = "syntax error: PREPARE takes SELECT, VALUES, INSERT, UPDATE or DELETE";
            return Err(Report::error("42601", what).at(&portal.text, query).into());
        }
        let given = prepared.types.clone();
        let mut described = self.described(&prepared, given).await.map_err(moved)?;
        prepared.restore_given(&mut described.0);
        prepared.described = Some(described);
        self.keep_statement(name, prepared)?;
        self.done("PREPARE");
        Ok(())
    }

    /// Makes a portal of EXECUTE one of the named statement with its values.
    pub(super) fn bind_values(
        &self,
        portal: &mut Portal,
        name: &str,
        values: Vec<Value>,
    ) -> Result<(), Failure> {
        let prepared = self.extended.statements.get(name).ok_or_else(|| no_statement(name))?;
        if matches!(prepared.command, Command::Execute { .. }) {
            let what = "EXECUTE of a statement that is itself EXECUTE is not supported";
            return Err(Report::error("0A000", what).into());
        }
        let types = prepared.described.as_ref().map_or(&prepared.types, |(types, _)| types);
        if prepared.described.is_some() && types.len() != values.len() {
            let what = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {} parameters but got {}.", types.len(), values.len());
            return Err(Report { detail: Some(detail), ..Report::error("42601", what) }.into());
        }
        let mut parameters = Vec::with_capacity(values.len());
        for (value, place) in values.into_iter().zip(0_usize..) {
            let value = match value {
                Value::Null => None,
                Value::Text(text) => Some(text),
                Value::Parameter(number, _) => {
                    let what = format!("there is no parameter ${number}");
                    return Err(Report::error("42P02", what).into());
                }
            };
            parameters.push(Parameter { oid: types.get(place).copied().unwrap_or(0), value });
        }
        let binary = std::mem::take(&mut portal.binary);
        *portal = Portal::of(prepared, parameters, binary);
        Ok(())
    }

    /// Drops a named statement, or all.
    pub(super) fn deallocate(&mut self, name: Option<&str>) -> Result<(), Failure> {
        match name {
            Some(name) => {
                self.extended.statements.remove(name).ok_or_else(|| no_statement(name))?;
                self.done("DEALLOCATE");
            }
            None => {
                self.extended.statements.clear();
                self.done("DEALLOCATE ALL");
            }
        }
        Ok(())
    }
}
