//! Write timeout of a connection: a client that reads nothing for a minute is disconnected, so that unread responses do
//! not fill the memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream with a write timeout.
pub struct Patient<S> {
    stream: S,
    /// Maximum time that a write may block.
    timeout: Duration,
    /// The deadline of the pending write; set while a write blocks.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    /// Wraps a stream whose writes may block for at most `timeout`.
    pub const fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, end: None }
    }

    /// Fails a write that is pending for longer than the timeout.
    fn enforce_timeout<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.end = None;
            return outcome;
        }
        let timeout = self.timeout;
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.enforce_timeout(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.enforce_timeout(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.enforce_timeout(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.enforce_timeout(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn client_that_does_not_read_is_disconnected_and_one_that_reads_is_not() {
        let (server, mut client) = tokio::io::duplex(16);
        let mut server = Patient::new(server, Duration::from_millis(20));
        let reads = tokio::spawn(async move {
            client.read_exact(&mut [0; 64]).await.unwrap();
            client
        });
        server.write_all(&[1; 64]).await.unwrap();
        let _client = reads.await.unwrap();
        let failed = server.write_all(&[1; 64]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    }
}
