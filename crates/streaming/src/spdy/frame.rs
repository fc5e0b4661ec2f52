//! SPDY frames: an eight-byte header and up to 16 MiB of payload, of which a limited size is accepted.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::SpdyError;

/// Maximum accepted frame size, which bounds the memory that a peer can make this process allocate.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Maximum payload of a sent data frame.
pub(super) const DATA_BYTES_MAX: usize = 32 << 10;

const VERSION: u16 = 3;
const CONTROL: u16 = 0x8000;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// A status of RST_STREAM.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum ResetStatus {
    RefusedStream = 3,
    Cancel = 5,
}

pub(super) enum Frame {
    SynStream {
        id: u32,
        fin: bool,
        block: Bytes,
    },
    SynReply {
        id: u32,
        fin: bool,
        block: Bytes,
    },
    Headers {
        id: u32,
        fin: bool,
        block: Bytes,
    },
    Data {
        id: u32,
        fin: bool,
        data: Bytes,
    },
    Reset {
        id: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// SETTINGS and WINDOW_UPDATE, which are ignored.
    Other,
}

pub(super) enum ReadError {
    Eof,
    Broken(SpdyError),
}

pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Frame, ReadError> {
    let mut head = [0; 8];
    match from.read_exact(&mut head).await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Err(ReadError::Eof),
        done => done.map_err(|error| ReadError::Broken(error.into()))?,
    };
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (flags, length) = (head[4], (word(4) & 0x00ff_ffff) as usize);
    if length > FRAME_BYTES_MAX {
        return Err(ReadError::Broken(SpdyError::Protocol("a frame is too long")));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await.map_err(|error| ReadError::Broken(error.into()))?;
    let fin = flags & FIN != 0;
    let first = u16::from_be_bytes([head[0], head[1]]);
    if first & CONTROL == 0 {
        return Ok(Frame::Data { id: word(0), fin, data: Bytes::from(body) });
    }
    if first & !CONTROL != VERSION {
        return Err(ReadError::Broken(SpdyError::Protocol("the frame version is not 3")));
    }
    control(u16::from_be_bytes([head[2], head[3]]), fin, body).map_err(ReadError::Broken)
}

fn control(kind: u16, fin: bool, body: Vec<u8>) -> Result<Frame, SpdyError> {
    let mut body = Bytes::from(body);
    let short = SpdyError::Protocol("a frame is too short");
    if matches!(kind, SYN_STREAM | SYN_REPLY | RST_STREAM | PING | HEADERS) && body.len() < 4 {
        return Err(short);
    }
    let mut number = || {
        let bytes = body.split_to(4);
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) & 0x7fff_ffff
    };
    Ok(match kind {
        SYN_STREAM => {
            let id = number();
            // The associated stream, priority and slot are ignored.
            if body.len() < 6 {
                return Err(short);
            }
            let block = body.split_off(6);
            Frame::SynStream { id, fin, block }
        }
        SYN_REPLY => Frame::SynReply { id: number(), fin, block: body },
        HEADERS => Frame::Headers { id: number(), fin, block: body },
        RST_STREAM => Frame::Reset { id: number() },
        PING => Frame::Ping { id: number() },
        GOAWAY => Frame::GoAway,
        _ => Frame::Other,
    })
}

pub(super) fn syn_stream(id: u32, block: &[u8]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.extend([0; 6]);
    body.extend(block);
    control_frame(SYN_STREAM, &body)
}

pub(super) fn syn_reply(id: u32, block: &[u8]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.extend(block);
    control_frame(SYN_REPLY, &body)
}

pub(super) fn reset(id: u32, status: ResetStatus) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.extend((status as u32).to_be_bytes());
    control_frame(RST_STREAM, &body)
}

pub(super) fn ping(id: u32) -> Vec<u8> {
    control_frame(PING, &id.to_be_bytes())
}

pub(super) fn data(id: u32, data: &[u8], fin: bool) -> Vec<u8> {
    let mut frame = id.to_be_bytes().to_vec();
    frame.push(u8::from(fin));
    frame.extend(length(data));
    frame.extend(data);
    frame
}

fn control_frame(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = (CONTROL | VERSION).to_be_bytes().to_vec();
    frame.extend(kind.to_be_bytes());
    frame.push(0);
    frame.extend(length(body));
    frame.extend(body);
    frame
}

/// Encodes the three-byte length; every sent frame is shorter than its maximum.
fn length(body: &[u8]) -> [u8; 3] {
    let length = u32::try_from(body.len()).expect("frames are small").to_be_bytes();
    [length[1], length[2], length[3]]
}
