//! The end of a body (RFC 9112, section 6.3), for requests and responses.

use bytes::BytesMut;
use http::HeaderMap;

use super::chunked::{ChunkError, Chunked, Piece};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    /// Bytes that are left.
    Length(u64),
    Chunked(Chunked),
    /// The body ends with the connection.
    Close,
}

impl Decoder {
    /// Whether the body has ended. It ends with the connection only if this stays false.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Decoder::Length(0))
    }

    /// Takes the next part of the body from the start of a buffer; `None` if the buffer needs more bytes.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>, ChunkError> {
        match self {
            Decoder::Length(0) => Ok(Some(Piece::End(HeaderMap::new()))),
            Decoder::Length(_) | Decoder::Close if buffer.is_empty() => Ok(None),
            Decoder::Length(left) => {
                let length = usize::try_from(*left).map_or(buffer.len(), |left| left.min(buffer.len()));
                *left -= length as u64;
                Ok(Some(Piece::Data(buffer.split_to(length).freeze())))
            }
            Decoder::Close => Ok(Some(Piece::Data(buffer.split().freeze()))),
            Decoder::Chunked(chunked) => {
                let piece = chunked.decode(buffer)?;
                if let Some(Piece::End(_)) = &piece {
                    *self = Decoder::Length(0);
                }
                Ok(piece)
            }
        }
    }
}
