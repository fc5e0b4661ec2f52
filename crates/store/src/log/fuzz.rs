//! Access to log records for `crate::fuzz`.

use bytes::{Bytes, BytesMut};

use super::record::{self, Record, Start};
use super::{Contents, recover, segment_name};
use crate::disk::Disk;
use crate::value_file::ValueFile;

const SEQUENCE: u32 = 1;
/// Kind, flags and group of a record, one byte each, and two bytes for the payload length.
const HEAD: usize = 5;

pub(crate) fn first_segment() -> String {
    segment_name(SEQUENCE)
}

/// Asserts that readable records survive a round trip.
pub(crate) fn records(input: &[u8]) {
    let _ = record::read(input, SEQUENCE);
    let [kind, payload @ ..] = input else { return };
    if let Ok(found) = record::decode(*kind, record::VERSION, Bytes::copy_from_slice(payload)) {
        let mut staged = BytesMut::new();
        record::stage(&mut staged, &found);
        record::finish_group(&mut staged, SEQUENCE, 3);
        let again = record::read(&staged, SEQUENCE).expect("a written log can be read");
        assert_eq!((again.record, again.group, again.is_last), (found, 3, true));
    }
}

/// Builds a segment with the kinds and payloads from the input and with valid checksums.
pub(crate) fn segment_of(mut input: &[u8], identity: (u64, u64)) -> Vec<u8> {
    let start = Start { identity, boot: 1, hard_state: consensus::HardState::default(), previous_end: 0 };
    let mut segment = BytesMut::new();
    record::stage(&mut segment, &Record::Start(start));
    record::finish_group(&mut segment, SEQUENCE, 0);
    while let Some((&[kind, flags, group, low, high], rest)) = input.split_first_chunk::<HEAD>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        // Also tests the largest group number, which no log reaches.
        let group = if group == u8::MAX { u64::MAX } else { u64::from(group) };
        segment.extend_from_slice(&record::raw(kind, flags, group, SEQUENCE, payload));
        input = rest;
    }
    segment.to_vec()
}

pub(crate) fn contents<D: Disk>(disk: &D, identity: (u64, u64), value_file: &ValueFile) -> Option<Contents> {
    recover::recover(disk, identity, value_file).ok().map(|recovered| recovered.contents)
}

#[cfg(test)]
pub(crate) fn seeds(payloads: &[consensus::Payload], identity: (u64, u64)) -> Vec<(&'static str, Vec<u8>)> {
    use consensus::{Entry, HardState};

    let mut whole = segment_of(&[], identity);
    let mut parts = Vec::new();
    for (index, payload) in (2..).zip(payloads) {
        let mut staged = BytesMut::new();
        record::stage(&mut staged, &Record::Entry(Entry { index, term: 1, payload: payload.clone() }));
        let length = usize::try_from(u32::from_le_bytes(*staged[4..].first_chunk().unwrap())).unwrap();
        let content = staged[record::HEADER_BYTES..record::HEADER_BYTES + length].to_vec();
        record::finish_group(&mut staged, SEQUENCE, index - 1);
        whole.extend_from_slice(&staged);
        parts.push(
            [&[2, 1, u8::try_from(index - 1).unwrap()], &u16::try_from(length).unwrap().to_le_bytes()[..], &content]
                .concat(),
        );
    }
    let mut state = BytesMut::new();
    record::stage(&mut state, &Record::HardState(HardState { term: 3, vote: 1, commit: 2 }));
    let torn = whole[..whole.len() - 5].to_vec();
    let gap = [parts[0].clone(), parts[3].clone()].concat();
    let mut last_group = parts[0].clone();
    last_group[2] = u8::MAX;
    vec![
        ("segment", whole),
        ("torn", torn),
        ("records", parts.concat()),
        ("gap", gap),
        ("last_group", last_group),
        ("hard_state", [&[3], &state[record::HEADER_BYTES..]].concat()),
        ("entry", [&[2], &parts[1][HEAD..]].concat()),
        ("reset", [&[4], &9_u64.to_le_bytes()[..]].concat()),
    ]
}
