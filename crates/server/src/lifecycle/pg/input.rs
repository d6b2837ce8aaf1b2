//! Messages of a client, read ahead by a task of their own, so that the end of the connection is known while a statement
//! runs.

use crate::app::App;
use crate::common::pg_counts::PgLimit;
use crate::http::body::{BudgetShare, Sender};
use pg_wire::frontend::{Malformed, Message, is_kind, message};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, sleep, timeout};

/// Longest message of a caller who reads, and of one who may write, in bytes.
const READER_BYTES_MAX: usize = 256 << 10;
const WRITER_BYTES_MAX: usize = 2 << 20;
/// Longer messages take a share of the memory of requests.
const SHARED_BYTES: usize = 64 << 10;
/// How long a message waits for that memory, and how often it tries.
const SHARE_TIME: Duration = Duration::from_secs(5);
const SHARE_STEP: Duration = Duration::from_millis(10);
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

/// Reads messages until the connection ends. Sets `gone` at the end.
pub(super) async fn read_messages<R: AsyncRead + Unpin>(
    mut from: R,
    to: mpsc::Sender<Input>,
    gone: watch::Sender<bool>,
    (app, sender, may_write): (Arc<App>, Sender, bool),
) {
    loop {
        let input = next(&mut from, &app, &sender, may_write).await;
        let is_last = !matches!(input, Input::Message(..));
        if is_last {
            gone.send_replace(true);
        }
        if to.send(input).await.is_err() || is_last {
            return;
        }
    }
}

async fn next<R: AsyncRead + Unpin>(
    from: &mut R,
    app: &App,
    sender: &Sender,
    may_write: bool,
) -> Input {
    let kind = match timeout(app.pg.idle_max, from.read_u8()).await {
        Ok(Ok(kind)) => kind,
        Ok(Err(_)) => return Input::Gone,
        Err(_) => return Input::Limit(PgLimit::Idle),
    };
    let rest = async {
        let length = from.read_u32().await?;
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
