//! Sends messages in a thread: a caller that measures never waits for the receiver.

use crate::error::PeerError;
use crate::push::Push;
use crate::stream::now;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a connection and its handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Interval in which the thread looks at the connection and at the end.
const LOOK: Duration = Duration::from_millis(250);
/// Pauses between connections: they double, with a random part.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A PUSH socket with a queue and a thread. It connects again after each loss of the connection.
#[derive(Debug)]
pub struct PushQueue {
    shared: Arc<Shared>,
}

/// What happened to messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Wholly written.
    pub sent: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Not sent yet.
    pub waiting: usize,
    /// Why there is no connection.
    pub failure: Option<PeerError>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    messages_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    bytes: usize,
    sent: u64,
    dropped: u64,
    /// A message that is being written is not in the queue.
    is_writing: bool,
    failure: Option<PeerError>,
    /// The queue takes no more messages; what is not sent at this instant is not sent.
    end: Option<Instant>,
    is_over: bool,
}

impl PushQueue {
    /// Starts to connect to `HOST:PORT`. The queue holds at most this many messages, and bytes of them.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(address: &str, messages_max: usize, bytes_max: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            address: address.to_owned(),
            messages_max,
            bytes_max,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("push".into()).spawn(move || own.run())?;
        Ok(Self { shared })
    }

    /// Adds a message. If the queue is full, the oldest ones are dropped. Never waits.
    pub fn put(&self, message: Vec<u8>) {
        let mut state = self.shared.state.lock();
        state.bytes += message.len();
        state.queue.push_back(message);
        self.shared.drop_oldest(&mut state);
        self.shared.changed.notify_all();
    }

    /// What happened so far.
    pub fn counts(&self) -> QueueCounts {
        let state = self.shared.state.lock();
        let State { queue, sent, dropped, is_writing, failure, .. } = &*state;
        QueueCounts {
            sent: *sent,
            dropped: *dropped,
            waiting: queue.len() + usize::from(*is_writing),
            failure: failure.clone(),
        }
    }

    /// Ends, and waits at most this long until everything is sent.
    pub fn end(&self, linger: Duration) -> QueueCounts {
        let end = now() + linger;
        let mut state = self.shared.state.lock();
        state.end = Some(end);
        self.shared.changed.notify_all();
        while !state.is_over && !self.shared.changed.wait_until(&mut state, end).timed_out() {}
        drop(state);
        self.counts()
    }
}

impl Drop for PushQueue {
    fn drop(&mut self) {
        self.shared.state.lock().end.get_or_insert_with(now);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        let mut connection = None;
        let mut pause = FIRST_PAUSE;
        while !self.is_over() {
            let result = match &mut connection {
                None => Push::connect(&self.address, CONNECT).map(|push| {
                    connection = Some(push);
                    pause = FIRST_PAUSE;
                    self.state.lock().failure = None;
                }),
                Some(push) => self.send_next(push),
            };
            if let Err(why) = result {
                connection = None;
                self.state.lock().failure = Some(why);
                self.wait(with_random_part(pause));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Whether the thread ends now.
    fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.end.is_some_and(|end| state.queue.is_empty() || now() >= end)
    }

    /// Waits, or until the end.
    fn wait(&self, time: Duration) {
        let until = now() + time;
        let mut state = self.state.lock();
        loop {
            let until = state.end.map_or(until, |end| end.min(until));
            if now() >= until {
                return;
            }
            self.changed.wait_until(&mut state, until);
        }
    }

    /// Sends the oldest message, or looks at the connection while there is none.
    fn send_next(&self, push: &mut Push) -> Result<(), PeerError> {
        // A receiver that has ended is found before a message is given to the connection.
        push.flush(Duration::ZERO)?;
        let Some(message) = self.take() else { return Ok(()) };
        push.put(&message);
        let result = loop {
            match push.flush(LOOK) {
                Ok(false) if !self.is_past_end() => {}
                other => break other,
            }
        };
        let mut state = self.state.lock();
        state.is_writing = false;
        if result == Ok(true) {
            state.sent += 1;
            return Ok(());
        }
        state.bytes += message.len();
        state.queue.push_front(message);
        self.drop_oldest(&mut state);
        drop(state);
        result.map(drop)
    }

    fn is_past_end(&self) -> bool {
        self.state.lock().end.is_some_and(|end| now() >= end)
    }

    /// Takes the oldest message, and waits a little for one.
    fn take(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        if state.queue.is_empty() && state.end.is_none() {
            self.changed.wait_for(&mut state, LOOK);
        }
        let message = state.queue.pop_front()?;
        state.bytes -= message.len();
        state.is_writing = true;
        Some(message)
    }

    fn drop_oldest(&self, state: &mut State) {
        while state.queue.len() > self.messages_max || state.bytes > self.bytes_max {
            let Some(oldest) = state.queue.pop_front() else { return };
            state.bytes -= oldest.len();
            state.dropped += 1;
        }
    }
}

/// The pause, and up to half of it: nodes do not connect at the same instant.
fn with_random_part(pause: Duration) -> Duration {
    let thousandths = RandomState::new().hash_one(0) % 500;
    pause + pause * u32::try_from(thousandths).unwrap_or(0) / 1000
}
