//! What a server acknowledged, in a file beside the database (decision 0053). A database that is restored from a backup
//! lacks the batches since the backup: with this file they become gaps.

use crate::connection::DatabaseError;
use crate::records;
use model::{Gap, Timestamp};
use senders::{Bookkeeping, Gaps, NewGap, OriginNumber, OriginState};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio_postgres::Client;

/// The file, and the number of the database that it belongs to.
pub(crate) type Record = (PathBuf, String);

#[derive(Serialize)]
struct Written<'a> {
    database: &'a str,
    origins: Vec<&'a OriginState>,
}

#[derive(Deserialize)]
struct Recorded {
    database: String,
    origins: Vec<OriginState>,
}

/// The senders that a file records for a database; none if it is the file of another database.
fn read(path: &Path, database: &str) -> Vec<OriginState> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            log::warn!("cannot read {}: {error}", path.display());
            return Vec::new();
        }
    };
    match serde_json::from_slice::<Recorded>(&bytes) {
        Ok(recorded) if recorded.database == database => recorded.origins,
        Ok(_) => Vec::new(),
        Err(error) => {
            log::warn!("{}: {error}; it is replaced within seconds", path.display());
            Vec::new()
        }
    }
}

/// Replaces the file as a whole: a crash leaves the old or the new one.
pub(crate) fn write<'a>(
    path: &Path,
    database: &str,
    origins: impl Iterator<Item = &'a OriginState>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(&Written { database, origins: origins.collect() })?;
    let new = path.with_extension("new");
    let mut file =
        File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    std::fs::rename(new, path)
}

/// Acknowledged batches and gaps that a restored database lacks. They are in memory until the next checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Lacking {
    origins: Vec<OriginNumber>,
    gaps: Vec<Gap>,
}

impl Lacking {
    /// Compares the records of a database with what an earlier process acknowledged.
    pub(crate) fn of_backup(
        books: &mut Bookkeeping,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Self {
        let known = record.map(|(path, database)| read(path, database));
        let origins = books.origins.compare(&known.unwrap_or_default(), now);
        warn(&origins);
        Self { origins, gaps: Vec::new() }
    }

    /// Replaces the records by those of the database, and adds what this process acknowledged and the database lacks.
    pub(crate) fn replace(
        &mut self,
        books: &mut Bookkeeping,
        (origins, gaps): (Vec<OriginState>, Gaps),
        now: Timestamp,
    ) {
        let lacking = books.origins.restore(origins, now);
        let before = std::mem::replace(&mut books.gaps, gaps);
        if lacking.is_empty() {
            return;
        }
        warn(&lacking);
        let stored: HashSet<&Gap> = books.gaps.all().collect();
        let lost: Vec<Gap> = before.all().filter(|gap| !stored.contains(gap)).cloned().collect();
        lost.iter().for_each(|gap| books.gaps.add(gap.clone()));
        *self = Self { origins: lacking, gaps: lost };
    }

    /// The states of its senders.
    pub(crate) fn states(&self, books: &Bookkeeping) -> Vec<OriginState> {
        self.origins.iter().filter_map(|number| books.origins.get(*number).cloned()).collect()
    }

    /// Writes all of it in a transaction. Returns the number of rows of gaps.
    pub(crate) async fn put(
        &self,
        client: &Client,
        states: &[OriginState],
        next_gap: i64,
    ) -> Result<usize, DatabaseError> {
        records::put_origins(client, states.iter()).await?;
        let gap = |gap: &Gap| NewGap { gap: gap.clone(), late: false };
        let gaps: Vec<NewGap> = self.gaps.iter().map(gap).collect();
        records::add_gaps(client, &gaps, next_gap).await?;
        Ok(gaps.len())
    }
}

fn warn(origins: &[OriginNumber]) {
    if !origins.is_empty() {
        let count = origins.len();
        log::warn!(
            "the database was restored from a backup: it lacks acknowledged batches of {count} senders, which are gaps now"
        );
    }
}
