//! Fuzz target of the SPDY decoder, also used to replay its corpus.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::frame::{self, Frame};
use super::headers::{Compressor, Decompressor};

/// Reads frames like a session, and checks that re-encoded frames decode to the same.
pub fn check(mut input: &[u8]) {
    let mut decompressor = Decompressor::new();
    while let Ok(frame) = read(&mut input) {
        match frame {
            Frame::SynStream { block, .. } | Frame::SynReply { block, .. } | Frame::Headers { block, .. } => {
                let Ok(headers) = decompressor.decompress(&block) else { return };
                let again = Compressor::new().compress(&headers);
                assert_eq!(Decompressor::new().decompress(&again).ok(), Some(headers), "headers change on their way");
            }
            Frame::Data { id, fin, data } => {
                let again = frame::data(id, &data, fin);
                let same = matches!(read(&mut &again[..]), Ok(Frame::Data { id: other, fin: end, data: bytes })
                    if (other, end, &bytes) == (id, fin, &data));
                assert!(same, "data changes on its way");
            }
            Frame::Ping { id } => {
                let same = matches!(read(&mut &frame::ping(id)[..]), Ok(Frame::Ping { id: other }) if other == id);
                assert!(same, "a ping changes on its way");
            }
            Frame::GoAway => return,
            Frame::Reset { .. } | Frame::Other => {}
        }
    }
}

/// Reads a frame; a reader of memory never returns `Pending`.
fn read(input: &mut &[u8]) -> Result<Frame, frame::ReadError> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(frame::read(input)).poll(&mut context) {
        Poll::Ready(frame) => frame,
        Poll::Pending => unreachable!("bytes in memory are there"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::spdy::Headers;

    fn seeds() -> Vec<(&'static str, Vec<u8>)> {
        let headers =
            Headers::from([("streamtype".to_owned(), "data".to_owned()), ("port".to_owned(), "80".to_owned())]);
        let mut compressor = Compressor::new();
        let block = compressor.compress(&headers);
        let second = compressor.compress(&headers);
        let session = [frame::syn_stream(1, &block), frame::syn_stream(3, &second), frame::data(1, b"hello", true)];
        let bomb = Compressor::new().compress(&Headers::from([("x".to_owned(), "0".repeat(60_000))]));
        vec![
            ("session", session.concat()),
            ("reply", frame::syn_reply(1, &Compressor::new().compress(&Headers::new()))),
            ("reset_and_ping", [frame::reset(5, frame::ResetStatus::RefusedStream), frame::ping(7)].concat()),
            ("bomb", frame::syn_stream(1, &bomb)),
            ("too_long", vec![0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]),
            ("short_syn_stream", vec![0x80, 3, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1]),
            ("other_version", vec![0x80, 2, 0, 1, 0, 0, 0, 0]),
            ("http", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ]
    }

    #[test]
    fn corpus_of_spdy_frames_passes() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/spdy");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&corpus).unwrap();
            seeds().into_iter().for_each(|(name, bytes)| std::fs::write(corpus.join(name), bytes).unwrap());
        }
        let files: Vec<_> = std::fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= seeds().len(), "{files:?}");
        files.iter().for_each(|file| check(&std::fs::read(file).unwrap()));
    }
}
