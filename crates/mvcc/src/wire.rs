//! Encoding of numbers and byte strings in log and checkpoint.

use bytes::{BufMut, Bytes};

/// Writes a varint: seven bits per byte, least significant first.
pub(crate) fn put_u64(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// Writes a zigzag varint, so that small negative numbers are short.
pub(crate) fn put_i64(out: &mut Vec<u8>, number: i64) {
    put_u64(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// Writes a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.put_slice(bytes);
}

/// The input ended early, or a number exceeds 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError;

/// Reads the output of the functions above; byte strings are slices of the input.
pub(crate) struct Reader {
    rest: Bytes,
}

impl Reader {
    pub(crate) fn new(input: Bytes) -> Self {
        Self { rest: input }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the remaining bytes: the maximum number of items of a following list.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.rest.first().ok_or(DecodeError)?;
        let _ = self.rest.split_to(1);
        Ok(byte)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0u64;
        for (at, byte) in self.rest.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if at == 9 && bits > 1 {
                return Err(DecodeError);
            }
            number |= bits << (7 * at);
            if byte & 0x80 == 0 {
                let _ = self.rest.split_to(at + 1);
                return Ok(number);
            }
        }
        Err(DecodeError)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, DecodeError> {
        let number = self.u64()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let len = usize::try_from(self.u64()?).map_err(|_| DecodeError)?;
        if len > self.rest.len() {
            return Err(DecodeError);
        }
        Ok(self.rest.split_to(len))
    }
}

/// Writes the number of items, then each item.
pub(crate) fn write_list<T>(
    out: &mut Vec<u8>,
    list: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    let items = list.into_iter();
    put_u64(out, items.len() as u64);
    items.for_each(|item| write(out, item));
}

/// Reads the output of [`write_list`].
pub(crate) fn read_list<T, E: From<DecodeError>>(
    reader: &mut Reader,
    read: impl Fn(&mut Reader) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let len = usize::try_from(reader.u64()?).map_err(|_| DecodeError)?;
    // Each item takes at least one byte, so a forged length is rejected before memory is allocated.
    if len > reader.remaining() {
        return Err(DecodeError.into());
    }
    (0..len).map(|_| read(reader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_a_round_trip() {
        for number in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN, 1 << 40] {
            let mut out = Vec::new();
            put_i64(&mut out, number);
            put_u64(&mut out, number.cast_unsigned());
            let mut reader = Reader::new(out.into());
            assert_eq!(reader.i64(), Ok(number));
            assert_eq!(reader.u64(), Ok(number.cast_unsigned()));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn overlong_or_truncated_numbers_are_malformed() {
        assert_eq!(Reader::new(Bytes::from_static(&[0xff; 10])).u64(), Err(DecodeError));
        assert_eq!(Reader::new(Bytes::from_static(&[0x80; 11])).u64(), Err(DecodeError));
        assert_eq!(Reader::new(Bytes::from_static(&[0x80])).u64(), Err(DecodeError));
        assert_eq!(Reader::new(Bytes::from_static(&[5, 1, 2])).bytes(), Err(DecodeError));
        assert_eq!(Reader::new(Bytes::new()).u8(), Err(DecodeError));
    }
}
