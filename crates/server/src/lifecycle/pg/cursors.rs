//! Cursors: DECLARE, FETCH, MOVE and CLOSE. A cursor is a portal.

use crate::lifecycle::pg::extended::{Portal, no_portal};
use crate::lifecycle::pg::reports::Failure;
use crate::lifecycle::pg::session::{SENT_BYTES, Session};
use crate::lifecycle::pg::statement_rows::{StatementRows, Taken};
use pg_wire::backend::{Messages, Report, State};
use pg_wire::command::{Command, Count};

impl Session {
    pub(super) async fn declare(
        &mut self,
        portal: &Portal,
        (name, binary, holds): (String, bool, bool),
        query: usize,
    ) -> Result<(), Failure> {
        let text = portal.text.get(query..).unwrap_or_default().into();
        let mut cursor = Portal {
            text,
            command: Command::Read,
            parameters: portal.parameters.clone(),
            binary: vec![binary],
            rows: None,
            count: 0,
            is_done: false,
            holds,
        };
        if self.state == State::Idle && !holds {
            let what = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(Report::error("25P01", what).into());
        }
        if self.extended.portals.contains_key(&name) {
            let what = format!("cursor \"{name}\" already exists");
            return Err(Report::error("42P03", what).into());
        }
        // Its errors are those of DECLARE, as in PostgreSQL.
        self.open_rows(&mut cursor).await?;
        self.keep(name, cursor)?;
        self.done("DECLARE CURSOR");
        Ok(())
    }

    pub(super) async fn fetch(
        &mut self,
        name: &str,
        count: Count,
        skips: bool,
        announces: bool,
    ) -> Result<(), Failure> {
        let mut cursor = self.extended.portals.remove(name).ok_or_else(|| no_portal(name))?;
        // A cursor ends with its error.
        let fetched = self.fetch_from(&mut cursor, count, skips, announces).await?;
        self.extended.portals.insert(name.to_owned(), cursor);
        let word = if skips { "MOVE" } else { "FETCH" };
        let tag = format!("{word} {fetched}");
        self.done(&tag);
        Ok(())
    }

    async fn fetch_from(
        &mut self,
        cursor: &mut Portal,
        count: Count,
        skips: bool,
        announces: bool,
    ) -> Result<u64, Failure> {
        let max = match count {
            Count::All => u64::MAX,
            Count::Next(count) => count.into(),
        };
        let rows = self.open_rows(cursor).await?;
        if skips {
            return self.skip_rows(rows, max).await;
        }
        if announces {
            let columns = rows.columns.clone();
            self.out.0.extend(columns);
        }
        self.send_rows(rows, max).await.map(|(count, _)| count)
    }

    async fn skip_rows(&self, rows: &mut StatementRows, max: u64) -> Result<u64, Failure> {
        let (mut interrupt, mut skipped, mut count) = (self.interrupt(), Messages::default(), 0);
        loop {
            skipped.0.clear();
            let bounds = (max.saturating_sub(count), SENT_BYTES);
            match rows.take(&mut skipped, bounds, &mut interrupt).await? {
                Taken::Full(more) => count += more,
                Taken::All(more) | Taken::Some(more) => return Ok(count + more),
            }
        }
    }

    /// Closes a cursor, or all.
    pub(super) fn close(&mut self, name: Option<&str>) -> Result<(), Failure> {
        match name {
            Some(name) => {
                self.extended.portals.remove(name).ok_or_else(|| no_portal(name))?;
            }
            None => self.extended.portals.clear(),
        }
        Ok(())
    }
}
