//! Who may see which job, asked once for each job of an answer.

use crate::QueryError;
use jobs::{Reader, Registry};
use model::JobKey;
use std::collections::HashMap;
use std::sync::Arc;

/// What a reader may see. What is counted for no job, everybody may.
#[derive(Debug)]
pub(crate) struct Sight {
    registry: Arc<Registry>,
    reader: Reader,
    known: HashMap<JobKey, bool>,
}

impl Sight {
    pub(crate) fn new(registry: &Arc<Registry>, reader: Reader) -> Self {
        Self { registry: Arc::clone(registry), reader, known: HashMap::new() }
    }

    /// Whether the reader may see what was counted for this job.
    pub(crate) fn sees(&mut self, job: Option<&JobKey>) -> Result<bool, QueryError> {
        let Some(job) = job else { return Ok(true) };
        if self.reader == Reader::Everything {
            return Ok(true);
        }
        if let Some(seen) = self.known.get(job) {
            return Ok(*seen);
        }
        let seen = self.reader.may_see(self.registry.owner(job)?);
        self.known.insert(job.clone(), seen);
        Ok(seen)
    }
}
