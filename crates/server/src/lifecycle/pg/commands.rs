//! Execution of a statement: transactions, settings, and reads by the engine.

use crate::lifecycle::pg::extended::{Lifetime, Portal};
use crate::lifecycle::pg::reports::Failure;
use crate::lifecycle::pg::session::{SENT_BYTES, Session};
use crate::lifecycle::pg::statement_rows::{StatementRows, Taken, start};
use pg_wire::backend::{EMPTY_QUERY, Report, SUSPENDED, State};
use pg_wire::command::Command;
use pg_wire::transaction::Modes;
use sql::{Parameter, WireStatement};

impl Session {
    /// Executes a statement, up to a number of rows; 0: all. `announces`: the columns precede the rows.
    pub(super) async fn execute(
        &mut self,
        portal: &mut Portal,
        rows_max: u32,
        announces: bool,
    ) -> Result<(), Failure> {
        self.must_not_have_failed(&portal.command)?;
        self.settings.note_query(reads_or_writes(&portal.command));
        match portal.command.clone() {
            Command::Empty => self.out.empty(EMPTY_QUERY),
            Command::Begin { starts, modes } => {
                if self.state == State::Open {
                    self.warn("25001", "there is already a transaction in progress");
                } else {
                    self.pending.begin(self.app.now());
                }
                self.state = State::Open;
                self.set_modes("", modes)?;
                self.done(if starts { "START TRANSACTION" } else { "BEGIN" });
            }
            Command::Commit => return self.commit().await,
            Command::Rollback => self.rollback(),
            command @ (Command::Savepoint(_) | Command::Release(_) | Command::RollbackTo(_)) => {
                self.savepoint(command)?;
            }
            command @ (Command::Set { .. }
            | Command::SetTransaction(_)
            | Command::SetSession(_)
            | Command::Reset(_)) => self.set(command)?,
            Command::Show(name) => self.show(&name, announces)?,
            Command::Discard(what) => self.discard(&what)?,
            Command::Prepare { name, types, query } => {
                return self.prepare(portal, name, types, query).await;
            }
            Command::Execute { name, values } => {
                self.bind_values(portal, &name, values)?;
                return Box::pin(self.execute(portal, rows_max, announces)).await;
            }
            Command::Deallocate(name) => self.deallocate(name.as_deref())?,
            Command::Unlisten => self.done("UNLISTEN"),
            Command::Declare { name, binary, hold, query } => {
                return self.declare(portal, (name, binary, hold), query).await;
            }
            Command::Fetch { name, count, skips } => {
                return self.fetch(&name, count, skips, announces).await;
            }
            Command::Close(name) => {
                self.close(name.as_deref())?;
                self.done("CLOSE CURSOR");
            }
            Command::Insert(insert) => return self.insert(&insert, &portal.parameters).await,
            Command::Copy(copy) => return self.copy(copy).await,
            Command::Write(word) => {
                let what = format!(
                    "cannot execute {} in a read-only transaction: clients write with INSERT INTO \
                     metrics … VALUES and COPY metrics FROM STDIN only",
                    word.to_uppercase()
                );
                return Err(Report::error("25006", what).into());
            }
            Command::Read => return self.read(portal, rows_max, announces).await,
        }
        Ok(())
    }

    /// In a transaction that failed, only its end is executed.
    pub(super) fn must_not_have_failed(&self, command: &Command) -> Result<(), Failure> {
        let ends = matches!(
            command,
            Command::Commit | Command::Rollback | Command::RollbackTo(_) | Command::Empty
        );
        if self.state == State::Failed && !ends {
            let what =
                "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Report::error("25P02", what).into());
        }
        Ok(())
    }

    fn set(&mut self, command: Command) -> Result<(), Failure> {
        match command {
            Command::Set { name, value, local } => {
                if local {
                    self.warn_without_transaction("SET LOCAL");
                }
                self.settings.set(&name, value.as_deref(), local)?;
                self.done("SET");
            }
            Command::SetTransaction(modes) => {
                self.warn_without_transaction("SET TRANSACTION");
                self.set_modes("", modes)?;
                self.done("SET");
            }
            Command::SetSession(modes) => {
                self.set_modes("default_", modes)?;
                self.done("SET");
            }
            Command::Reset(Some(name)) => {
                self.settings.set(&name, None, false)?;
                self.done("RESET");
            }
            Command::Reset(None) => {
                self.settings.reset();
                self.done("RESET");
            }
            _ => {}
        }
        Ok(())
    }

    fn savepoint(&mut self, command: Command) -> Result<(), Failure> {
        match command {
            Command::Savepoint(name) => {
                self.must_be_in_a_transaction("SAVEPOINT")?;
                self.pending.savepoint(name)?;
                self.settings.savepoint();
                self.done("SAVEPOINT");
            }
            Command::Release(name) => {
                self.must_be_in_a_transaction("RELEASE SAVEPOINT")?;
                let place = self.pending.release(&name)?;
                self.settings.release(place);
                self.done("RELEASE");
            }
            Command::RollbackTo(name) => {
                self.must_be_in_a_transaction("ROLLBACK TO SAVEPOINT")?;
                let place = self.pending.rollback_to(&name)?;
                self.settings.rollback_to(place);
                self.state = State::Open;
                self.done("ROLLBACK");
            }
            _ => {}
        }
        Ok(())
    }

    fn must_be_in_a_transaction(&self, word: &str) -> Result<(), Failure> {
        if self.state == State::Idle {
            let what = format!("{word} can only be used in transaction blocks");
            return Err(Report::error("25P01", what).into());
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), Failure> {
        let has_failed = self.state == State::Failed;
        self.state = State::Idle;
        if has_failed {
            self.discard_pending();
            self.done("ROLLBACK");
            return Ok(());
        }
        self.store_pending().await?;
        self.settings.commit();
        self.end_portals();
        self.done("COMMIT");
        Ok(())
    }

    fn rollback(&mut self) {
        self.state = State::Idle;
        self.discard_pending();
        self.done("ROLLBACK");
    }

    /// Drops what a transaction has inserted, set and declared.
    pub(super) fn discard_pending(&mut self) {
        self.pending.clear();
        self.settings.rollback();
        self.extended.portals.retain(|_, portal| portal.lifetime == Lifetime::Session);
    }

    /// Sets the modes of this transaction, or with the prefix `default_` those of later ones.
    fn set_modes(&mut self, prefix: &str, modes: Modes) -> Result<(), Failure> {
        let is_local = prefix.is_empty();
        if let Some(is_read_only) = modes.is_read_only {
            let value = if is_read_only { "on" } else { "off" };
            self.settings.set(&format!("{prefix}transaction_read_only"), Some(value), is_local)?;
        }
        if let Some(isolation) = modes.isolation {
            let name = format!("{prefix}transaction_isolation");
            self.settings.set(&name, Some(isolation), is_local)?;
        }
        Ok(())
    }

    fn warn(&mut self, code: &'static str, what: &str) {
        self.out.report(&Report { severity: "WARNING", ..Report::error(code, what) });
    }

    /// A message of a single statement ends what it sets in its transaction.
    fn warn_without_transaction(&mut self, word: &str) {
        if self.state == State::Idle && self.is_last {
            self.warn("25P01", &format!("{word} can only be used in transaction blocks"));
        }
    }

    /// Drops the portals of a transaction that ends, and keeps the cursors that outlive it.
    pub(super) fn end_portals(&mut self) {
        self.extended.portals.retain(|_, portal| portal.lifetime != Lifetime::Transaction);
        for portal in self.extended.portals.values_mut() {
            portal.lifetime = Lifetime::Session;
        }
    }

    fn discard(&mut self, what: &str) -> Result<(), Failure> {
        match what {
            "all" if self.state != State::Idle => {
                let what = "DISCARD ALL cannot run inside a transaction block";
                return Err(Report::error("25001", what).into());
            }
            "all" => {
                self.extended.statements.clear();
                self.extended.portals.clear();
                self.settings.reset();
                self.done("DISCARD ALL");
            }
            "plans" => self.done("DISCARD PLANS"),
            "sequences" => self.done("DISCARD SEQUENCES"),
            "temp" | "temporary" => self.done("DISCARD TEMP"),
            _ => return Err(Report::error("42601", "syntax error in DISCARD").into()),
        }
        Ok(())
    }

    fn show(&mut self, name: &str, announces: bool) -> Result<(), Failure> {
        let columns = self.own_columns(&Command::Show(name.to_owned()))?;
        if announces && let Some(columns) = columns {
            self.out.0.extend(columns);
        }
        if name == "all" {
            for (name, value) in self.settings.all() {
                self.out.row(&[Some(&name), Some(&value), None]);
            }
        } else {
            let value = self.settings.show(name)?.1.to_owned();
            self.out.row(&[Some(&value)]);
        }
        self.done("SHOW");
        Ok(())
    }

    /// Starts a statement of the engine.
    pub(super) async fn start_rows(
        &self,
        text: &str,
        parameters: Vec<Parameter>,
        binary: Vec<bool>,
        describes: bool,
    ) -> Result<StatementRows, Failure> {
        let statement = WireStatement {
            parameters,
            binary,
            describes,
            user: self.user.clone(),
            session: self.open.id,
            settings: self.settings.all(),
        };
        let interrupt = self.interrupt();
        let zone = self.settings.zone().to_owned();
        let (app, caller) = (&self.app, &self.caller);
        start((app, caller), text, statement, &zone, interrupt).await
    }

    /// The rows of a portal, which begins with its first use.
    pub(super) async fn open_rows<'a>(
        &self,
        portal: &'a mut Portal,
    ) -> Result<&'a mut StatementRows, Failure> {
        let rows = match portal.rows.take() {
            Some(rows) => rows,
            None => {
                let (parameters, binary) = (portal.parameters.clone(), portal.binary.clone());
                self.start_rows(&portal.text, parameters, binary, false).await?
            }
        };
        Ok(portal.rows.insert(rows))
    }

    async fn read(
        &mut self,
        portal: &mut Portal,
        rows_max: u32,
        announces: bool,
    ) -> Result<(), Failure> {
        if portal.is_done {
            self.done("SELECT 0");
            return Ok(());
        }
        let rows = self.open_rows(portal).await?;
        if announces {
            let columns = rows.columns.clone();
            self.out.0.extend(columns);
        }
        let max = if rows_max == 0 { u64::MAX } else { rows_max.into() };
        let (count, has_ended) = self.send_rows(rows, max).await?;
        portal.count = portal.count.saturating_add(count);
        if !has_ended {
            self.out.empty(SUSPENDED);
            return Ok(());
        }
        (portal.is_done, portal.rows) = (true, None);
        self.done(&format!("SELECT {}", portal.count));
        Ok(())
    }

    /// Sends rows, and returns their number and whether there are no more.
    pub(super) async fn send_rows(
        &mut self,
        rows: &mut StatementRows,
        max: u64,
    ) -> Result<(u64, bool), Failure> {
        let mut interrupt = self.interrupt();
        let mut count = 0;
        loop {
            let bounds = (max.saturating_sub(count), SENT_BYTES);
            match rows.take(&mut self.out, bounds, &mut interrupt).await? {
                Taken::All(more) => return Ok((count + more, true)),
                Taken::Some(more) => return Ok((count + more, false)),
                Taken::Full(more) => {
                    count += more;
                    self.flush().await?;
                    if count >= max {
                        return Ok((count, rows.is_done()));
                    }
                }
            }
        }
    }
}

/// Whether the mode of a transaction is fixed once this has run in it.
const fn reads_or_writes(command: &Command) -> bool {
    matches!(
        command,
        Command::Read
            | Command::Insert(_)
            | Command::Copy(_)
            | Command::Write(_)
            | Command::Declare { .. }
            | Command::Prepare { .. }
            | Command::Execute { .. }
    )
}
