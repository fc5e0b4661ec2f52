//! Access to peer frames for `crate::fuzz`.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use consensus::Message;

use super::frame::{Frame, Greeting, put_frame, read_frame};

/// Parses bytes as a greeting, as a stream of frames and as one frame, which must survive a round trip. Returns the
/// frame's message.
pub(crate) fn message(input: &[u8]) -> Option<Message> {
    let _ = Greeting::decode(Bytes::copy_from_slice(input));
    let mut stream = input;
    while let Some(frame) = read(&mut stream) {
        let _ = Frame::decode(&frame, 2, 1);
    }
    let frame = Frame::decode(&Bytes::copy_from_slice(input), 2, 1).ok()?;
    let mut sent = BytesMut::new();
    put_frame(&mut sent, &frame.encode());
    let received = read(&mut &sent[..]).expect("a sent frame is received");
    assert_eq!(Frame::decode(&received, 2, 1).as_ref(), Ok(&frame), "a frame changes on its way");
    match frame {
        Frame::Message(message) => Some(*message),
        Frame::Lease { .. } | Frame::LeaseReply { .. } => None,
    }
}

/// Reads a frame from memory, which never blocks.
fn read(input: &mut &[u8]) -> Option<Bytes> {
    match pin!(read_frame(input)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => frame.ok(),
        Poll::Pending => unreachable!("bytes in memory are there"),
    }
}

#[cfg(test)]
pub(crate) fn seeds(messages: &[Message]) -> Vec<(&'static str, Vec<u8>)> {
    use super::LeaseReply;

    let of = |message: &Message| Frame::Message(Box::new(message.clone())).encode().to_vec();
    let lease = Frame::Lease { request: 1, lease: -1, renew: true }.encode();
    let response = Frame::LeaseReply { request: 1, response: LeaseReply::Seconds(5) }.encode();
    let mut stream = BytesMut::new();
    messages.iter().for_each(|message| put_frame(&mut stream, &of(message)));
    vec![
        ("vote", of(&messages[0])),
        ("forward", of(messages.last().unwrap())),
        ("lease", lease.to_vec()),
        ("lease_answer", response.to_vec()),
        ("stream", stream.to_vec()),
        ("long", vec![0xff; 8]),
        // An append after entry 256, which no member has, with term 0: `raft` accepted it as a match.
        ("append_beyond_the_log", append_beyond_the_log()),
        ("greeting", [b"KNARRPER", &1_u32.to_le_bytes()[..], &[0; 25]].concat()),
    ]
}

#[cfg(test)]
fn append_beyond_the_log() -> Vec<u8> {
    const FRAME_OF_MESSAGE: u8 = 1;
    const VERSION: u8 = 1;
    const RAFT: u8 = 1;
    const APPEND: u8 = 1;
    const ACCEPTED: u8 = 0;
    let (term, log_term, index, commit) = (2_u64, 0_u64, 256_u64, 256_u64);
    let mut bytes = vec![FRAME_OF_MESSAGE, VERSION, RAFT, APPEND, ACCEPTED];
    [term, log_term, index, commit, 0, 0, 0].iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    // No context, no entries.
    bytes.extend([0; 8]);
    bytes
}
