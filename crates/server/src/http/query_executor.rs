//! Runs queries on blocking threads, with limits of concurrency and time. A query is cancelled when its
//! client disconnects.

use crate::common::http_error::{HttpError, Why};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use query::{Cancel, ConcurrencyLimit, NoPermit, Permit, QueryError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

/// Capacity of the queue of response pieces for a slow client; each piece has 64 KiB.
const PIECES_WAITING: usize = 4;

/// How long the error message of an aborted response may take to reach the client.
const REASON_TIME: Duration = Duration::from_millis(100);

/// Executor of queries with fair scheduling.
#[derive(Debug)]
pub(crate) struct QueryExecutor {
    concurrency: ConcurrencyLimit,
    time_max: Duration,
}

/// Cancels a query when its client disconnects.
struct StopOnDrop(Cancel);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

type Piece = Result<Vec<u8>, QueryError>;

impl QueryExecutor {
    /// Creates an executor: concurrent queries, queued queries, and the time limit of each.
    pub(crate) fn new(running_max: usize, waiting_max: usize, time_max: Duration) -> Self {
        Self { concurrency: ConcurrencyLimit::new(running_max, waiting_max), time_max }
    }

    /// Waits for a permit of this user.
    async fn permit(&self, user_key: &Arc<str>) -> Result<Permit, HttpError> {
        self.concurrency.acquire(user_key, self.time_max).await.map_err(|why| {
            HttpError::busy(match why {
                NoPermit::QueueFull => "too many queries are waiting; retry in a moment",
                NoPermit::Timeout => "the query waited too long for its turn; retry in a moment",
            })
        })
    }

    /// Runs a query and returns its whole result.
    pub(crate) async fn answer<T: Send + 'static>(
        &self,
        user_key: &Arc<str>,
        cancel: Cancel,
        query: impl FnOnce() -> Result<T, QueryError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let permit = self.permit(user_key).await?;
        let _stop = StopOnDrop(cancel);
        let thread = tokio::task::spawn_blocking(move || {
            let answer = query();
            drop(permit);
            answer
        });
        match timeout(self.time_max, thread).await {
            Ok(Ok(answer)) => answer.map_err(HttpError::from),
            Ok(Err(panicked)) => Err(HttpError::fault(&panicked)),
            Err(_) => Err(self.too_slow()),
        }
    }

    /// Runs a query and streams its result. An error before the first piece becomes an error response. A
    /// later error, the end of the time limit included, breaks the connection.
    pub(crate) async fn stream<I>(
        &self,
        user_key: &Arc<str>,
        content_type: &'static str,
        cancel: Cancel,
        query: impl FnOnce() -> Result<I, QueryError> + Send + 'static,
    ) -> Result<Response, HttpError>
    where
        I: Iterator<Item = Piece>,
    {
        let permit = self.permit(user_key).await?;
        let stop = StopOnDrop(cancel.clone());
        let deadline = Instant::now() + self.time_max;
        let (pieces, mut answer) = mpsc::channel(PIECES_WAITING);
        let runtime = tokio::runtime::Handle::current();
        let work = move || {
            let send = |piece: Option<Piece>| {
                let sent = timeout_at(deadline, pieces.send(piece));
                matches!(runtime.block_on(sent), Ok(Ok(())))
            };
            match query() {
                Ok(answer) => send_all(answer, &cancel, send),
                Err(error) => {
                    send(Some(Err(error)));
                }
            }
            drop(permit);
        };
        let thread = tokio::task::spawn_blocking(work);
        let first = match timeout_at(deadline, answer.recv()).await {
            Ok(Some(Some(piece))) => piece?,
            Ok(Some(None)) => {
                return Ok(streamed(
                    content_type,
                    futures::stream::empty::<Result<Bytes, QueryError>>(),
                ));
            }
            Ok(None) => match thread.await {
                Ok(()) => return Err(self.too_slow()),
                Err(panicked) => return Err(HttpError::fault(&panicked)),
            },
            Err(_) => return Err(self.too_slow()),
        };
        let rest = futures::stream::unfold((answer, stop), move |(mut answer, stop)| async move {
            let piece = match timeout_at(deadline, answer.recv()).await {
                Ok(Some(piece)) => piece?.map(Bytes::from),
                // The thread ended before the result: at the time limit, or by a panic.
                Ok(None) | Err(_) => Err(QueryError::Cancelled),
            };
            Some((piece, (answer, stop)))
        });
        let first = futures::stream::once(async move { Ok(Bytes::from(first)) });
        Ok(streamed(content_type, first.chain(rest)))
    }

    fn too_slow(&self) -> HttpError {
        let message = format!(
            "the query took longer than {:?}; choose a shorter time range, fewer devices or fewer \
             metrics",
            self.time_max
        );
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "57014", Why::TooSlow, message)
    }
}

/// Builds a response of these pieces. An error ends it with a line `error: REASON`, and then breaks the connection, so
/// that a truncated response never looks complete.
pub(crate) fn streamed<E>(
    content_type: &'static str,
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Response
where
    E: std::error::Error + Send + Sync + 'static,
{
    let pieces = Box::pin(pieces);
    let pieces = futures::stream::unfold((pieces, None), |(mut pieces, error)| async move {
        if let Some(error) = error {
            // The client receives the reason before the connection is closed.
            tokio::time::sleep(REASON_TIME).await;
            return Some((Err(error), (pieces, None)));
        }
        match pieces.next().await? {
            Ok(piece) => Some((Ok(piece), (pieces, None))),
            Err(error) => {
                log::warn!("an answer was broken off: {error}");
                let reason = format!("\nerror: {error}\n");
                Some((Ok(Bytes::from(reason)), (pieces, Some(error))))
            }
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Sends pieces, then `None`, until the client disconnects.
fn send_all(
    pieces: impl Iterator<Item = Piece>,
    cancel: &Cancel,
    send: impl Fn(Option<Piece>) -> bool,
) {
    for piece in pieces {
        let failed = piece.is_err();
        if !send(Some(piece)) {
            cancel.cancel();
            return;
        }
        if failed {
            return;
        }
    }
    send(None);
}

impl From<QueryError> for HttpError {
    fn from(error: QueryError) -> Self {
        if error.is_internal() {
            return Self::fault(&error);
        }
        if let QueryError::Unavailable(why) = &error {
            log::warn!("a query failed: the store is unavailable: {why}");
        }
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let why = match error {
            QueryError::Denied(_) => Why::Rights,
            QueryError::UnknownJob(_) | QueryError::Parameter { .. } => Why::Unknown,
            QueryError::TooManyRows(_) | QueryError::TooMuch(_) => Why::TooLarge,
            QueryError::Cancelled => Why::TooSlow,
            QueryError::Unavailable(_) => Why::Busy,
            _ => Why::Malformed,
        };
        let problem = error.problem();
        let mut http_error = Self::new(status, error.code(), why, problem.message);
        (http_error.details, http_error.hint) = (problem.details, problem.hint);
        http_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn run<F: Future>(work: F) -> F::Output {
        tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(work)
    }

    fn work(time_max: Duration) -> QueryExecutor {
        QueryExecutor::new(1, 1, time_max)
    }

    fn user_key() -> Arc<str> {
        "uid 1".into()
    }

    fn pieces(count: usize) -> impl Iterator<Item = Piece> {
        (0..count).map(|_| Ok(vec![b'x'; 1000]))
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn an_answer_in_pieces() {
        run(async {
            let work = work(LONG);
            let answer =
                work.stream(&user_key(), "text/csv", Cancel::default(), || Ok(pieces(100))).await;
            let body = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), 100_000);
            let empty =
                work.stream(&user_key(), "text/csv", Cancel::default(), || Ok(pieces(0))).await;
            assert!(empty.unwrap().into_body().collect().await.unwrap().to_bytes().is_empty());
        });
    }

    #[test]
    fn an_error_before_the_first_piece_is_reported_and_a_later_one_breaks_the_answer() {
        run(async {
            let work = work(LONG);
            let wrong = || Err::<std::iter::Empty<Piece>, _>(QueryError::NoDevice);
            let http_error =
                work.stream(&user_key(), "text/csv", Cancel::default(), wrong).await.unwrap_err();
            assert_eq!((http_error.status.as_u16(), http_error.code), (400, "P0001"));
            let late = || Ok(pieces(3).chain([Err(QueryError::TooManyRows(3))]));
            let answer =
                work.stream(&user_key(), "text/csv", Cancel::default(), late).await.unwrap();
            assert!(answer.into_body().collect().await.is_err());
        });
    }

    /// What a client receives of a response, and whether it is complete.
    async fn received(answer: Response) -> (String, bool) {
        let mut pieces = answer.into_body().into_data_stream();
        let mut text = Vec::new();
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) => text.extend(piece),
                Err(_) => return (String::from_utf8(text).unwrap(), false),
            }
        }
        (String::from_utf8(text).unwrap(), true)
    }

    #[test]
    fn an_answer_that_is_broken_off_ends_with_its_reason_and_is_not_complete() {
        run(async {
            let work = work(LONG);
            let late = || Ok(pieces(3).chain([Err(QueryError::TooManyRows(3))]));
            let answer =
                work.stream(&user_key(), "text/csv", Cancel::default(), late).await.unwrap();
            let (text, complete) = received(answer).await;
            assert!(!complete && text.ends_with('\n') && text.contains("\nerror: "), "{text}");
            let panics = || Ok(pieces(3).chain(std::iter::from_fn(|| panic!("on purpose"))));
            let answer = work.stream(&user_key(), "text/csv", Cancel::default(), panics).await;
            let (text, complete) = received(answer.unwrap()).await;
            assert!(!complete && text.contains("\nerror: "), "{text}");
        });
    }

    #[test]
    fn a_client_that_reads_too_slowly_notices_the_end_of_its_time() {
        run(async {
            let work = work(Duration::from_millis(50));
            let many = || Ok(pieces(100));
            let answer =
                work.stream(&user_key(), "text/csv", Cancel::default(), many).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let (text, complete) = received(answer).await;
            assert!(!complete && text.len() < 100_000 && text.contains("\nerror: "), "{text}");
        });
    }

    #[test]
    fn a_client_that_goes_away_ends_the_question_and_frees_its_permit() {
        run(async {
            let work = work(LONG);
            let ended = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&ended);
            struct SetOnDrop(Arc<AtomicBool>);
            impl Drop for SetOnDrop {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::SeqCst);
                }
            }
            let set_on_drop = SetOnDrop(flag);
            let endless = move || {
                let set_on_drop = set_on_drop;
                Ok(std::iter::from_fn(move || {
                    Some(Ok(vec![b'x'; usize::from(set_on_drop.0.load(Ordering::SeqCst)) + 9]))
                }))
            };
            let answer =
                work.stream(&user_key(), "text/csv", Cancel::default(), endless).await.unwrap();
            drop(answer);
            // The only permit is free again once the endless query has ended.
            let next = work.answer(&user_key(), Cancel::default(), || Ok(7)).await;
            assert_eq!(next.unwrap(), 7);
            assert!(ended.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_question_without_end_is_stopped() {
        run(async {
            let work = work(Duration::from_millis(50));
            let cancel = Cancel::default();
            let slow = || {
                std::thread::sleep(Duration::from_millis(500));
                Ok(())
            };
            let http_error = work.answer(&user_key(), cancel, slow).await.unwrap_err();
            assert_eq!((http_error.status.as_u16(), http_error.code), (413, "57014"));
        });
    }

    #[test]
    fn only_so_many_wait() {
        run(async {
            let work = Arc::new(work(LONG));
            let (go, stop) = std::sync::mpsc::sync_channel::<()>(0);
            let first = {
                let work = Arc::clone(&work);
                tokio::spawn(async move {
                    work.answer(&user_key(), Cancel::default(), move || Ok(stop.recv().is_ok()))
                        .await
                })
            };
            while work.concurrency.running() == 0 {
                tokio::task::yield_now().await;
            }
            let second = {
                let work = Arc::clone(&work);
                tokio::spawn(
                    async move { work.answer(&user_key(), Cancel::default(), || Ok(2)).await },
                )
            };
            while work.concurrency.waiting() == 0 {
                tokio::task::yield_now().await;
            }
            let third = work.answer(&user_key(), Cancel::default(), || Ok(3)).await.unwrap_err();
            assert_eq!(third.status, 429);
            go.send(()).unwrap();
            assert!(first.await.unwrap().unwrap());
            assert_eq!(second.await.unwrap().unwrap(), 2);
            assert_eq!(work.concurrency.waiting(), 0);
        });
    }
}
