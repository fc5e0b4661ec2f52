//! The subset of DER for public keys: sequences, integers, bit strings.

use super::{Curve, PublicKey};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const NULL: u8 = 0x05;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// 1.2.840.113549.1.1.1
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// 1.2.840.10045.2.1
const ELLIPTIC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];

pub(super) fn read_spki(bytes: &[u8]) -> Option<PublicKey> {
    let mut whole = Reader(bytes);
    let mut spki = Reader(whole.expect(SEQUENCE)?);
    let mut algorithm = Reader(spki.expect(SEQUENCE)?);
    let (unused_bits, key) = spki.expect(BIT_STRING)?.split_first()?;
    if !whole.0.is_empty() || *unused_bits != 0 {
        return None;
    }
    match algorithm.expect(OBJECT_ID)? {
        RSA => read_rsa(key),
        ELLIPTIC => {
            let named = algorithm.expect(OBJECT_ID)?;
            let curve = [Curve::P256, Curve::P384, Curve::P521].into_iter().find(|curve| curve.object_id() == named)?;
            let sound = key.len() == 1 + 2 * curve.coordinate_len() && key[0] == 4;
            sound.then(|| PublicKey::Elliptic { curve, point: key.to_vec() })
        }
        _ => None,
    }
}

pub(super) fn read_rsa(bytes: &[u8]) -> Option<PublicKey> {
    let mut whole = Reader(bytes);
    let mut key = Reader(whole.expect(SEQUENCE)?);
    let (modulus, exponent) = (key.positive()?, key.positive()?);
    (whole.0.is_empty() && key.0.is_empty())
        .then(|| PublicKey::Rsa { modulus: modulus.to_vec(), exponent: exponent.to_vec() })
}

pub(super) fn write_spki(key: &PublicKey) -> Vec<u8> {
    let (algorithm, key) = match key {
        PublicKey::Rsa { modulus, exponent } => {
            let numbers = [write_positive(modulus), write_positive(exponent)].concat();
            ([write(OBJECT_ID, RSA), write(NULL, &[])].concat(), write(SEQUENCE, &numbers))
        }
        PublicKey::Elliptic { curve, point } => {
            ([write(OBJECT_ID, ELLIPTIC), write(OBJECT_ID, curve.object_id())].concat(), point.clone())
        }
    };
    let bits = [&[0], key.as_slice()].concat();
    write(SEQUENCE, &[write(SEQUENCE, &algorithm), write(BIT_STRING, &bits)].concat())
}

impl Curve {
    const fn object_id(self) -> &'static [u8] {
        match self {
            // 1.2.840.10045.3.1.7
            Self::P256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
            // 1.3.132.0.34
            Self::P384 => &[0x2b, 0x81, 0x04, 0x00, 0x22],
            // 1.3.132.0.35
            Self::P521 => &[0x2b, 0x81, 0x04, 0x00, 0x23],
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Returns the content of the next element, which must have this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let [have, first, rest @ ..] = self.0 else { return None };
        let (len, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        (*have == tag).then_some(content)
    }

    /// Returns the next element as a positive integer without leading zeros.
    fn positive(&mut self) -> Option<&'a [u8]> {
        let content = self.expect(INTEGER)?;
        let zeros = content.iter().take_while(|byte| **byte == 0).count();
        let negative = content.first().is_some_and(|byte| byte & 0x80 != 0);
        (zeros < content.len() && !negative).then(|| &content[zeros..])
    }
}

fn write_positive(number: &[u8]) -> Vec<u8> {
    let sign: &[u8] = if number.first().is_some_and(|byte| byte & 0x80 != 0) { &[0] } else { &[] };
    write(INTEGER, &[sign, number].concat())
}

fn write(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let len = content.len().to_be_bytes();
    let digits = &len[len.iter().take_while(|digit| **digit == 0).count()..];
    match digits {
        [] => out.push(0),
        [short @ 0..0x80] => out.push(*short),
        long => {
            out.push(0x80 | u8::try_from(long.len()).expect("a length has at most 8 bytes"));
            out.extend(long);
        }
    }
    out.extend(content);
    out
}
