//! Decompression of archives, detected by content.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Decompresses gzip, zstd or uncompressed data, detected by the first bytes: media types and file names are
/// unreliable.
pub(crate) fn decompress<'a>(raw: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut raw = BufReader::with_capacity(128 << 10, raw);
    let start = raw.fill_buf()?;
    Ok(if start.starts_with(GZIP) {
        Box::new(MultiGzDecoder::new(raw))
    } else if start.starts_with(ZSTD) {
        Box::new(zstd::stream::read::Decoder::with_buffer(raw)?)
    } else {
        Box::new(raw)
    })
}
