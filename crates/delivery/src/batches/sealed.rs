//! Sealed batches that wait in memory for one who takes them: of a single tick, or of a job that sends its
//! own.

use crate::batches::notes::Notes;
use crate::batches::seal::{Outlet, Sealer};
use crate::common::boot::draw_boot;
use crate::common::error::DeliveryError;
use model::{Batch, DeviceId, Origin};
use sources::Sink;
use std::sync::{Arc, Mutex, PoisonError};

/// The sealed batches.
#[derive(Clone, Debug, Default)]
pub struct Sealed(Arc<Mutex<Vec<Batch>>>);

impl Sealed {
    /// Takes what was sealed since the last call.
    pub fn take(&self) -> Vec<Batch> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Outlet for Sealed {
    fn put(&mut self, batch: Batch) -> Result<(), Box<Batch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
        Ok(())
    }

    fn spare(&mut self) -> Option<Batch> {
        None
    }
}

/// Makes batches of sinks, as an agent does, for a program that reads and sends by itself.
#[derive(Debug)]
pub struct Batches {
    sealer: Sealer,
    sealed: Sealed,
}

impl Batches {
    /// Batches of this origin, numbered from 0, of samples of this device.
    ///
    /// # Errors
    /// The kernel gives no random bits.
    pub fn new(origin: Origin, device: DeviceId) -> Result<Self, DeliveryError> {
        let sealed = Sealed::default();
        let notes = Arc::new(Notes::new(origin.clone(), device));
        let outlet = Box::new(sealed.clone());
        Ok(Self { sealer: Sealer::new(origin, draw_boot()?, notes, outlet, None), sealed })
    }

    /// Empties the sinks into batches, in order; none if they are empty. The sinks are those of the call
    /// before, in the same order.
    pub fn seal<'a>(&mut self, sinks: impl Iterator<Item = &'a mut Sink>) -> Vec<Batch> {
        self.sealer.seal(&mut sinks.collect::<Vec<_>>());
        self.sealed.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Metric, Timestamp, Unit};

    static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");

    #[test]
    fn batches_of_one_start_are_numbered_and_sinks_are_emptied() {
        let device = DeviceId::new("n").unwrap();
        let mut batches = Batches::new(Origin::new("n/run-7").unwrap(), device.clone()).unwrap();
        let mut sinks = [Sink::new(device.clone()), Sink::new(device)];
        assert!(batches.seal(sinks.iter_mut()).is_empty());
        for seq in 0..2_u32 {
            for sink in &mut sinks {
                sink.begin(Timestamp::from_seconds(seq.into()));
                sink.of_device().gauge(&LOAD, &[], 1.0);
            }
            let sealed = batches.seal(sinks.iter_mut());
            let [batch] = &sealed[..] else { panic!("{} batches", sealed.len()) };
            assert_eq!(batch.check(), Ok(()));
            assert_eq!((batch.seq, batch.values.len()), (seq.into(), 2));
            assert!(sinks.iter().all(Sink::is_empty));
        }
    }
}
