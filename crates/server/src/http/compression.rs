//! Compresses responses with gzip (RFC 1952) or Zstandard (RFC 8878) when the client accepts one of them.

use axum::body::{Body, BodyDataStream, HttpBody};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::{Buf, Bytes};
use flate2::write::GzEncoder;
use futures::{StreamExt, stream};
use query::ConcurrencyLimit;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// Shorter bodies are sent as they are: they fit into one packet.
const BODY_MIN_BYTES: u64 = 1024;

/// Bytes that one step compresses: 1 to 3 ms of work.
const STEP_BYTES: usize = 256 << 10;

/// Base-2 logarithm of the window of Zstandard: 128 KiB, so that a slow client holds less than 1 MiB.
const ZSTD_WINDOW_LOG: u32 = 17;

/// The fastest level of both: answers are sent once, over a local network.
const LEVEL: u32 = 1;

/// Threads that compress at the same time. Each step needs a permit: one user occupies half of them at most.
const THREADS: usize = 2;

/// Most steps that wait for a permit, half of them of one user.
const WAITING_MAX: usize = 8192;

/// Longest wait of a step for its permit; then the response is broken off.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Returns the limit of all responses.
pub(crate) fn limit() -> Arc<ConcurrencyLimit> {
    Arc::new(ConcurrencyLimit::new(THREADS, WAITING_MAX))
}

/// A content coding, see RFC 9110, section 8.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Zstd,
}

impl Coding {
    /// Returns the best coding that a request's `Accept-Encoding` lists with a weight above 0.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let lists = headers.get_all(header::ACCEPT_ENCODING).iter();
        let items = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.split(','));
        let accepted = items.filter_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            let coding = match &*parts.next()?.to_ascii_lowercase() {
                "zstd" => Self::Zstd,
                "gzip" | "x-gzip" => Self::Gzip,
                _ => return None,
            };
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            weight.is_none_or(|q| q.parse().is_ok_and(|q: f32| q > 0.0)).then_some(coding)
        });
        accepted.max_by_key(|coding| *coding == Self::Zstd)
    }

    fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// Compresses the body of a response piece by piece, on threads that accept no requests.
///
/// Short bodies stay as they are, as do files with an `ETag`, which names their exact bytes. A body that
/// breaks off breaks the compressed body off, too. `limit` is that of all responses, and `user_key` is the user
/// whose response it is.
pub(crate) fn compress(
    coding: Option<Coding>,
    response: Response,
    (limit, user_key): (&Arc<ConcurrencyLimit>, &Arc<str>),
) -> Response {
    let Some(coding) = coding.filter(|_| is_compressible(&response)) else { return response };
    let Ok(encoder) = Encoder::new(coding) else { return response };
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, coding.name());
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let pieces = Pieces {
        body: body.into_data_stream(),
        waiting: Bytes::new(),
        encoder,
        limit: Arc::clone(limit),
        user_key: Arc::clone(user_key),
    };
    let compressed = stream::unfold(Some(pieces), |pieces| async {
        let (piece, pieces) = pieces?.next().await;
        Some((piece, pieces))
    });
    Response::from_parts(parts, Body::from_stream(compressed))
}

fn is_compressible(response: &Response) -> bool {
    let headers = response.headers();
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_text = content_type
        .is_some_and(|value| value.starts_with("application/json") || value.starts_with("text/"));
    let is_short = response.body().size_hint().exact().is_some_and(|n| n < BODY_MIN_BYTES);
    let as_it_is = [header::ETAG, header::CONTENT_ENCODING, header::CONTENT_RANGE];
    is_text && !is_short && !as_it_is.iter().any(|name| headers.contains_key(name))
}

/// A body on its way through the encoder.
struct Pieces {
    body: BodyDataStream,
    /// The rest of the latest piece.
    waiting: Bytes,
    encoder: Encoder,
    limit: Arc<ConcurrencyLimit>,
    user_key: Arc<str>,
}

impl Pieces {
    /// Returns the next compressed piece, and the rest, if there is one.
    async fn next(mut self) -> (io::Result<Bytes>, Option<Self>) {
        while self.waiting.is_empty() {
            match self.body.next().await {
                Some(Ok(piece)) => self.waiting = piece,
                Some(Err(error)) => return (Err(io::Error::other(error)), None),
                None => return (self.encoder.finish().map(Bytes::from), None),
            }
        }
        let step = self.waiting.split_to(self.waiting.remaining().min(STEP_BYTES));
        let mut encoder = self.encoder;
        let Ok(permit) = self.limit.acquire(&self.user_key, WAIT_MAX).await else {
            return (Err(io::Error::other("too many answers are being compressed")), None);
        };
        let work = tokio::task::spawn_blocking(move || (encoder.encode(&step), encoder));
        let done = work.await;
        drop(permit);
        match done {
            Ok((Ok(piece), encoder)) => (Ok(piece.into()), Some(Self { encoder, ..self })),
            Ok((Err(error), _)) => (Err(error), None),
            Err(panicked) => (Err(io::Error::other(panicked)), None),
        }
    }
}

enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(LEVEL))),
            Coding::Zstd => {
                let mut encoder =
                    zstd::stream::write::Encoder::new(Vec::new(), LEVEL.cast_signed())?;
                encoder.window_log(ZSTD_WINDOW_LOG)?;
                Self::Zstd(encoder)
            }
        })
    }

    /// Compresses a piece, and returns bytes from which a client can decode all of it.
    fn encode(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => {
                encoder.write_all(piece)?;
                encoder.flush()?;
                Ok(std::mem::take(encoder.get_mut()))
            }
            Self::Zstd(encoder) => {
                encoder.write_all(piece)?;
                encoder.flush()?;
                Ok(std::mem::take(encoder.get_mut()))
            }
        }
    }

    /// Returns the end of the compressed body.
    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::io::Read;

    fn accepted(list: &'static str) -> Option<Coding> {
        Coding::accepted(&HeaderMap::from_iter([(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static(list),
        )]))
    }

    #[test]
    fn the_coding_that_a_client_accepts() {
        for (list, want) in [
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip, deflate", Some(Coding::Gzip)),
            ("GZIP;q=0.5", Some(Coding::Gzip)),
            ("zstd;q=0, gzip;q=1.0", Some(Coding::Gzip)),
            ("gzip; q=0", None),
            ("gzip;q=much", None),
            ("identity", None),
            ("", None),
        ] {
            assert_eq!(accepted(list), want, "{list}");
        }
        assert_eq!(Coding::accepted(&HeaderMap::new()), None);
    }

    fn response(body: Body) -> Response {
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, crate::queries::answers::JSON);
        response
    }

    fn compress_for_ann(coding: Option<Coding>, response: Response) -> Response {
        compress(coding, response, (&limit(), &"ann".into()))
    }

    /// A user with many long responses leaves the other thread to others.
    #[test]
    fn one_users_responses_take_half_of_the_threads() {
        let (limit, ann): (_, Arc<str>) = (limit(), "ann".into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let _anns = limit.acquire(&ann, WAIT_MAX).await.unwrap();
            let long = || response(Body::from("x".repeat(5000)));
            let more = compress(Some(Coding::Gzip), long(), (&limit, &ann)).into_body().collect();
            let mut more = std::pin::pin!(more);
            tokio::select! {
                biased;
                _ = &mut more => panic!("ann has two threads"),
                () = tokio::task::yield_now() => {}
            }
            let bobs = compress(Some(Coding::Gzip), long(), (&limit, &"bob".into()));
            assert!(bobs.into_body().collect().await.unwrap().to_bytes().len() < 5000);
        });
    }

    fn received(response: Response) -> Result<Vec<u8>, axum::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = runtime.block_on(response.into_body().collect())?.to_bytes();
        Ok(body.to_vec())
    }

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap(),
            Coding::Zstd => zstd::Decoder::new(bytes).unwrap().read_to_end(&mut out).unwrap(),
        };
        out
    }

    #[test]
    fn long_bodies_arrive_smaller_and_the_same() {
        let text: String = (0..200_000).map(|i| format!("{{\"value\":{i}}},")).collect();
        for coding in [Coding::Gzip, Coding::Zstd] {
            let pieces = text.as_bytes().chunks(65_537).map(|piece| Ok(piece.to_vec()));
            let pieces: Vec<io::Result<Vec<u8>>> = pieces.collect();
            for body in [Body::from(text.clone()), Body::from_stream(stream::iter(pieces))] {
                let response = compress_for_ann(Some(coding), response(body));
                assert_eq!(response.headers()[header::CONTENT_ENCODING], coding.name());
                assert!(!response.headers().contains_key(header::CONTENT_LENGTH));
                let bytes = received(response).unwrap();
                assert!(bytes.len() < text.len() / 4, "{coding:?}: {}", bytes.len());
                assert_eq!(decoded(coding, &bytes), text.as_bytes());
            }
        }
    }

    #[test]
    fn short_bodies_and_files_with_a_tag_remain_as_they_are() {
        let short = compress_for_ann(Some(Coding::Gzip), response(Body::from("{}")));
        let mut tagged = response(Body::from("x".repeat(5000)));
        tagged.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"1\""));
        let tagged = compress_for_ann(Some(Coding::Gzip), tagged);
        let unasked = compress_for_ann(None, response(Body::from("x".repeat(5000))));
        for response in [short, tagged, unasked] {
            assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
        }
    }

    #[test]
    fn a_body_that_breaks_off_never_looks_complete() {
        let pieces = [Ok(vec![b'x'; 100_000]), Err(io::Error::other("disk"))];
        let body = Body::from_stream(stream::iter(pieces));
        received(compress_for_ann(Some(Coding::Gzip), response(body))).unwrap_err();
    }
}
