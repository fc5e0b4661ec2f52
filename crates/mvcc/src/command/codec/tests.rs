//! Commands survive a round trip; other input is rejected.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::logged_command;

proptest! {
    #[test]
    fn command_survives_a_round_trip(command in logged_command()) {
        prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
    }

    #[test]
    fn truncated_command_is_rejected(command in logged_command(), at in any::<prop::sample::Index>()) {
        let bytes = command.encode();
        let cut = bytes.slice(..at.index(bytes.len()));
        prop_assert!(Command::decode(&cut).is_err());
    }

    #[test]
    fn random_input_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Command::decode(&[&[FORMAT], &noise[..]].concat().into());
    }
}

#[test]
fn keys_and_values_are_slices_of_the_input() {
    let put = Put { key: "key".into(), value: Some("value".into()), lease: Some(0), want_previous: false };
    let bytes = Command::Put(put).encode();
    let Ok(Command::Put(put)) = Command::decode(&bytes) else { panic!("it is a put") };
    let input = bytes.as_ptr_range();
    assert!(input.contains(&put.key.as_ptr()));
    assert!(input.contains(&put.value.expect("the entry has a value").as_ptr()));
}

#[test]
fn deep_nesting_and_other_formats_are_rejected() {
    let nested =
        (0..DEPTH_MAX).fold(Txn::default(), |txn, _| Txn { success: vec![Operation::Txn(txn)], ..Txn::default() });
    assert_eq!(Command::decode(&Command::Txn(nested).encode()), Err(CorruptCommand::Depth));
    assert_eq!(Command::decode(&Bytes::from_static(&[9, 5, 2])), Err(CorruptCommand::Format(9)));
    assert_eq!(Command::decode(&Bytes::from_static(&[FORMAT, 5, 2, 0])), Err(CorruptCommand::Trailing(1)));
    let twice = [FORMAT, AUTHORIZED, 1, AUTHORIZED, 1, 5, 2];
    let unknown = CorruptCommand::Unknown { field: "command", value: AUTHORIZED };
    assert_eq!(Command::decode(&Bytes::copy_from_slice(&twice)), Err(unknown), "a command has one caller");
    let unknown = CorruptCommand::Unknown { field: "command", value: 77 };
    assert_eq!(Command::decode(&Bytes::from_static(&[FORMAT, 77])), Err(unknown));
}
