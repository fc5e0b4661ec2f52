//! Which keys a request means: one key, a range, a prefix, or everything from a key on.

use bytes::Bytes;

/// A set of keys: `[start, end)` in etcd's notation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first key.
    pub start: Bytes,
    /// Where the keys stop.
    pub end: End,
}

/// Where a [`Span`] stops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// After the start key: the span is that one key.
    Single,
    /// Before this key.
    Before(Bytes),
    /// Nowhere.
    Unbounded,
}

impl Span {
    /// One key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { start: key.into(), end: End::Single }
    }

    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let end = prefix_end(&start);
        Self { start, end }
    }

    /// Every key.
    pub fn all() -> Self {
        Self { start: Bytes::new(), end: End::Unbounded }
    }

    /// Reads the pair of the wire: no `range_end` is one key, a zero byte is "and all after it".
    pub fn from_wire(key: Bytes, range_end: Bytes) -> Self {
        let end = match &*range_end {
            [] => End::Single,
            [0] => End::Unbounded,
            _ => End::Before(range_end),
        };
        Self { start: key, end }
    }

    /// The `range_end` that [`Span::from_wire`] reads back.
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

    /// Whether `key` and everything greater lies after the span.
    pub fn is_past(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Single => key > &self.start[..],
            End::Before(end) => key >= &end[..],
            End::Unbounded => false,
        }
    }

    /// Whether the span is all keys with its start as prefix.
    pub fn is_prefix(&self) -> bool {
        self.end != End::Single && self.end == prefix_end(&self.start)
    }
}

/// The first key after all keys with the prefix: its last byte that can be, incremented.
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
    fn a_pair_of_the_wire_names_a_span() {
        check(b"a", b"", &["a"], &["", "a0", "b"]);
        check(b"a", b"c", &["a", "a0", "b"], &["", "c", "d"]);
        check(b"b", b"\0", &["b", "c", "zzz"], &["a"]);
        check(b"\0", b"\0", &["a", "\0"], &[""]);
        check(b"c", b"a", &[], &["a", "b", "c"]);
    }

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(Span::prefix("ab").wire_end(), "ac");
        assert_eq!(Span::prefix(&b"a\xff"[..]).wire_end(), "b");
        assert_eq!(Span::prefix(&b"\xff\xff"[..]).end, End::Unbounded);
        assert!(Span::prefix("ab").is_prefix());
        assert!(Span::prefix("").is_prefix());
        assert!(!Span::key("ab").is_prefix());
        assert!(!Span::from_wire("ab".into(), "ad".into()).is_prefix());
    }
}
