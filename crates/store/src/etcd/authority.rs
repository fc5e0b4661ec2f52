//! Workaround for the invalid HTTP/2 `:authority` of old etcd clients, which is a URL instead of host and port.
//!
//! etcdctl 3.4 calls single endpoints (status, hashkv, defrag, snapshot) with `:authority: http://127.0.0.1:2379`. Go's
//! server accepts this; h2 resets the stream, as HTTP/2 requires. The value is sent once per connection, in the first
//! HEADERS frame, as a literal that later frames refer to. The scheme is overwritten there with letters of the same
//! length before h2 reads it, so all lengths and the HPACK state stay unchanged. After that frame the stream is passed
//! through unmodified.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Maximum frame size before SETTINGS changes it.
const FRAME_MAX: usize = 16 * 1024;
/// Index of `:authority` in the HPACK static table.
const AUTHORITY: usize = 1;

/// A connection whose first HEADERS frame is corrected.
pub(super) struct CorrectedConnection<S> {
    inner: S,
    buffered: Vec<u8>,
    /// Number of leading bytes of `buffered` that can be read.
    free: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preface,
    Frames,
    PassThrough,
}

impl<S> CorrectedConnection<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, buffered: Vec::new(), free: 0, stage: Stage::Preface }
    }

    /// Releases bytes that need no correction, up to and including the first HEADERS frame.
    fn scan(&mut self) {
        if self.stage == Stage::Preface {
            let common = self.buffered.len().min(PREFACE.len());
            if self.buffered[..common] != PREFACE[..common] {
                self.stage = Stage::PassThrough;
            } else if common == PREFACE.len() {
                self.free = common;
                self.stage = Stage::Frames;
            }
        }
        while self.stage == Stage::Frames {
            let Some(header) = self.buffered.get(self.free..self.free + FRAME_HEADER) else { return };
            let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            let (kind, flags) = (header[3], header[4]);
            let (start, end) = (self.free + FRAME_HEADER, self.free + FRAME_HEADER + length);
            if length > FRAME_MAX {
                // h2 rejects the oversized frame.
                self.stage = Stage::PassThrough;
            } else if self.buffered.len() < end {
                return;
            } else {
                if kind == HEADERS {
                    let padding = if flags & PADDED == 0 { 0 } else { 1 };
                    let priority = if flags & PRIORITY == 0 { 0 } else { 5 };
                    mend(self.buffered.get_mut(start + padding + priority..end).unwrap_or_default());
                    self.stage = Stage::PassThrough;
                }
                self.free = end;
            }
        }
        if self.stage == Stage::PassThrough {
            self.free = self.buffered.len();
        }
    }
}

/// Overwrites the scheme of the authority in an HPACK header block.
fn mend(block: &mut [u8]) {
    let mut at = 0;
    while let Some(first) = block.get(at).copied() {
        let prefix_bits = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let Some(name) = integer(block, &mut at, prefix_bits) else { return };
        if prefix_bits == 7 || prefix_bits == 5 {
            continue;
        }
        if name == 0 && string(block, &mut at).is_none() {
            return;
        }
        let Some((start, end, huffman)) = string(block, &mut at) else { return };
        if name == AUTHORITY {
            mend_value(&mut block[start..end], huffman);
            return;
        }
    }
}

/// Replaces `http://` or `https://` by `httpk--` or `httpsk--`: letters with Huffman codes of the same length.
fn mend_value(value: &mut [u8], huffman: bool) {
    for (wrong, right) in [("http://", "httpk--"), ("https://", "httpsk--")] {
        let (wrong, right) = if huffman { (coded(wrong), coded(right)) } else { (plain(wrong), plain(right)) };
        let matches =
            value.len() >= wrong.len() && value.iter().zip(&wrong).all(|(byte, (bits, mask))| byte & mask == *bits);
        if matches {
            for (byte, (bits, mask)) in value.iter_mut().zip(&right) {
                *byte = *byte & !mask | bits;
            }
            return;
        }
    }
}

/// Returns bytes with a mask of their significant bits.
fn plain(text: &str) -> Vec<(u8, u8)> {
    text.bytes().map(|byte| (byte, 0xff)).collect()
}

/// Encodes the few letters used here with HPACK's Huffman code.
fn coded(text: &str) -> Vec<(u8, u8)> {
    let mut bytes: Vec<(u8, u8)> = Vec::new();
    let mut used = 8;
    for letter in text.chars() {
        let (code, length): (u8, u8) = match letter {
            'h' => (0b10_0111, 6),
            't' => (0b0_1001, 5),
            'p' => (0b10_1011, 6),
            's' => (0b0_1000, 5),
            ':' => (0b101_1100, 7),
            '/' => (0b01_1000, 6),
            'k' => (0b111_0101, 7),
            '-' => (0b01_0110, 6),
            _ => unreachable!("only the letters of the four words above"),
        };
        for bit in (0..length).rev() {
            if used == 8 {
                bytes.push((0, 0));
                used = 0;
            }
            let last = bytes.last_mut().expect("a byte was pushed");
            let shift = 7 - used;
            last.0 |= (code >> bit & 1) << shift;
            last.1 |= 1 << shift;
            used += 1;
        }
    }
    bytes
}

/// Reads an integer with a prefix of `prefix_bits` and advances `at`.
fn integer(block: &[u8], at: &mut usize, prefix_bits: u32) -> Option<usize> {
    let mask = (1usize << prefix_bits) - 1;
    let mut number = usize::from(*block.get(*at)?) & mask;
    *at += 1;
    if number < mask {
        return Some(number);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        number += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Returns the range of a string and whether it is Huffman-coded, and advances `at`.
fn string(block: &[u8], at: &mut usize) -> Option<(usize, usize, bool)> {
    let huffman = block.get(*at)? & 0x80 != 0;
    let length = integer(block, at, 7)?;
    let (start, end) = (*at, at.checked_add(length)?);
    if end > block.len() {
        return None;
    }
    *at = end;
    Some((start, end, huffman))
}

impl<S: AsyncRead + Unpin> AsyncRead for CorrectedConnection<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.free > 0 {
                let count = self.free.min(out.remaining());
                out.put_slice(&self.buffered[..count]);
                self.buffered.drain(..count);
                self.free -= count;
                return Poll::Ready(Ok(()));
            }
            if self.stage == Stage::PassThrough {
                return Pin::new(&mut self.inner).poll_read(context, out);
            }
            let mut chunk = [0; 4096];
            let mut buffer = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                self.stage = Stage::PassThrough;
                self.free = self.buffered.len();
                if self.free == 0 {
                    return Poll::Ready(Ok(()));
                }
            } else {
                self.buffered.extend_from_slice(buffer.filled());
                self.scan();
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CorrectedConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::io::AsyncReadExt;

    use super::*;

    /// An empty SETTINGS frame.
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    /// `:method: POST`, then `:authority: http://127.0.0.1:44001` as Go's client encodes it.
    const BLOCK: &[u8] = b"\x83\x41\x90\x9d\x29\xae\xe3\x0c\x04\x4e\xae\x05\xc0\xb8\x6e\x34\xd0\x00\x1f\x86";

    fn headers(block: &[u8]) -> Vec<u8> {
        let length = u8::try_from(block.len()).expect("a short block");
        [&[0, 0, length, HEADERS, 4, 0, 0, 0, 1], block].concat()
    }

    /// Returns one byte per call, so that the input pauses at every position.
    struct Slow(VecDeque<u8>);

    impl AsyncRead for Slow {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if let Some(byte) = self.0.pop_front() {
                out.put_slice(&[byte]);
            }
            Poll::Ready(Ok(()))
        }
    }

    async fn read(input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        CorrectedConnection::new(Slow(input.to_vec().into()))
            .read_to_end(&mut out)
            .await
            .expect("reading from memory cannot fail");
        out
    }

    #[tokio::test]
    async fn url_authority_is_corrected_and_nothing_else_changes() {
        let rest = b"whatever follows";
        let input = [PREFACE, SETTINGS, &headers(BLOCK), rest].concat();
        let output = read(&input).await;
        assert_eq!(output.len(), input.len());
        let changed: Vec<_> = (0..input.len()).filter(|at| input[*at] != output[*at]).collect();
        let scheme = PREFACE.len() + SETTINGS.len() + FRAME_HEADER + 3;
        assert!(!changed.is_empty() && changed.iter().all(|at| (scheme..scheme + 6).contains(at)), "{changed:?}");
        // `httpk--` and then the same host.
        assert_eq!(output[scheme..scheme + 6], [0x9d, 0x29, 0xaf, 0xaa, 0xcb, 0x04]);
    }

    #[tokio::test]
    async fn other_authorities_protocols_and_broken_frames_pass_unchanged() {
        let good = [0x41, 5, b'h', b'o', b's', b't', b'1'];
        for input in [
            [PREFACE, SETTINGS, &headers(&good)].concat(),
            [PREFACE, &headers(&[0x41, 0x90, 1])].concat(),
            [PREFACE, &[0xff; 40]].concat(),
            [PREFACE, SETTINGS, &headers(BLOCK)[..12]].concat(),
            b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(),
            b"PRI".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(read(&input).await, input);
        }
    }

    #[test]
    fn url_without_huffman_coding_is_corrected() {
        let mut block = [&[0x41, 11][..], b"https://h:1"].concat();
        mend(&mut block);
        assert_eq!(&block[2..], b"httpsk--h:1");
    }
}
