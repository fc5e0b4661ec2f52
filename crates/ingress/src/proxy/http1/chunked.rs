//! The decoder of chunked bodies (RFC 9112, section 7.1).

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::head;

/// Longest size line with extensions.
const LINE_BYTES_MAX: usize = 1024;
const TRAILERS_BYTES_MAX: usize = 16 << 10;
const TRAILERS_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chunked {
    Size,
    Data(u64),
    /// The line break after the data of a chunk.
    Break,
    /// The bytes that were searched for the end.
    Trailers(usize),
}

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Data(Bytes),
    /// The end, with the trailers.
    End(HeaderMap),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::proxy) enum ChunkError {
    #[error("the size of a chunk is malformed")]
    Size,
    #[error("a chunk is longer than its size")]
    Break,
    #[error("the trailers are malformed")]
    Trailers,
}

impl Chunked {
    /// Takes the next part from the start of a buffer; `None` if the buffer needs more bytes.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>, ChunkError> {
        loop {
            match self {
                Chunked::Size => match httparse::parse_chunk_size(buffer).map_err(|_| ChunkError::Size)? {
                    // An empty line is parsed as 0.
                    _ if buffer.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) => return Err(ChunkError::Size),
                    // Other parsers end the line at a single line feed or carriage return in an extension.
                    httparse::Status::Complete((length, _)) if has_line_break(&buffer[..length - 2]) => {
                        return Err(ChunkError::Size);
                    }
                    httparse::Status::Complete((length, size)) => {
                        buffer.advance(length);
                        *self = if size == 0 { Chunked::Trailers(0) } else { Chunked::Data(size) };
                    }
                    httparse::Status::Partial if buffer.len() > LINE_BYTES_MAX => return Err(ChunkError::Size),
                    httparse::Status::Partial => return Ok(None),
                },
                Chunked::Data(left) => {
                    if buffer.is_empty() {
                        return Ok(None);
                    }
                    let length = usize::try_from(*left).map_or(buffer.len(), |left| left.min(buffer.len()));
                    *left -= length as u64;
                    if *left == 0 {
                        *self = Chunked::Break;
                    }
                    return Ok(Some(Piece::Data(buffer.split_to(length).freeze())));
                }
                Chunked::Break => {
                    if !b"\r\n".starts_with(&buffer[..buffer.len().min(2)]) {
                        return Err(ChunkError::Break);
                    }
                    if buffer.len() < 2 {
                        return Ok(None);
                    }
                    buffer.advance(2);
                    *self = Chunked::Size;
                }
                Chunked::Trailers(searched) => {
                    let searched = std::mem::replace(searched, buffer.len());
                    let is_due = searched == 0
                        || matches!(buffer[..], [b'\n', ..] | [b'\r', b'\n', ..])
                        || head::has_empty_line(&buffer[searched.saturating_sub(3)..]);
                    return match is_due {
                        true => trailers(buffer),
                        false if buffer.len() > TRAILERS_BYTES_MAX => Err(ChunkError::Trailers),
                        false => Ok(None),
                    };
                }
            }
        }
    }
}

fn has_line_break(line: &[u8]) -> bool {
    line.iter().any(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Whether all lines end with CRLF.
fn has_crlf_only(lines: &[u8]) -> bool {
    lines.split_inclusive(|byte| *byte == b'\n').all(|line| line.ends_with(b"\r\n"))
}

fn trailers(buffer: &mut BytesMut) -> Result<Option<Piece>, ChunkError> {
    let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    let (length, trailers) = match httparse::parse_headers(buffer, &mut fields) {
        // Another parser may take a single line feed for a part of the value, and the trailers for longer.
        Ok(httparse::Status::Complete((length, _))) if !has_crlf_only(&buffer[..length]) => {
            return Err(ChunkError::Trailers);
        }
        Ok(httparse::Status::Complete((length, fields))) => {
            let mut trailers = HeaderMap::new();
            for field in fields {
                let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| ChunkError::Trailers)?;
                trailers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| ChunkError::Trailers)?);
            }
            (length, trailers)
        }
        Ok(httparse::Status::Partial) if buffer.len() <= TRAILERS_BYTES_MAX => return Ok(None),
        _ => return Err(ChunkError::Trailers),
    };
    buffer.advance(length);
    Ok(Some(Piece::End(trailers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a body, with `|` for line breaks, that arrives in pieces of this size. Returns its data and what is left.
    fn decode(body: &str, piece_bytes: usize) -> Result<Option<(String, HeaderMap, String)>, ChunkError> {
        let (mut decoder, mut buffer, mut data) = (Chunked::Size, BytesMut::new(), Vec::new());
        let body = body.replace('|', "\r\n");
        let mut pieces = body.as_bytes().chunks(piece_bytes);
        loop {
            match decoder.decode(&mut buffer)? {
                Some(Piece::Data(piece)) => data.extend_from_slice(&piece),
                Some(Piece::End(trailers)) => {
                    let rest = String::from_utf8_lossy(
                        &[&buffer[..], &pieces.flatten().copied().collect::<Vec<_>>()].concat(),
                    )
                    .into_owned();
                    return Ok(Some((String::from_utf8(data).unwrap(), trailers, rest)));
                }
                None => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => return Ok(None),
                },
            }
        }
    }

    #[test]
    fn chunks_are_joined_however_they_arrive() {
        let body = "5|hello|A;name=value|0123456789|0|X-Sum: 7||HTTP/1.1";
        for piece_bytes in 1..body.len() {
            let (data, trailers, rest) = decode(body, piece_bytes).unwrap().unwrap();
            assert_eq!((data.as_str(), rest.as_str()), ("hello0123456789", "HTTP/1.1"), "{piece_bytes}");
            assert_eq!(trailers["x-sum"], "7");
        }
        for piece_bytes in 1..9 {
            let (_, trailers, rest) = decode("0||HTTP/1.1", piece_bytes).unwrap().unwrap();
            assert_eq!((trailers.len(), rest.as_str()), (0, "HTTP/1.1"), "{piece_bytes}");
        }
        assert_eq!(decode("5|hel", 3), Ok(None));
        assert_eq!(decode("0|", 3), Ok(None));
    }

    #[test]
    fn malformed_chunks_are_rejected() {
        let check = |body: &str, expect: ChunkError| assert_eq!(decode(body, 7), Err(expect), "{body}");
        check("x|", ChunkError::Size);
        check("|", ChunkError::Size);
        check("-1|", ChunkError::Size);
        check("fffffffffffffffff|", ChunkError::Size);
        check("5\nhello|", ChunkError::Size);
        check("5;\n|hello|", ChunkError::Size);
        check("5;a\rb|hello|", ChunkError::Size);
        check("5|helloX|", ChunkError::Break);
        check("0|bad trailer||", ChunkError::Trailers);
        check("0|X: 1\n|", ChunkError::Trailers);
        check("0|X: 1|\n", ChunkError::Trailers);
        check(&format!("5;{}", "x".repeat(LINE_BYTES_MAX + 10)), ChunkError::Size);
        check(&format!("0|X: {}", "x".repeat(TRAILERS_BYTES_MAX + 10)), ChunkError::Trailers);
    }
}
