//! Span: a single key, a range, a prefix, or all keys from a key on.

use bytes::Bytes;

/// A set of keys: `[start, end)` in etcd's notation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub start: Bytes,
    pub end: End,
}

/// The end of a [`Span`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The span is the start key only.
    Single,
    /// The span ends before this key.
    Before(Bytes),
    Unbounded,
}

impl Span {
    /// Returns the span of one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { start: key.into(), end: End::Single }
    }

    /// Returns the span of all keys with a prefix.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let end = prefix_end(&start);
        Self { start, end }
    }

    /// Returns the span of all keys.
    pub fn all() -> Self {
        Self { start: Bytes::new(), end: End::Unbounded }
    }

    /// Converts etcd's pair: an empty `range_end` means one key, a zero byte means all keys from `key` on.
    pub fn from_wire(key: Bytes, range_end: Bytes) -> Self {
        let end = match &*range_end {
            [] => End::Single,
            [0] => End::Unbounded,
            _ => End::Before(range_end),
        };
        Self { start: key, end }
    }

    /// Returns the `range_end` for [`Span::from_wire`].
    pub fn wire_end(&self) -> Bytes {
        match &self.end {
            End::Single => Bytes::new(),
            End::Before(end) => end.clone(),
            End::Unbounded => Bytes::from_static(&[0]),
        }
    }

    /// Whether `key` is in the span.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && !self.is_past(key)
    }

    /// Whether `key` and all greater keys are after the span.
    pub fn is_past(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => key > &self.start[..],
            End::Before(end) => key >= &end[..],
            End::Unbounded => false,
        }
    }

    /// Whether the span contains all keys with its start as prefix.
    pub fn is_prefix(&self) -> bool {
        self.end != End::Single && self.end == prefix_end(&self.start)
    }
}

/// Returns the first key after all keys with the prefix: its last byte other than 0xff is incremented.
fn prefix_end(prefix: &[u8]) -> End {
    match prefix.iter().rposition(|byte| *byte != 0xff) {
        None => End::Unbounded,
        Some(at) => {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            End::Before(end.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &'static [u8], range_end: &'static [u8], inside: &[&str], outside: &[&str]) {
        let span = Span::from_wire(Bytes::from_static(key), Bytes::from_static(range_end));
        assert_eq!(span.wire_end(), range_end);
        for key in inside {
            assert!(span.contains(key.as_bytes()), "{key} is in {span:?}");
        }
        for key in outside {
            assert!(!span.contains(key.as_bytes()), "{key} is not in {span:?}");
        }
    }

    #[test]
    fn wire_pair_is_converted_to_a_span() {
        check(b"a", b"", &["a"], &["", "a0", "b"]);
        check(b"a", b"c", &["a", "a0", "b"], &["", "c", "d"]);
        check(b"b", b"\0", &["b", "c", "zzz"], &["a"]);
        check(b"\0", b"\0", &["a", "\0"], &[""]);
        check(b"c", b"a", &[], &["a", "b", "c"]);
    }

    #[test]
    fn prefix_ends_before_its_successor() {
        assert_eq!(Span::prefix("ab").wire_end(), "ac");
        assert_eq!(Span::prefix(&b"a\xff"[..]).wire_end(), "b");
        assert_eq!(Span::prefix(&b"\xff\xff"[..]).end, End::Unbounded);
        assert!(Span::prefix("ab").is_prefix());
        assert!(Span::prefix("").is_prefix());
        assert!(!Span::key("ab").is_prefix());
        assert!(!Span::from_wire("ab".into(), "ad".into()).is_prefix());
    }
}
