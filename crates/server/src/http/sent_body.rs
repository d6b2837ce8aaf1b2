//! A response body that holds something until the client has received it: its caller's slots.

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Size of the pieces that the connection takes. It buffers a few of them, and takes the next one when the client
/// has received some, so that a body is released when nearly all of it is sent.
const PIECE_BYTES: usize = 64 << 10;

/// A body in pieces, with what is released at its end.
struct SentBody<H> {
    body: Body,
    /// The rest of the latest piece of the body.
    rest: Bytes,
    _held: H,
}

/// Wraps a body so that it holds `held` until the client has received it, or has gone away.
pub(crate) fn holding(body: Body, held: impl Unpin + Send + 'static) -> Body {
    Body::new(SentBody { body, rest: Bytes::new(), _held: held })
}

impl<H: Unpin> HttpBody for SentBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::Arc;

    #[test]
    fn a_body_arrives_whole_and_then_releases_what_it_held() {
        let (held, text) = (Arc::new(()), "0123456789".repeat(20_000));
        let mut body = holding(Body::from(text.clone()), Arc::clone(&held));
        assert_eq!(body.size_hint().exact(), Some(200_000));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let first = runtime.block_on(body.frame()).unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), body.size_hint().exact()), (PIECE_BYTES, Some(200_000 - 65_536)));
        assert_eq!(Arc::strong_count(&held), 2, "a part is sent");
        let rest = runtime.block_on(body.collect()).unwrap().to_bytes();
        assert_eq!([&first[..], &rest].concat(), text.as_bytes());
        assert_eq!(Arc::strong_count(&held), 1);
        drop(holding(Body::from(text), Arc::clone(&held)));
        assert_eq!(Arc::strong_count(&held), 1, "the client went away");
    }
}
