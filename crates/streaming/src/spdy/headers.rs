//! SPDY header blocks: names and values, compressed as one stream per session with the protocol's dictionary.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::{Headers, SpdyError};

/// Maximum decompressed size of a block, as protection against compression bombs.
const BLOCK_BYTES_MAX: usize = 64 << 10;
const PAIRS_MAX: u32 = 256;

/// The words of the protocol's dictionary that are preceded by their lengths.
const DICTIONARY_WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade user-agent \
vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin";

/// The rest of the dictionary, verbatim.
const REST: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec \
00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/\
xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1423);
    for word in DICTIONARY_WORDS.split(' ') {
        let word = word.replace('_', " ");
        bytes.extend(u32::try_from(word.len()).expect("words are short").to_be_bytes());
        bytes.extend(word.as_bytes());
    }
    bytes.extend(REST.as_bytes());
    bytes
}

pub(super) struct Compressor(Compress);

impl Compressor {
    pub(super) fn new() -> Compressor {
        let mut compress = Compress::new(Compression::default(), true);
        compress.set_dictionary(&dictionary()).expect("a fresh compressor takes a dictionary");
        Compressor(compress)
    }

    pub(super) fn compress(&mut self, headers: &Headers) -> Vec<u8> {
        let number = |n: usize| u32::try_from(n).expect("headers are short").to_be_bytes();
        let mut plain = number(headers.len()).to_vec();
        for (name, value) in headers {
            for text in [name, value] {
                plain.extend(number(text.len()));
                plain.extend(text.as_bytes());
            }
        }
        // Reserves space for incompressible content and the flush marker.
        let mut block = Vec::with_capacity(plain.len() + 128);
        let before = self.0.total_in();
        while self.0.total_in() - before < plain.len() as u64 || block.len() == block.capacity() {
            let done = usize::try_from(self.0.total_in() - before).expect("headers are short");
            block.reserve(128);
            self.0
                .compress_vec(&plain[done..], &mut block, FlushCompress::Sync)
                .expect("compressing memory cannot fail");
        }
        block
    }
}

pub(super) struct Decompressor(Decompress);

impl Decompressor {
    pub(super) fn new() -> Decompressor {
        Decompressor(Decompress::new(true))
    }

    pub(super) fn decompress(&mut self, block: &[u8]) -> Result<Headers, SpdyError> {
        let bad = SpdyError::Protocol("a header block cannot be decompressed");
        let mut plain = Vec::with_capacity(4096);
        let start = self.0.total_in();
        loop {
            let done = usize::try_from(self.0.total_in() - start).unwrap_or(usize::MAX);
            let rest = block.get(done..).unwrap_or_default();
            let before = (self.0.total_in(), plain.len());
            match self.0.decompress_vec(rest, &mut plain, FlushDecompress::Sync) {
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0
                        .set_dictionary(&dictionary())
                        .map_err(|_| SpdyError::Protocol("a header block uses an unknown dictionary"))?;
                    continue;
                }
                Err(_) => return Err(bad),
            }
            if plain.len() > BLOCK_BYTES_MAX {
                return Err(SpdyError::Protocol("a header block is too large"));
            }
            if plain.len() == plain.capacity() {
                plain.reserve(4096);
            } else if (self.0.total_in(), plain.len()) == before || self.0.total_in() - start == block.len() as u64 {
                return parse(&plain);
            }
        }
    }
}

fn parse(mut plain: &[u8]) -> Result<Headers, SpdyError> {
    let bad = || SpdyError::Protocol("a header block is malformed");
    let mut headers = Headers::new();
    let pairs = number(&mut plain).ok_or_else(bad)?;
    if pairs > PAIRS_MAX {
        return Err(bad());
    }
    for _ in 0..pairs {
        let name = text(&mut plain).ok_or_else(bad)?;
        let value = text(&mut plain).ok_or_else(bad)?;
        headers.insert(name.to_ascii_lowercase(), value);
    }
    Ok(headers)
}

fn number(from: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = from.split_first_chunk::<4>()?;
    *from = rest;
    Some(u32::from_be_bytes(*bytes))
}

fn text(from: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(number(from)?).ok()?;
    let bytes = from.get(..length)?;
    *from = &from[length..];
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionary_has_the_checksum_of_the_protocol() {
        let bytes = dictionary();
        // Both sides identify the dictionary by its Adler-32 checksum.
        let (mut a, mut b) = (1u32, 0u32);
        for byte in &bytes {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((bytes.len(), b << 16 | a), (1423, 0xe3c6_a7c2));
    }

    #[test]
    fn blocks_of_any_size_round_trip() {
        let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
        for n in [0, 1, 7, 200] {
            let headers: Headers = (0..n).map(|i| (format!("name-{i}"), "v".repeat(i))).collect();
            let block = compressor.compress(&headers);
            assert_eq!(decompressor.decompress(&block).unwrap(), headers, "{n}");
        }
    }

    #[test]
    fn compression_bombs_and_malformed_blocks_are_rejected() {
        let bomb = Headers::from([("x".to_owned(), "y".repeat(1 << 20))]);
        let block = Compressor::new().compress(&bomb);
        assert!(Decompressor::new().decompress(&block).is_err());
        assert!(Decompressor::new().decompress(b"nonsense").is_err());
    }
}
