//! Reads request bodies with limits of time, size and memory.

use crate::auth::caller::{Caller, Rights};
use crate::common::counts::{Counters, Limit};
use crate::common::http_error::{HttpError, Why};
use crate::common::limits::Limits;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Each sender may use 1/8 of a budget, unless a single body may be longer.
const SENDERS: usize = 8;
/// 1/4 of a budget is reserved for agents, prologues and administrators.
const RESERVED: usize = 4;

/// A memory budget, in bytes, for request bodies that are being received or processed. Each sender may use
/// only a part of it, so that a slow sender does not block the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Arc<State>);

#[derive(Debug, Default)]
struct State {
    bytes_max: usize,
    used: Mutex<Used>,
    turns: Mutex<HashMap<Arc<str>, Weak<AsyncMutex<()>>>>,
    rejected: Counters<{ Limit::ALL.len() }>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    by_sender: HashMap<Arc<str>, usize>,
}

/// Separate budgets, so that filling one does not affect the others.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// Batches of agents and administrators.
    pub(crate) batches: Budget,
    /// Batches of users.
    pub(crate) user_batches: Budget,
    /// Queries, and all other requests.
    pub(crate) engine: Budget,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            batches: Budget::new(limits.batch_bodies_bytes_max),
            user_batches: Budget::new(limits.user_batch_bodies_bytes_max),
            engine: Budget::new(limits.question_bodies_bytes_max),
        }
    }

    /// Returns each budget with its name in `/metrics`.
    pub(crate) const fn all(&self) -> [(&'static str, &Budget); 3] {
        [
            ("batches", &self.batches),
            ("user_batches", &self.user_batches),
            ("questions", &self.engine),
        ]
    }
}

/// The part of a budget that a sender may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// One sender's part, without the reserve.
    User,
    /// One sender's part, including the reserve.
    Agent,
    /// The whole budget.
    Admin,
}

/// The sender of a body.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    name: Arc<str>,
    rank: Rank,
}

impl Sender {
    pub(crate) fn of(caller: &Caller) -> Self {
        let rank = match caller.rights {
            Rights::Admin(_) => Rank::Admin,
            Rights::Agent(_)
            | Rights::JobReporter(_)
            | Rights::Poller(_)
            | Rights::Colmet(_)
            | Rights::Push(_) => Rank::Agent,
            _ => Rank::User,
        };
        Self { name: caller.actor.user_key(), rank }
    }
}

/// The turn of one body of a sender. It ends when dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// A part of a budget, released when dropped.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Budget,
    sender: Sender,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(State { bytes_max, ..State::default() }))
    }

    /// Returns the number of bodies rejected because of this limit.
    pub(crate) fn rejected(&self, limit: Limit) -> u64 {
        self.0.rejected.get(limit)
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.used.lock()
    }

    /// Reserves bytes for this sender until the share is dropped; `body_max` is the maximum size of one body.
    pub(crate) fn share(
        &self,
        sender: &Sender,
        bytes: usize,
        body_max: usize,
    ) -> Result<BudgetShare, Limit> {
        self.take(sender, bytes, body_max)?;
        Ok(BudgetShare { budget: self.clone(), sender: sender.clone(), bytes })
    }

    /// Waits until no other body of this sender has its turn: see [`Self::share_beyond`].
    pub(crate) async fn turn(&self, sender: &Sender) -> Turn {
        let turn = {
            let mut turns = self.0.turns.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(&sender.name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::default();
                turns.insert(Arc::clone(&sender.name), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }

    /// Like [`Self::share`], for the body that has the sender's turn: it may use `body_max` beyond the sender's part. It
    /// thus ends, although other bodies of the sender hold memory and wait for more.
    pub(crate) fn share_beyond(
        &self,
        sender: &Sender,
        bytes: usize,
        body_max: usize,
    ) -> Result<BudgetShare, Limit> {
        let part = body_max.max(self.0.bytes_max / SENDERS);
        self.share(sender, bytes, part.saturating_add(body_max))
    }

    /// Reserves bytes for this sender; `body_max` is the maximum size of one body.
    fn take(&self, sender: &Sender, bytes: usize, body_max: usize) -> Result<(), Limit> {
        let max = self.0.bytes_max;
        let reserve = if sender.rank < Rank::Agent { max / RESERVED } else { 0 };
        let mut used = self.used();
        let all = used.bytes.saturating_add(bytes);
        let before = used.by_sender.get(&sender.name).copied().unwrap_or(0);
        let own = before.saturating_add(bytes);
        let limit = if sender.rank < Rank::Admin && own > body_max.max(max / SENDERS) {
            Limit::Sender
        } else if all > max.saturating_sub(reserve) {
            Limit::All
        } else {
            used.bytes = all;
            used.by_sender.insert(Arc::clone(&sender.name), own);
            return Ok(());
        };
        drop(used);
        self.0.rejected.add(limit, 1);
        Err(limit)
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        used.bytes = used.bytes.saturating_sub(self.bytes);
        if let Some(own) = used.by_sender.get_mut(&self.sender.name) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                used.by_sender.remove(&self.sender.name);
            }
        }
    }
}

/// A body, with its part of the budget, which is released with it.
#[derive(Debug)]
pub(crate) struct HeldBody {
    pub(crate) bytes: Vec<u8>,
    _share: BudgetShare,
}

/// Limits of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    /// Maximum size, in bytes.
    pub(crate) bytes_max: usize,
    /// Time limit from its first byte to its last.
    pub(crate) within: Duration,
    /// Memory budget shared by all bodies of this kind.
    pub(crate) budget: &'a Budget,
}

/// Reads a body.
///
/// A body with too large a Content-Length is rejected before its first byte is read. A body without one is
/// rejected as soon as it is too long. Each received piece reserves its memory, so a client that announces
/// a large body and sends nothing reserves nothing.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bounds: Bounds<'_>,
    sender: Sender,
) -> Result<HeldBody, HttpError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
    if announced > bounds.bytes_max {
        return Err(too_large(announced, bounds.bytes_max));
    }
    match tokio::time::timeout(bounds.within, pieces(body, bounds, sender)).await {
        Ok(held) => held,
        Err(_) => {
            let message = format!("the body did not arrive within {:?}", bounds.within);
            Err(HttpError::new(StatusCode::REQUEST_TIMEOUT, "57014", Why::TooSlow, message))
        }
    }
}

async fn pieces(mut body: Body, bounds: Bounds<'_>, sender: Sender) -> Result<HeldBody, HttpError> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut share = BudgetShare { budget: bounds.budget.clone(), sender, bytes: 0 };
    while let Some(frame) = body.frame().await {
        let cut = |error| HttpError::malformed(format!("the body was cut short: {error}"));
        // Trailers are ignored.
        let Ok(piece) = frame.map_err(cut)?.into_data() else { continue };
        let length = bytes.len().saturating_add(piece.len());
        if length > bounds.bytes_max {
            return Err(too_large(length, bounds.bytes_max));
        }
        bounds.budget.take(&share.sender, piece.len(), bounds.bytes_max).map_err(|limit| {
            HttpError::busy(match limit {
                Limit::Sender => {
                    "too many requests of this sender are under way; send it again in a moment"
                }
                Limit::All => "too many requests are under way; send it again in a moment",
            })
        })?;
        share.bytes = length;
        bytes.extend_from_slice(&piece);
    }
    Ok(HeldBody { bytes, _share: share })
}

fn too_large(bytes: usize, max: usize) -> HttpError {
    HttpError::too_large(format!("the body has {bytes} bytes or more; {max} at most"))
}

/// Returns the media type of a Content-Type header: its part before `;`, in lower case.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next()?.trim().to_ascii_lowercase())
}

/// Rejects encoded bodies: the server supports no HTTP compression of requests.
pub(crate) fn plain_encoding(headers: &HeaderMap) -> Result<(), HttpError> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            let message = "the server does not accept encoded bodies; remove the header \
                           Content-Encoding";
            Err(unsupported(message))
        }
        _ => Ok(()),
    }
}

/// A body of an unsupported type.
pub(crate) fn unsupported(message: impl Into<String>) -> HttpError {
    HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "PGRST107", Why::Malformed, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use futures::stream;

    fn run<F: Future>(work: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    fn pieces_of(sizes: &[usize]) -> Body {
        let pieces: Vec<_> =
            sizes.iter().map(|size| Ok::<_, std::io::Error>(vec![b'x'; *size])).collect();
        Body::from_stream(stream::iter(pieces))
    }

    fn sender(name: &str, rank: Rank) -> Sender {
        Sender { name: name.into(), rank }
    }

    fn user(uid: u32) -> Sender {
        sender(&format!("uid {uid}"), Rank::User)
    }

    #[test]
    fn sizes_and_the_budget() {
        let budget = Budget::new(2000);
        let within = Duration::from_secs(5);
        let bounds = Bounds { bytes_max: 600, within, budget: &budget };
        run(async {
            let none = HeaderMap::new();
            let first = read(&none, pieces_of(&[300, 300]), bounds, user(1)).await.unwrap();
            assert_eq!(first.bytes.len(), 600);
            let long = read(&none, pieces_of(&[400, 201]), bounds, user(2)).await.unwrap_err();
            assert_eq!(long.status, 413);
            let busy = read(&none, pieces_of(&[300, 200]), bounds, user(1)).await.unwrap_err();
            assert_eq!(busy.status, 429);
            drop(first);
            assert!(read(&none, pieces_of(&[600]), bounds, user(1)).await.is_ok());
            assert_eq!(budget.used().bytes, 0, "every share came back");
            let declared =
                HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from_static("601"))]);
            assert_eq!(
                read(&declared, pieces_of(&[]), bounds, user(1)).await.unwrap_err().status,
                413
            );
        });
    }

    #[test]
    fn a_body_that_does_not_come_is_not_waited_for() {
        let budget = Budget::new(1000);
        let within = Duration::from_millis(20);
        let bounds = Bounds { bytes_max: 600, within, budget: &budget };
        let body = Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let http_error = run(read(&HeaderMap::new(), body, bounds, user(1))).unwrap_err();
        assert_eq!(http_error.status, 408);
    }

    #[test]
    fn one_sender_leaves_capacity_for_the_others() {
        let budget = Budget::new(1600);
        let take = |sender: &Sender| budget.take(sender, 100, 100);
        let (one, root) = (user(1), sender("root", Rank::Admin));
        let agents = ["n1", "n2"].map(|name| sender(name, Rank::Agent));
        assert_eq!([take(&one), take(&one), take(&one)], [Ok(()), Ok(()), Err(Limit::Sender)]);
        // Five more users use up the unreserved part.
        let others: Vec<_> = (2..=6).flat_map(|uid| [take(&user(uid)), take(&user(uid))]).collect();
        assert_eq!(others, [Ok(()); 10]);
        assert_eq!(take(&user(7)), Err(Limit::All));
        let [first, second] = &agents;
        assert_eq!([take(first), take(first), take(first)], [Ok(()), Ok(()), Err(Limit::Sender)]);
        // The body whose turn it is has a maximum size beyond its sender's part.
        let beyond = |bytes| budget.share_beyond(first, bytes, 100).map(drop);
        assert_eq!([beyond(101), beyond(100)], [Err(Limit::Sender), Ok(())]);
        assert_eq!([take(second), take(&root), take(&root)], [Ok(()), Ok(()), Err(Limit::All)]);
        assert_eq!((budget.rejected(Limit::Sender), budget.rejected(Limit::All)), (3, 2));
        // A body may reach the maximum size, even if that exceeds one sender's part.
        assert_eq!(Budget::new(1600).take(&one, 900, 900), Ok(()));
    }
}
