//! DER encoding of the ASN.1 types in a certificate.

use apimachinery::time::Time;

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const NULL: u8 = 0x05;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;

/// 2.5.29.15
pub(super) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
/// 2.5.29.17
pub(super) const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// 2.5.29.19
pub(super) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
/// 2.5.29.35
pub(super) const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
/// 2.5.29.37
pub(super) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// 1.2.840.10045.4.3.2
pub(super) const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// 1.2.840.10045.4.3.3
pub(super) const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
/// 1.2.840.10045.4.3.4
pub(super) const ECDSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];
/// 1.2.840.113549.1.1.11
pub(super) const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
/// 1.2.840.113549.1.1.12
pub(super) const RSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c];
/// 1.2.840.113549.1.1.13
pub(super) const RSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d];
/// 1.3.101.112
pub(super) const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// Key usages, by bit index.
const KEY_USAGES: &[(&str, u8)] = &[
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Extended key usages: 1.3.6.1.5.5.7.3.N, and three vendor-specific ones.
const PURPOSES: &[(&str, &[u8])] = &[
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01]),
    ("client auth", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02]),
    ("code signing", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x03]),
    ("email protection", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x04]),
    ("s/mime", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x04]),
    ("ipsec end system", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x05]),
    ("ipsec tunnel", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x06]),
    ("ipsec user", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x07]),
    ("timestamping", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x08]),
    ("ocsp signing", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09]),
    ("microsoft sgc", &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x0a, 0x03, 0x03]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x04, 0x01]),
];

/// Encodes a value with tag and length.
pub(super) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let len = content.len();
    if len < 0x80 {
        out.push(len as u8);
    } else {
        let bytes = len.to_be_bytes();
        let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
        out.push(0x80 | (bytes.len() - first) as u8);
        out.extend(&bytes[first..]);
    }
    out.extend(content);
    out
}

/// Encodes a SEQUENCE.
pub(super) fn sequence(items: &[&[u8]]) -> Vec<u8> {
    tlv(SEQUENCE, &items.concat())
}

/// Encodes a context-specific value.
pub(super) fn context(number: u8, content: &[u8]) -> Vec<u8> {
    tlv(0xa0 | number, content)
}

pub(super) fn oid(id: &[u8]) -> Vec<u8> {
    tlv(OBJECT_ID, id)
}

pub(super) fn octets(bytes: &[u8]) -> Vec<u8> {
    tlv(OCTET_STRING, bytes)
}

/// Encodes a time: UTCTime for the years 1950 to 2049, otherwise GeneralizedTime.
pub(super) fn time(time: Time) -> Vec<u8> {
    let digits: String = time.to_string().chars().filter(char::is_ascii_digit).collect();
    match digits.as_str() {
        short if ("1950".."2050").contains(&&short[..4]) => tlv(UTC_TIME, format!("{}Z", &short[2..]).as_bytes()),
        long => tlv(GENERALIZED_TIME, format!("{long}Z").as_bytes()),
    }
}

/// Encodes a BIT STRING whose first bit is the highest of `set`, without trailing zero bits.
pub(super) fn bits(set: u16) -> Vec<u8> {
    let mut bytes = set.to_be_bytes().to_vec();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    let unused = bytes.last().map_or(0, |last| last.trailing_zeros() as u8);
    tlv(BIT_STRING, &[&[unused], bytes.as_slice()].concat())
}

/// Splits usages into key usage bits and extended key usages; fails with the first unknown usage.
pub(super) fn usages(names: &[String]) -> Result<(u16, Vec<&'static [u8]>), String> {
    let (mut key, mut purposes) = (0, Vec::new());
    for name in names {
        let bit = KEY_USAGES.iter().find(|(known, _)| known == name).map(|(_, bit)| bit);
        let purpose = PURPOSES.iter().find(|(known, _)| known == name).map(|(_, purpose)| *purpose);
        match (bit, purpose) {
            (Some(bit), _) => key |= 0x8000 >> bit,
            (_, Some(purpose)) if purposes.contains(&purpose) => {}
            (_, Some(purpose)) => purposes.push(purpose),
            (None, None) => return Err(name.clone()),
        }
    }
    purposes.sort_unstable();
    Ok((key, purposes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_lengths_times_and_bits_are_minimal() {
        assert_eq!(tlv(4, &[7]), [4, 1, 7]);
        assert_eq!(tlv(4, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(tlv(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
        assert_eq!(time(Time::from_unix(0, 0)), [&[UTC_TIME, 13], b"700101000000Z".as_slice()].concat());
        let late = Time::parse("2050-01-01T00:00:00Z").unwrap();
        assert_eq!(time(late), [&[GENERALIZED_TIME, 15], b"20500101000000Z".as_slice()].concat());
        let named = |names: &[&str]| usages(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(bits(named(&["digital signature", "key encipherment"]).unwrap().0), [3, 2, 5, 0xa0]);
        assert_eq!(bits(named(&["decipher only"]).unwrap().0), [3, 3, 7, 0, 0x80]);
        assert_eq!(named(&["email protection", "s/mime"]).unwrap().1.len(), 1);
        assert_eq!(named(&["nonsense"]), Err("nonsense".to_owned()));
    }
}
