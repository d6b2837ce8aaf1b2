//! A connection that ends when the target sends too much before its response.
//!
//! The HTTP library reads interim responses (`100 Continue`) without end, and without a pause in which the timeout could
//! end it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a connection may still receive.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    /// Sets the number of bytes.
    pub(super) fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// A connection with an allowance.
#[derive(Debug)]
pub(super) struct BoundedStream<S> {
    pub(super) inner: S,
    pub(super) allowance: Allowance,
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let received = buffer.filled().len().saturating_sub(before);
        let left = self.allowance.0.load(Ordering::Relaxed);
        match left.checked_sub(received) {
            Some(left) => self.allowance.set(left),
            None => {
                let what = "the target sends too much before its response, or after it";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
