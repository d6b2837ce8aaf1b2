//! Cursors: DECLARE, FETCH, MOVE and CLOSE. A cursor is a portal.

use crate::lifecycle::pg::extended::{Lifetime, Portal, no_portal};
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
            lifetime: if holds { Lifetime::Held } else { Lifetime::Transaction },
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
        // The message of the columns precedes the rows, even if there are none.
        if announces && !skips {
            let columns = self.open_rows(cursor).await?.columns.clone();
            self.out.0.extend(columns);
        }
        let is_at_a_row = cursor.count > 0 && !cursor.is_done;
        let (before, max) = match count {
            Count::All => (0, u64::MAX),
            Count::Next(count) => (0, count),
            Count::Relative(count) => (count.saturating_sub(1), 1),
            Count::Absolute(number) => match rows_before(cursor, number) {
                Some(before) => (before, number.min(1)),
                None => return Err(only_forward()),
            },
            Count::Current if skips => return Ok(u64::from(is_at_a_row)),
            Count::Current if !is_at_a_row => return Ok(0),
            Count::Current | Count::Backward => return Err(only_forward()),
        };
        self.advance(cursor, before, true).await?;
        self.advance(cursor, max, skips).await
    }

    /// Sends or skips the next rows of a cursor. Returns their number.
    async fn advance(
        &mut self,
        cursor: &mut Portal,
        max: u64,
        skips: bool,
    ) -> Result<u64, Failure> {
        let rows = self.open_rows(cursor).await?;
        let count = match skips {
            true => self.skip_rows(rows, max).await?,
            false => self.send_rows(rows, max).await?.0,
        };
        cursor.count = cursor.count.saturating_add(count);
        cursor.is_done |= count < max;
        Ok(count)
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

/// How many rows are skipped before the row of a number, from 1; `None`: the cursor would have to go back, as PostgreSQL
/// decides it.
fn rows_before(cursor: &Portal, number: u64) -> Option<u64> {
    let (skipped, position) = (number.saturating_sub(1), cursor.count);
    let is_at_start = position == 0 && !cursor.is_done;
    if is_at_start {
        return Some(skipped);
    }
    let position = position.saturating_add(u64::from(cursor.is_done));
    let goes_back = skipped <= cursor.count / 2 || number <= position;
    (!goes_back).then(|| skipped.saturating_sub(position))
}

fn only_forward() -> Failure {
    let report = Report::error("55000", "cursor can only scan forward");
    let hint = "Cursors have no SCROLL here: declare it again to read its rows again.".to_owned();
    Report { hint: Some(hint), ..report }.into()
}
