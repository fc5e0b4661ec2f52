//! Truncation of audit events and batches (`--audit-*-truncate-*`).

use crate::Event;
use crate::policy::Level;

/// The annotation of a truncated event.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// Size limits in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub event_bytes_max: usize,
    pub batch_bytes_max: usize,
}

/// The result of truncation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cut {
    /// Batches within the limit.
    pub batches: Vec<Vec<Event>>,
    /// Lost events that are too large even without their objects (upstream: `event is too large even after
    /// truncating`).
    pub lost: Vec<Event>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { event_bytes_max: 100 * 1024, batch_bytes_max: 10 * 1024 * 1024 }
    }
}

/// Removes the objects of events that are too large, and splits batches that are too large.
pub fn cut(events: Vec<Event>, limits: Limits) -> Cut {
    let mut cut = Cut::default();
    let (mut batch, mut batch_bytes) = (Vec::new(), 0);
    for mut event in events {
        let mut bytes = event.size();
        if bytes > limits.event_bytes_max && event.level >= Level::Request {
            (event.request_object, event.response_object) = (None, None);
            event.annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
            bytes = event.size();
        }
        if bytes > limits.event_bytes_max {
            cut.lost.push(event);
            continue;
        }
        if !batch.is_empty() && batch_bytes + bytes > limits.batch_bytes_max {
            cut.batches.push(std::mem::take(&mut batch));
            batch_bytes = 0;
        }
        batch_bytes += bytes;
        batch.push(event);
    }
    if !batch.is_empty() {
        cut.batches.push(batch);
    }
    cut
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::trail::tests::event;

    #[test]
    fn large_event_loses_its_objects_and_is_annotated() {
        let mut large = event(Level::RequestResponse);
        large.request_object = Some(value!({"data": ("x".repeat(2000))}));
        let limits = Limits { event_bytes_max: 1000, batch_bytes_max: 2000 };
        let result = cut(vec![large], limits);
        let [batch] = result.batches.as_slice() else { panic!("one batch") };
        assert_eq!(batch[0].request_object, None);
        assert_eq!(batch[0].annotations[TRUNCATED], "true");
        assert_eq!(result.lost, []);
    }

    #[test]
    fn event_that_stays_too_large_is_lost() {
        let mut large = event(Level::Metadata);
        large.request_uri = "x".repeat(2000);
        let limits = Limits { event_bytes_max: 1000, batch_bytes_max: 2000 };
        let result = cut(vec![event(Level::Metadata), large.clone()], limits);
        assert_eq!((result.batches, result.lost), (vec![vec![event(Level::Metadata)]], vec![large]));
    }

    #[test]
    fn batch_that_is_too_large_is_split() {
        let one = event(Level::Metadata);
        let limits = Limits { event_bytes_max: one.size(), batch_bytes_max: 2 * one.size() };
        let sizes: Vec<usize> = cut(vec![one; 5], limits).batches.iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2, 1]);
    }
}
