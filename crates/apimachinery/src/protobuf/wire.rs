//! Protobuf wire format: varints, and fields identified by number and wire type.

use super::Problem;

pub(super) const VARINT: u8 = 0;
/// Eight bytes, little-endian.
pub(super) const FIXED64: u8 = 1;
/// A length followed by that number of bytes.
pub(super) const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads the number and wire type of the next field; [`None`] at the end.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<(u32, u8)>, Problem> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = (tag & 7) as u8;
        // Go keeps 32 bits of the number and rejects a negative one.
        let number = (tag >> 3) as u32;
        match wire {
            _ if number == 0 || number > i32::MAX as u32 => Err(Problem::Tag),
            GROUP_END => Err(Problem::Group),
            _ => Ok(Some((number, wire))),
        }
    }

    /// Reads a varint. Bits beyond 64 are dropped, as in Go.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Problem> {
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        let mut number = 0;
        for (at, byte) in self.rest.iter().enumerate() {
            if at == 10 {
                return Err(Problem::Overlong);
            }
            number |= u64::from(byte & 0x7f) << (7 * at);
            if *byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < 10 { Problem::Truncated } else { Problem::Overlong })
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, Problem> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Reads a length and that number of bytes.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Problem> {
        let length = usize::try_from(self.varint()?).map_err(|_| Problem::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Problem::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Skips the value of an unknown field.
    pub(super) fn skip(&mut self, wire: u8) -> Result<(), Problem> {
        let mut groups = 0_usize;
        let mut wire = wire;
        loop {
            match wire {
                VARINT => drop(self.varint()?),
                FIXED64 => drop(self.fixed64()?),
                BYTES => drop(self.bytes()?),
                FIXED32 => self.rest = self.rest.get(4..).ok_or(Problem::Truncated)?,
                GROUP => groups += 1,
                GROUP_END => groups = groups.checked_sub(1).ok_or(Problem::Group)?,
                _ => return Err(Problem::Tag),
            }
            if groups == 0 {
                return Ok(());
            }
            wire = (self.varint()? & 7) as u8;
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Fails unless a known field has the wire type of its type.
#[inline]
pub(super) fn expect(expected: u8, found: u8) -> Result<(), Problem> {
    if expected == found { Ok(()) } else { Err(Problem::WireType { expected, found }) }
}

#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the number and wire type that start a field.
#[inline]
pub(super) fn put_tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire));
}

#[inline]
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a varint field.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(out, number, VARINT);
    put_varint(out, value as u64);
}

/// Inserts the length of the bytes from `start` on before them. One byte is already reserved, which suffices for
/// messages shorter than 128 bytes, as most are.
pub(super) fn close(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
        return;
    }
    let more = (length.ilog2() / 7) as usize;
    out.resize(out.len() + more, 0);
    out.copy_within(start..start + length, start + more);
    let mut rest = length;
    for byte in &mut out[start - 1..start + more - 1] {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    out[start + more - 1] = rest as u8;
}
