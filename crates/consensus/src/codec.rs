//! Little-endian primitives of peer messages, log records and checkpoints.

use bytes::{Buf, BufMut, Bytes, BytesMut};

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends inside the named field.
    #[error("{0} is truncated")]
    Short(&'static str),
    /// The named field has a value that this version does not know or allow.
    #[error("{0} has an invalid value")]
    Invalid(&'static str),
    /// Bytes follow the end of the named structure.
    #[error("{0} is followed by trailing bytes")]
    Trailing(&'static str),
}

/// Reads fields from the front of shared bytes; byte fields are slices of the input, never copies.
#[derive(Debug)]
pub struct Reader {
    bytes: Bytes,
}

impl Reader {
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// Returns the number of remaining bytes.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.need(1, field)?;
        Ok(self.bytes.get_u8())
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.need(4, field)?;
        Ok(self.bytes.get_u32_le())
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.need(8, field)?;
        Ok(self.bytes.get_u64_le())
    }

    /// Reads a length and that many bytes.
    pub fn bytes(&mut self, field: &'static str) -> Result<Bytes, DecodeError> {
        let length = self.u32(field)? as usize;
        self.need(length, field)?;
        Ok(self.bytes.split_to(length))
    }

    /// Reads a length and that many bytes of UTF-8.
    pub fn string(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let bytes = self.bytes(field)?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| DecodeError::Invalid(field))
    }

    /// Reads a count of items with at least `item_bytes_min` bytes each. A forged count fails before the caller
    /// allocates.
    pub fn count(&mut self, item_bytes_min: usize, field: &'static str) -> Result<usize, DecodeError> {
        let count = self.u32(field)? as usize;
        match count.checked_mul(item_bytes_min) {
            Some(least) if least <= self.bytes.len() => Ok(count),
            _ => Err(DecodeError::Short(field)),
        }
    }

    /// Fails unless everything has been read.
    pub fn finish(&self, structure: &'static str) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(structure)) }
    }

    fn need(&self, count: usize, field: &'static str) -> Result<(), DecodeError> {
        if self.bytes.len() < count { Err(DecodeError::Short(field)) } else { Ok(()) }
    }
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("fields are bounded well below 4 GiB before they are encoded");
    out.put_u32_le(length);
    out.put_slice(bytes);
}

/// Appends the number of items of a list.
pub fn put_count(out: &mut BytesMut, count: usize) {
    out.put_u32_le(u32::try_from(count).expect("lists are bounded well below 2^32 items before they are encoded"));
}
