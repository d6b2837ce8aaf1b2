//! Sealed batches in memory, for a caller that sends them on its own, such as `--once`.

use crate::batches::seal::BatchOutput;
use model::Batch;
use std::sync::{Arc, Mutex, PoisonError};

/// The sealed batches.
#[derive(Clone, Debug, Default)]
pub struct Sealed(Arc<Mutex<Vec<Batch>>>);

impl Sealed {
    /// Takes the batches that were sealed since the last call.
    pub fn take(&self) -> Vec<Batch> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BatchOutput for Sealed {
    fn put(&mut self, batch: Batch) -> Result<(), Box<Batch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
        Ok(())
    }

    fn spare(&mut self) -> Option<Batch> {
        None
    }
}
