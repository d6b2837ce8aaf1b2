//! The extended protocol: prepared statements, portals, and their limits.

use crate::common::pg_counts::{PgLimit, PgStatement};
use crate::lifecycle::pg::reports::{Failure, of_syntax};
use crate::lifecycle::pg::session::Session;
use crate::lifecycle::pg::statement_rows::StatementRows;
use pg_wire::backend::{BOUND, CLOSED, Column, Messages, NO_COLUMNS, PARSED, Report};
use pg_wire::command::{Command, command};
use pg_wire::frontend::{Message, PARAMETERS_MAX, Target};
use pg_wire::insert::{Copy, Direction};
use pg_wire::parameters;
use pg_wire::scanner::{parameter_count, statements};
use sql::Parameter;
use std::collections::HashMap;
use std::sync::Arc;

/// Most prepared statements of a session, and the bytes of their memory. The one without a name has the limit of a
/// message instead.
const STATEMENTS_MAX: usize = 256;
const STATEMENT_BYTES_MAX: usize = 2 << 20;
/// Most portals and cursors of a session, and the bytes of their memory.
const PORTALS_MAX: usize = 64;
const PORTAL_BYTES_MAX: usize = 8 << 20;

/// A prepared statement.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) text: Arc<str>,
    pub(super) command: Command,
    /// Types of the parameters that the client gave; 0: unknown.
    pub(super) types: Vec<u32>,
    /// Types of all parameters and the message of the columns, once they are known.
    pub(super) described: Option<(Vec<u32>, Option<Vec<u8>>)>,
}

/// A statement with its values.
#[derive(Debug)]
pub(super) struct Portal {
    pub(super) text: Arc<str>,
    pub(super) command: Command,
    pub(super) parameters: Vec<Parameter>,
    /// Whether result columns are binary.
    pub(super) binary: Vec<bool>,
    pub(super) rows: Option<StatementRows>,
    /// Rows that the client has fetched so far.
    pub(super) count: u64,
    /// Whether it has ended.
    pub(super) is_done: bool,
    pub(super) lifetime: Lifetime,
}

/// How long a portal lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// Until its transaction ends.
    Transaction,
    /// As long as the session, once its transaction succeeds.
    Held,
    /// As long as the session.
    Session,
}

/// Prepared statements and portals of a session, by name.
#[derive(Debug, Default)]
pub(super) struct Extended {
    pub(super) statements: HashMap<String, Prepared>,
    pub(super) portals: HashMap<String, Portal>,
    /// Whether messages are skipped until the next Sync, after an error.
    pub(super) skips: bool,
}

impl Prepared {
    /// Reads a statement.
    pub(super) fn new(text: &str, types: Vec<u32>) -> Result<Self, Report> {
        if types.len() > PARAMETERS_MAX {
            let what = format!("a statement has at most {PARAMETERS_MAX} parameters");
            return Err(Report::error("54023", what));
        }
        let command = command(text).map_err(|error| of_syntax(&error, text))?;
        Ok(Self { text: text.into(), command, types, described: None })
    }

    /// The text that the engine will run, if any.
    ///
    /// # Errors
    /// It is no statement that a cursor or a prepared statement may have.
    pub(super) fn engine_text(&self) -> Result<Option<&str>, Report> {
        match &self.command {
            Command::Read => Ok(Some(&self.text)),
            Command::Declare { query, .. } | Command::Prepare { query, .. } => {
                let text = self.text.get(*query..).unwrap_or_default();
                match Self::new(text, Vec::new())?.command {
                    Command::Read => Ok(Some(text)),
                    Command::Insert(_) | Command::Write(_) => Ok(None),
                    _ => {
                        let what =
                            "syntax error: expected SELECT, VALUES, INSERT, UPDATE or DELETE";
                        Err(Report::error("42601", what).at(&self.text, *query))
                    }
                }
            }
            Command::Copy(Copy { direction: Direction::Out(query), .. }) => Ok(Some(query)),
            _ => Ok(None),
        }
    }

    fn bytes(&self) -> usize {
        bytes_of(&self.text, &self.command)
    }

    /// Types that the client gave are reported as it gave them: JDBC rejects another one, as `text` for `varchar`.
    pub(super) fn restore_given(&self, described: &mut [u32]) {
        for (slot, given) in described.iter_mut().zip(&self.types) {
            if *given != 0 {
                *slot = *given;
            }
        }
    }
}

/// Memory of a statement in bytes. Rows of INSERT take several times their text.
fn bytes_of(text: &str, command: &Command) -> usize {
    let insert = if let Command::Insert(insert) = command { insert.bytes() } else { 0 };
    text.len().saturating_add(insert)
}

impl Portal {
    /// A statement with these values.
    pub(super) fn of(prepared: &Prepared, parameters: Vec<Parameter>, binary: Vec<bool>) -> Self {
        Self {
            text: Arc::clone(&prepared.text),
            command: prepared.command.clone(),
            parameters,
            binary,
            rows: None,
            count: 0,
            is_done: false,
            lifetime: Lifetime::Transaction,
        }
    }

    /// Whether a second run is an error. Statements with rows have none left then.
    fn runs_once(&self) -> bool {
        !matches!(
            self.command,
            Command::Empty | Command::Read | Command::Show(_) | Command::Fetch { .. }
        )
    }

    fn bytes(&self) -> usize {
        let values = self.parameters.iter().map(|one| one.value.as_ref().map_or(8, String::len));
        values.sum::<usize>().saturating_add(bytes_of(&self.text, &self.command))
    }
}

impl Session {
    pub(super) async fn extended_message(&mut self, message: Message) -> Result<(), Failure> {
        match message {
            Message::Parse { name, text, types } => self.parse(name, &text, types),
            Message::Bind { portal, statement, values, results } => {
                self.bind(portal, &statement, values, results)
            }
            Message::Describe(Target::Statement, name) => self.describe_statement(&name).await,
            Message::Describe(Target::Portal, name) => self.describe_portal(&name).await,
            Message::Execute(name, rows_max) => {
                let mut portal =
                    self.extended.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
                if portal.is_done && portal.runs_once() {
                    let what = format!("portal \"{name}\" cannot be run");
                    return Err(Report::error("55000", what).into());
                }
                let done = self.execute(&mut portal, rows_max, false).await;
                portal.is_done |= portal.runs_once();
                // A portal ends with its transaction, and with its error.
                let has_ended = matches!(portal.command, Command::Commit | Command::Rollback);
                if done.is_ok() && !has_ended {
                    self.extended.portals.insert(name, portal);
                }
                done
            }
            Message::Close(target, name) => {
                match target {
                    Target::Statement => drop(self.extended.statements.remove(&name)),
                    Target::Portal => drop(self.extended.portals.remove(&name)),
                }
                self.out.empty(CLOSED);
                Ok(())
            }
            // The messages are sent after each message.
            _ => Ok(()),
        }
    }

    fn parse(&mut self, name: String, text: &str, types: Vec<u32>) -> Result<(), Failure> {
        let parts = statements(text).map_err(|error| of_syntax(&error, text))?;
        let part = match &*parts {
            [] => "",
            [(_, _)] => text,
            _ => {
                let what = "a prepared statement is one statement, without further ones after `;`";
                return Err(Report::error("42601", what).into());
            }
        };
        let trimmed = part.trim_end().trim_end_matches(';');
        self.keep_statement(name, Prepared::new(trimmed, types)?)?;
        self.out.empty(PARSED);
        Ok(())
    }

    /// Keeps a prepared statement, within the limits of a session.
    pub(super) fn keep_statement(
        &mut self,
        name: String,
        prepared: Prepared,
    ) -> Result<(), Failure> {
        if !name.is_empty() && self.extended.statements.contains_key(&name) {
            let what = format!("prepared statement \"{name}\" already exists");
            return Err(Report::error("42P05", what).into());
        }
        let bytes = self.extended.statements.values().map(Prepared::bytes).sum::<usize>();
        let is_full = self.extended.statements.len() >= STATEMENTS_MAX
            || bytes.saturating_add(prepared.bytes()) > STATEMENT_BYTES_MAX;
        if !name.is_empty() && is_full {
            self.app.pg.counts.limits.add(PgLimit::Statements, 1);
            let what = format!(
                "a session has at most {STATEMENTS_MAX} prepared statements, with 2 MiB of memory; \
                 close some first"
            );
            return Err(Report::error("54000", what).into());
        }
        self.extended.statements.insert(name, prepared);
        Ok(())
    }

    fn bind(
        &mut self,
        name: String,
        statement: &str,
        values: Vec<(bool, Option<Vec<u8>>)>,
        results: Vec<bool>,
    ) -> Result<(), Failure> {
        let prepared =
            self.extended.statements.get(statement).ok_or_else(|| no_statement(statement))?;
        let types = match (&prepared.described, &prepared.command) {
            (Some((types, _)), _) => types.clone(),
            (None, Command::Insert(insert)) => insert.parameter_types(),
            (None, _) => prepared.types.clone(),
        };
        let required = parameter_count(&prepared.text).max(prepared.types.len());
        if values.len() != required {
            let what = format!(
                "bind message supplies {} parameters, but prepared statement \"{statement}\" \
                 requires {required}",
                values.len()
            );
            return Err(Report::error("08P01", what).into());
        }
        let mut bound = Vec::with_capacity(values.len());
        for ((binary, value), place) in values.into_iter().zip(0_usize..) {
            let given = prepared.types.get(place).copied().filter(|kind| *kind != 0);
            let oid = given.or(types.get(place).copied()).unwrap_or(0);
            let text = value.map(|bytes| parameters::text(oid, binary, &bytes)).transpose();
            let value = text.map_err(|error| {
                Report::error("22P03", format!("parameter ${}: {error}", place + 1))
            })?;
            bound.push(Parameter { oid, value });
        }
        let portal = Portal::of(prepared, bound, results);
        self.keep(name, portal)?;
        self.out.empty(BOUND);
        Ok(())
    }

    /// Keeps a portal, within the limits of a session.
    pub(super) fn keep(&mut self, name: String, portal: Portal) -> Result<(), Failure> {
        let portals = &mut self.extended.portals;
        if !name.is_empty() && portals.contains_key(&name) {
            let what = format!("cursor \"{name}\" already exists");
            return Err(Report::error("42P03", what).into());
        }
        portals.remove(&name);
        let bytes: usize = portals.values().map(Portal::bytes).sum();
        if portals.len() >= PORTALS_MAX || bytes.saturating_add(portal.bytes()) > PORTAL_BYTES_MAX {
            self.app.pg.counts.limits.add(PgLimit::Portals, 1);
            let what = format!(
                "a session has at most {PORTALS_MAX} portals and cursors, with 8 MiB of memory; \
                 close some first"
            );
            return Err(Report::error("54000", what).into());
        }
        portals.insert(name, portal);
        Ok(())
    }

    async fn describe_statement(&mut self, name: &str) -> Result<(), Failure> {
        let prepared = self.extended.statements.get(name).ok_or_else(|| no_statement(name))?;
        let (types, columns) = match &prepared.described {
            Some(described) => described.clone(),
            None => {
                let (prepared, types) = (prepared.clone(), prepared.types.clone());
                let mut described = self.described(&prepared, types).await?;
                prepared.restore_given(&mut described.0);
                if let Some(known) = self.extended.statements.get_mut(name) {
                    known.described = Some(described.clone());
                }
                described
            }
        };
        self.out.parameters(&types);
        match columns {
            Some(columns) => self.out.0.extend(columns),
            None => self.out.empty(NO_COLUMNS),
        }
        Ok(())
    }

    /// Types of the parameters, and the message of the columns.
    pub(super) async fn described(
        &self,
        prepared: &Prepared,
        types: Vec<u32>,
    ) -> Result<(Vec<u32>, Option<Vec<u8>>), Failure> {
        let text = match prepared.command {
            Command::Read => Some(prepared.text.to_string()),
            Command::Declare { query, .. } => prepared.text.get(query..).map(str::to_owned),
            _ => None,
        };
        let Some(text) = text else {
            let types = match &prepared.command {
                Command::Insert(insert) => insert.parameter_types(),
                _ => types,
            };
            return Ok((types, self.own_columns(&prepared.command)?));
        };
        let parameters = types.iter().map(|oid| Parameter { oid: *oid, value: None }).collect();
        let rows = self.start_rows(&text, parameters, Vec::new(), true).await?;
        let columns = matches!(prepared.command, Command::Read).then(|| rows.columns.clone());
        Ok((rows.parameters.clone(), columns))
    }

    async fn describe_portal(&mut self, name: &str) -> Result<(), Failure> {
        let mut portal = self.extended.portals.remove(name).ok_or_else(|| no_portal(name))?;
        self.describe(&mut portal).await?;
        self.extended.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    async fn describe(&mut self, portal: &mut Portal) -> Result<(), Failure> {
        if let Command::Execute { name, values } = portal.command.clone() {
            self.bind_values(portal, &name, values)?;
        }
        if matches!(portal.command, Command::Read) {
            self.must_not_have_failed(&portal.command)?;
            let rows = self.open_rows(portal).await?;
            let columns = rows.columns.clone();
            self.out.0.extend(columns);
            return Ok(());
        }
        match self.own_columns(&portal.command)? {
            Some(columns) => self.out.0.extend(columns),
            None => self.out.empty(NO_COLUMNS),
        }
        Ok(())
    }

    /// The message of the columns of a statement that needs no engine, if it has columns.
    pub(super) fn own_columns(&self, command: &Command) -> Result<Option<Vec<u8>>, Failure> {
        let columns = match command {
            Command::Show(name) if name == "all" => ["name", "setting", "description"].to_vec(),
            Command::Show(name) => vec![self.settings.show(name)?.0],
            Command::Fetch { name, skips: false, .. } => {
                let portal = self.extended.portals.get(name).ok_or_else(|| no_portal(name))?;
                return Ok(portal.rows.as_ref().map(|rows| rows.columns.clone()));
            }
            Command::Execute { name, .. } => {
                let prepared = self.extended.statements.get(name);
                let prepared = prepared.ok_or_else(|| no_statement(name))?;
                return Ok(prepared.described.as_ref().and_then(|(_, columns)| columns.clone()));
            }
            _ => return Ok(None),
        };
        let mut messages = Messages::default();
        messages.columns(&columns.into_iter().map(Column::text).collect::<Vec<_>>());
        Ok(Some(messages.0))
    }

    /// Counts a statement that ended with its result.
    pub(super) fn done(&mut self, tag: &str) {
        self.app.pg.counts.statements.add(PgStatement::Done, 1);
        self.out.complete(tag);
    }
}

pub(super) fn no_statement(name: &str) -> Report {
    Report::error("26000", format!("prepared statement \"{name}\" does not exist"))
}

pub(super) fn no_portal(name: &str) -> Report {
    Report::error("34000", format!("cursor \"{name}\" does not exist"))
}
