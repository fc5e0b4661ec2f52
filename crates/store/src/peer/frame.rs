//! Greetings and frames of peer streams.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use consensus::codec::Reader;
use consensus::{DecodeError, Message};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A frame of a message stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Frame {
    /// A consensus message.
    Message(Box<Message>),
    /// A request to the leader to renew or read a lease.
    Lease { request: u64, lease: i64, renew: bool },
    /// The response to a lease request.
    LeaseReply { request: u64, response: LeaseReply },
}

/// The leader's response about a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LeaseReply {
    Seconds(i64),
    NotFound,
    NotLeader,
}

/// The first frame of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Greeting {
    pub purpose: Purpose,
    pub cluster: u64,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    Messages,
    Snapshot,
    Members,
}

/// Response byte to a greeting, or at the end of a snapshot.
pub(super) const WELCOME: u8 = 0;
pub(super) const REJECTED: u8 = 1;

const MAGIC: u64 = u64::from_le_bytes(*b"KNARRPER");
const VERSION: u32 = 1;
/// Maximum size of a frame. Messages contain at most 1 MiB of entries, but one entry may be as large as the largest
/// request. All frames are far below this limit.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 20;

const KIND_MESSAGE: u8 = 1;
const KIND_LEASE: u8 = 2;
const KIND_LEASE_RESPONSE: u8 = 3;

impl Frame {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Message(message) => {
                let message = message.encode();
                out.reserve(message.len() + 1);
                out.put_u8(KIND_MESSAGE);
                out.put_slice(&message);
            }
            Self::Lease { request, lease, renew } => {
                out.put_u8(KIND_LEASE);
                out.put_u64_le(*request);
                out.put_i64_le(*lease);
                out.put_u8(u8::from(*renew));
            }
            Self::LeaseReply { request, response } => {
                let (number, seconds) = match response {
                    LeaseReply::Seconds(seconds) => (0, *seconds),
                    LeaseReply::NotFound => (1, 0),
                    LeaseReply::NotLeader => (2, 0),
                };
                out.put_u8(KIND_LEASE_RESPONSE);
                out.put_u64_le(*request);
                out.put_u8(number);
                out.put_i64_le(seconds);
            }
        }
        out.freeze()
    }

    pub(super) fn decode(bytes: &Bytes, from: u64, to: u64) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes.clone());
        let frame = match reader.u8("frame.kind")? {
            KIND_MESSAGE => return Ok(Self::Message(Box::new(Message::decode(bytes.slice(1..), from, to)?))),
            KIND_LEASE => Self::Lease {
                request: reader.u64("lease.request")?,
                lease: reader.u64("lease.id")?.cast_signed(),
                renew: reader.u8("lease.renew")? != 0,
            },
            KIND_LEASE_RESPONSE => {
                let request = reader.u64("lease.request")?;
                let number = reader.u8("lease.answer")?;
                let seconds = reader.u64("lease.seconds")?.cast_signed();
                let response = match number {
                    0 => LeaseReply::Seconds(seconds),
                    1 => LeaseReply::NotFound,
                    2 => LeaseReply::NotLeader,
                    _ => return Err(DecodeError::Invalid("lease.answer")),
                };
                Self::LeaseReply { request, response }
            }
            _ => return Err(DecodeError::Invalid("frame.kind")),
        };
        reader.finish("frame")?;
        Ok(frame)
    }
}

impl Greeting {
    const BYTES: usize = 8 + 4 + 1 + 3 * 8;

    pub(super) async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut out = BytesMut::with_capacity(Self::BYTES);
        out.put_u64_le(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u8(self.purpose as u8);
        [self.cluster, self.from, self.to].into_iter().for_each(|field| out.put_u64_le(field));
        stream.write_all(&out).await
    }

    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = vec![0; Self::BYTES];
        stream.read_exact(&mut bytes).await?;
        Self::decode(Bytes::from(bytes)).map_err(invalid)
    }

    pub(super) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u64("greeting.magic")? != MAGIC {
            return Err(DecodeError::Invalid("greeting.magic"));
        }
        if reader.u32("greeting.version")? != VERSION {
            return Err(DecodeError::Invalid("greeting.version"));
        }
        let purpose = match reader.u8("greeting.purpose")? {
            0 => Purpose::Messages,
            1 => Purpose::Snapshot,
            2 => Purpose::Members,
            _ => return Err(DecodeError::Invalid("greeting.purpose")),
        };
        let mut field = |name| reader.u64(name);
        Ok(Self {
            purpose,
            cluster: field("greeting.cluster")?,
            from: field("greeting.from")?,
            to: field("greeting.to")?,
        })
    }
}

/// Appends a frame: length, checksum, bytes.
pub(super) fn put_frame(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("frames are bounded"));
    out.put_u32_le(crc32c::crc32c(bytes));
    out.put_slice(bytes);
}

/// Reads a frame. The buffer grows as bytes arrive, so a forged length allocates nothing.
pub(super) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let length = stream.read_u32_le().await? as usize;
    let crc = stream.read_u32_le().await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut bytes = Vec::with_capacity(length.min(1 << 20));
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if crc32c::crc32c(&bytes) != crc {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame's checksum is wrong"));
    }
    Ok(Bytes::from(bytes))
}

pub(super) fn invalid(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
