//! Bodies of requests: read within a time and a size, memory taken as it is needed.

use crate::problem::{Refusal, Why};
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory for the bodies of requests that are being read or worked on, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    free: Arc<Semaphore>,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))) }
    }

    /// Takes so much, if it is free.
    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        Arc::clone(&self.free).try_acquire_many_owned(bytes).ok()
    }
}

/// A body, with its share of the budget, which is given back with it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Vec<u8>,
    _share: Option<OwnedSemaphorePermit>,
}

/// What a body may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    /// Longest body.
    pub(crate) bytes_max: usize,
    /// Longest time from its first byte to its last.
    pub(crate) within: Duration,
    /// Memory for all of them.
    pub(crate) budget: &'a Budget,
}

/// Reads a body.
///
/// A body that says too great a length is refused before a byte of it is read; one that says none, as
/// soon as it is too long. Memory is taken with each piece that arrives, so that a client that
/// announces much and sends nothing holds nothing.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bounds: Bounds<'_>,
) -> Result<Held, Refusal> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
    if announced > bounds.bytes_max {
        return Err(too_large(announced, bounds.bytes_max));
    }
    match tokio::time::timeout(bounds.within, pieces(body, bounds)).await {
        Ok(held) => held,
        Err(_) => {
            let message = format!("the body did not arrive within {:?}", bounds.within);
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "57014", Why::TooSlow, message))
        }
    }
}

async fn pieces(mut body: Body, bounds: Bounds<'_>) -> Result<Held, Refusal> {
    let (mut bytes, mut share): (Vec<u8>, Option<OwnedSemaphorePermit>) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        let cut = |error| Refusal::malformed(format!("the body was cut short: {error}"));
        // Trailers say nothing that is wanted.
        let Ok(piece) = frame.map_err(cut)?.into_data() else { continue };
        let length = bytes.len().saturating_add(piece.len());
        if length > bounds.bytes_max {
            return Err(too_large(length, bounds.bytes_max));
        }
        let Some(more) = bounds.budget.take(piece.len()) else {
            let message = "too many bodies are being worked on; come again in a moment";
            return Err(Refusal::busy(message));
        };
        match &mut share {
            Some(share) => share.merge(more),
            None => share = Some(more),
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Held { bytes, _share: share })
}

fn too_large(bytes: usize, max: usize) -> Refusal {
    Refusal::too_large(format!("the body has {bytes} bytes or more; {max} at most"))
}

/// The media type of a Content-Type header: its part before `;`, in lower case.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next()?.trim().to_ascii_lowercase())
}

/// Refuses a body in another form than as it is: nothing here is compressed by HTTP.
pub(crate) fn plain_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            let message = "bodies are taken as they are: leave Content-Encoding out";
            Err(unsupported(message))
        }
        _ => Ok(()),
    }
}

/// A body of a kind that is not taken.
pub(crate) fn unsupported(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "PGRST107", Why::Malformed, message)
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

    #[test]
    fn sizes_and_the_budget() {
        let budget = Budget::new(1000);
        let within = Duration::from_secs(5);
        let bounds = Bounds { bytes_max: 600, within, budget: &budget };
        run(async {
            let none = HeaderMap::new();
            let first = read(&none, pieces_of(&[300, 300]), bounds).await.unwrap();
            assert_eq!(first.bytes.len(), 600);
            let long = read(&none, pieces_of(&[400, 201]), bounds).await.unwrap_err();
            assert_eq!(long.status, 413);
            let busy = read(&none, pieces_of(&[300, 200]), bounds).await.unwrap_err();
            assert_eq!(busy.status, 429);
            drop(first);
            assert!(read(&none, pieces_of(&[600]), bounds).await.is_ok());
            assert_eq!(budget.free.available_permits(), 1000, "every share came back");
            let says =
                HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from_static("601"))]);
            assert_eq!(read(&says, pieces_of(&[]), bounds).await.unwrap_err().status, 413);
        });
    }

    #[test]
    fn a_body_that_does_not_come_is_not_waited_for() {
        let budget = Budget::new(1000);
        let within = Duration::from_millis(20);
        let bounds = Bounds { bytes_max: 600, within, budget: &budget };
        let body = Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let refusal = run(read(&HeaderMap::new(), body, bounds)).unwrap_err();
        assert_eq!(refusal.status, 408);
    }
}
