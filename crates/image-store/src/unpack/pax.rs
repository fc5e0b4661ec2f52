//! PAX extended headers, parsed by the lengths of their records.
//!
//! A value may contain any byte, including the newline that ends a record. File capabilities do.

use std::io;

use tar::{EntryType, Header};

const BLOCK: usize = 512;

/// Returns the PAX records of an entry as keys and values. `read` contains the bytes of the archive from `offset` up to
/// the entry's content.
pub(super) fn records(read: &[u8], offset: u64) -> io::Result<Vec<(&str, &[u8])>> {
    // The previous entry is padded to a full block.
    let padding =
        usize::try_from(offset.next_multiple_of(BLOCK as u64) - offset).expect("the length is below the block size");
    let mut rest = read.get(padding..).unwrap_or_default();
    let mut found = Vec::new();
    while let Some((block, after)) = rest.split_at_checked(BLOCK) {
        let header = Header::from_byte_slice(block);
        let kind = header.entry_type();
        let is_extension = matches!(
            kind,
            EntryType::XHeader | EntryType::XGlobalHeader | EntryType::GNULongName | EntryType::GNULongLink
        );
        if !is_extension {
            break;
        }
        let length = usize::try_from(header.entry_size()?).map_err(|_| malformed())?;
        let data = after.get(..length).ok_or_else(malformed)?;
        if kind == EntryType::XHeader {
            found = parse(data)?;
        }
        rest = length.checked_next_multiple_of(BLOCK).and_then(|whole| after.get(whole..)).unwrap_or_default();
    }
    Ok(found)
}

/// Parses records of the form `LENGTH KEY=VALUE\n`, where the length includes itself.
fn parse(mut data: &[u8]) -> io::Result<Vec<(&str, &[u8])>> {
    let mut records = Vec::new();
    while !data.is_empty() {
        let space = data.iter().position(|byte| *byte == b' ').ok_or_else(malformed)?;
        let length = std::str::from_utf8(&data[..space]).ok().and_then(|text| text.parse::<usize>().ok());
        let length = length.filter(|length| (space + 2..=data.len()).contains(length)).ok_or_else(malformed)?;
        let record = data[space + 1..length].strip_suffix(b"\n").ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
        // Keys that are not UTF-8 are ignored.
        if let Ok(key) = std::str::from_utf8(&record[..equals]) {
            records.push((key, &record[equals + 1..]));
        }
        data = &data[length..];
    }
    Ok(records)
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the extended header of an entry is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed_by_length() {
        let check = |data: &[u8], expect: Option<&[(&str, &[u8])]>| {
            assert_eq!(parse(data).ok().as_deref(), expect, "{:?}", data.escape_ascii().to_string());
        };
        check(b"", Some(&[]));
        check(b"7 a=b\n\n7 c=\n=\n", Some(&[("a", b"b\n"), ("c", b"\n=")]));
        check(b"6 a=b\n8 c=\n=\n\n", Some(&[("a", b"b"), ("c", b"\n=\n")]));
        check(b"6 a=b", None);
        check(b"1 a=b\n", None);
        check(b"99999999999999999999 a=b\n", None);
        check(b"4 a\n", None);
    }
}
