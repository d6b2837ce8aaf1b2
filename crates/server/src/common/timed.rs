//! A stream with a write timeout. Without it, a client that stops reading would keep its response, and the
//! query behind it, for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes must make progress within a time limit. Reads have no limit here. Their callers
/// limit them, as they know what is read: a header, a body, or nothing between two requests.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    stream: S,
    limit: Duration,
    waiting: bool,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Timed<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        let deadline = Box::pin(tokio::time::sleep(limit));
        Self { stream, limit, waiting: false, deadline }
    }

    /// Passes on the stream's result, and starts or stops the timer.
    fn watch<T>(&mut self, cx: &mut Context<'_>, now: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if now.is_ready() {
            self.waiting = false;
            return now;
        }
        if !self.waiting {
            self.waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let now = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, now)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let now = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch(cx, now)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, now)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    fn run<F: Future>(work: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(work)
    }

    #[test]
    fn a_peer_that_reads_nothing_is_given_up() {
        run(async {
            let (near, _far) = duplex(16);
            let mut near = Timed::new(near, Duration::from_millis(20));
            let error = near.write_all(&[0; 64]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_slow_peer_that_reads_on_is_waited_for() {
        run(async {
            let (near, mut far) = duplex(16);
            let mut near = Timed::new(near, Duration::from_millis(400));
            let reader = tokio::spawn(async move {
                let mut bytes = [0; 16];
                for _ in 0..8 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    far.read_exact(&mut bytes).await.unwrap();
                }
            });
            near.write_all(&[0; 128]).await.unwrap();
            reader.await.unwrap();
        });
    }
}
