//! The two threads of a delivery: the encoder stores sealed batches, and the sender sends them.

use crate::batches::pending_gaps_and_job_events::PendingEvents;
use crate::common::backoff::{Backoff, FIRST};
use crate::common::boot::chance;
use crate::common::clock::Clock;
use crate::common::counters::Counters;
use crate::common::error::DeliveryError;
use crate::common::threads::thread;
use crate::connection::connect::{Connect, Settings};
use crate::disk::folders::{Folders, spool_limits};
use crate::sending::encoder_thread::EncoderThread;
use crate::sending::outbox::Outbox;
use crate::sending::queue::{End, QueueSender, queue};
use crate::sending::sender::{Order, Sender, Wanted};
use model::Boot;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The threads that deliver sealed batches.
#[derive(Debug)]
pub struct Delivery {
    outbox: Arc<Outbox>,
    encoder: JoinHandle<()>,
    queue: End,
    orders: SyncSender<Order>,
    wanted: Receiver<Wanted>,
    connect: Arc<Connect>,
}

impl Delivery {
    /// Starts both threads. The returned inlet accepts sealed batches. `period` is the interval between batches.
    /// `waker` receives a byte when the server requests something.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub fn start(
        settings: Settings<'_>,
        folders: Folders,
        (notes, counters, clock): (&Arc<PendingEvents>, &Arc<Counters>, &Arc<dyn Clock>),
        (boot, period): (&Boot, Duration),
        waker: UnixStream,
    ) -> Result<(Self, QueueSender), DeliveryError> {
        let outbox = Arc::new(Outbox::new(folders, Arc::clone(notes), Arc::clone(counters)));
        let (inlet, batches) = queue();
        let connect = Arc::new(Connect::new(settings));
        let (orders, take_orders) = sync_channel(16);
        let (want, wanted) = sync_channel(4);
        let chance = chance(boot);
        let sender = Sender::new(
            Arc::clone(&outbox),
            Arc::clone(counters),
            Arc::clone(clock),
            (take_orders, want, waker),
            Arc::clone(&connect),
            Backoff::new(FIRST, chance),
            phase(period, chance),
        );
        let encoder = EncoderThread::new(batches, &outbox, notes, counters, clock);
        let encoder = thread("keep", move || encoder.run())?;
        // Not joined: the thread may wait for a response as long as the settings allow.
        drop(thread("send", move || sender.run())?);
        let queue = inlet.end();
        Ok((Self { outbox, encoder, queue, orders, wanted, connect }, inlet))
    }

    /// Sends an order to the sender thread.
    pub fn order(&self, order: Order) {
        if self.orders.try_send(order).is_err() {
            log::error!("the sending thread does not listen");
        }
        self.outbox.ring();
    }

    /// Returns a new request of the server, if there is one.
    pub fn wanted(&self) -> Option<Wanted> {
        self.wanted.try_recv().ok()
    }

    /// Applies new settings. The token and the certificates are read again.
    pub fn set(&self, settings: Settings<'_>) {
        self.connect.set(settings);
        self.order(Order::Renew);
        let limits = spool_limits(settings.spool);
        self.outbox.with_spool(|spool| spool.set_limits(limits));
    }

    /// Ends the delivery after all sealed batches are stored. The server gets a moment to accept them, and the rest
    /// goes to the spool.
    pub fn end(self) {
        self.queue.end();
        if self.encoder.join().is_err() {
            log::error!("the spool thread panicked; batches in memory are lost");
        }
    }
}

/// Delay between sealing and sending. It is a random part of a tenth of the period, at most 500 ms. The agents of a
/// cluster tick at the same instants, and this spreads their requests.
fn phase(period: Duration, chance: u64) -> Duration {
    let longest = u64::try_from(period.as_micros() / 10).unwrap_or(u64::MAX).min(500_000);
    Duration::from_micros(chance % (longest + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_send_at_instants_of_their_own() {
        let of = |seconds, chance| phase(Duration::from_secs(seconds), chance);
        assert!((0..1000).all(|n| of(1, n * 7919) <= Duration::from_millis(100)));
        assert!((0..1000).all(|n| of(60, n * 104_729) <= Duration::from_millis(500)));
        assert!((0..1000).any(|n| of(5, n * 7919) > Duration::from_millis(450)));
        assert_eq!(phase(Duration::from_micros(5), 3), Duration::ZERO);
        assert_ne!(chance(&Boot([1; 16])), chance(&Boot([2; 16])));
    }
}
