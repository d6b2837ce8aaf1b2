//! Messages of a client, read ahead by a task of their own, so that the end of the connection is known while a statement
//! runs.

use crate::app::App;
use crate::common::pg_counts::PgLimit;
use crate::http::body::{BudgetShare, Sender};
use pg_wire::frontend::{Malformed, Message, is_kind, message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, sleep, timeout};

/// Longest message of a caller who reads, and of one who may write, in bytes.
const READER_BYTES_MAX: usize = 256 << 10;
const WRITER_BYTES_MAX: usize = 2 << 20;
/// Kind of the messages with the rows of a COPY.
const COPY_DATA: u8 = b'd';
/// Longer messages take a share of the memory of requests.
const SHARED_BYTES: usize = 64 << 10;
/// How long a message waits for that memory, and how often it tries.
const SHARE_TIME: Duration = Duration::from_secs(5);
pub(super) const SHARE_STEP: Duration = Duration::from_millis(10);
/// How often the end of a connection is looked for while messages wait.
const CLOSED_STEP: Duration = Duration::from_millis(500);
/// Bytes that are read at once: a length alone reserves no memory.
const PIECE_BYTES: usize = 64 << 10;

/// A message, or why there are no more.
#[derive(Debug)]
pub(super) enum Input {
    /// A message, with its memory.
    Message(Message, Option<BudgetShare>),
    /// Bytes that are no message.
    Malformed(String),
    /// The limit that the client reached.
    Limit(PgLimit),
    /// The connection has ended.
    Gone,
}

/// Reads messages until the connection ends. Sets `gone` at the end, and as soon as the client has closed its end of the
/// socket, even if its messages still wait for the session.
pub(super) async fn read_messages<R: AsyncRead + Unpin>(
    (mut from, socket): (R, Option<OwnedFd>),
    to: mpsc::Sender<Input>,
    gone: watch::Sender<bool>,
    (app, sender, may_write): (Arc<App>, Sender, bool),
) {
    let mut copy_left = 0;
    loop {
        let input = next(&mut from, &mut copy_left, (&app, &sender, may_write)).await;
        let is_last = !matches!(input, Input::Message(..));
        if is_last {
            gone.send_replace(true);
        }
        let place = loop {
            match timeout(CLOSED_STEP, to.reserve()).await {
                Ok(Ok(place)) => break place,
                Ok(Err(_)) => return,
                Err(_) if socket.as_ref().is_some_and(is_closed) => drop(gone.send_replace(true)),
                Err(_) => {}
            }
        };
        place.send(input);
        if is_last {
            return;
        }
    }
}

/// Whether the client has closed its end of a socket, with or without bytes that were not read.
fn is_closed(socket: &OwnedFd) -> bool {
    let mut sockets = [PollFd::new(socket, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut sockets, Some(&at_once)).is_ok_and(|count| count > 0)
}

async fn next<R: AsyncRead + Unpin>(
    from: &mut R,
    copy_left: &mut usize,
    (app, sender, may_write): (&App, &Sender, bool),
) -> Input {
    let kind = match *copy_left {
        0 => match timeout(app.pg.idle_max, from.read_u8()).await {
            Ok(Ok(kind)) => kind,
            Ok(Err(_)) => return Input::Gone,
            Err(_) => return Input::Limit(PgLimit::Idle),
        },
        _ => COPY_DATA,
    };
    let rest = async {
        let length = match *copy_left {
            0 => from.read_u32().await?,
            _ => return copied(from, copy_left).await,
        };
        if !is_kind(kind) {
            return Ok(Input::Malformed("the kind of the message is unknown".to_owned()));
        }
        let Some(length) = usize::try_from(length).ok().and_then(|length| length.checked_sub(4))
        else {
            return Ok(Input::Malformed("the length of the message is too short".to_owned()));
        };
        if length > if may_write { WRITER_BYTES_MAX } else { READER_BYTES_MAX } {
            return Ok(Input::Limit(PgLimit::Message));
        }
        if kind == COPY_DATA {
            *copy_left = length;
            return copied(from, copy_left).await;
        }
        let share = if length > SHARED_BYTES {
            match share(app, sender, length).await {
                Some(share) => Some(share),
                None => return Ok(Input::Limit(PgLimit::Memory)),
            }
        } else {
            None
        };
        let body = exactly(from, length).await?;
        Ok::<_, std::io::Error>(match message(kind, &body) {
            Ok(message) => Input::Message(message, share),
            Err(Malformed(what)) => Input::Malformed(what),
        })
    };
    match timeout(app.limits.body_time, rest).await {
        Ok(Ok(input)) => input,
        Ok(Err(_)) => Input::Gone,
        Err(_) => Input::Limit(PgLimit::Slow),
    }
}

/// Reads the next piece of a COPY's message. A long one has several, so that a COPY that waits for memory holds little.
async fn copied<R: AsyncRead + Unpin>(
    from: &mut R,
    copy_left: &mut usize,
) -> std::io::Result<Input> {
    let piece = exactly(from, (*copy_left).min(PIECE_BYTES)).await?;
    *copy_left = copy_left.saturating_sub(piece.len());
    Ok(Input::Message(Message::CopyData(piece), None))
}

/// Reserves the memory of a long message. It waits for earlier messages of the same sender, which are under way.
async fn share(app: &App, sender: &Sender, length: usize) -> Option<BudgetShare> {
    let until = Instant::now() + SHARE_TIME;
    loop {
        match app.bodies.engine.share(sender, length, WRITER_BYTES_MAX) {
            Ok(share) => return Some(share),
            Err(_) if Instant::now() >= until => return None,
            Err(_) => sleep(SHARE_STEP).await,
        }
    }
}

/// Reads this many bytes.
pub(super) async fn exactly<R: AsyncRead + Unpin>(
    from: &mut R,
    length: usize,
) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    while body.len() < length {
        let start = body.len();
        body.resize(length.min(start + PIECE_BYTES), 0);
        if let Some(piece) = body.get_mut(start..) {
            from.read_exact(piece).await?;
        }
    }
    Ok(body)
}
