//! Work estimation: the seats of a request, and the time it keeps seats after its response.

use std::time::Duration;

/// Minimum seats of a request.
const SEATS_MIN: u32 = 1;
/// Maximum seats of a write.
const SEATS_MAX: u32 = 10;
/// Maximum seats of a list.
const LIST_SEATS_MAX: u32 = 100;
/// Bytes held in memory at a time per seat of a list.
const BYTES_PER_SEAT: u64 = 100_000;
/// Maximum bytes that a list from the cache holds at a time, because it is streamed.
const CACHED_BYTES_MAX: u64 = 1_000_000;
/// Maximum size of an object, assumed if the size is unknown.
const OBJECT_BYTES_MAX: u64 = 1_500_000;
/// More objects than any server holds.
const MANY_OBJECTS: u64 = 1_000_000_000;
/// Watchers of an event per seat of a write.
const WATCHERS_PER_SEAT: u32 = 10;
/// Estimated time to send an event to the watchers of one seat.
const EVENT_DURATION: Duration = Duration::from_millis(5);

/// The seats of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Seats while the request executes.
    pub initial_seats: u32,
    /// Seats after the response, while watch events are sent.
    pub final_seats: u32,
    /// The duration of the final seats.
    pub additional_latency: Duration,
}

/// The known properties of a request before it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// An ordinary request with one seat.
    One,
    /// A list, or a watch that starts with a list.
    List(List),
    /// A write that causes watch events. A write without events, such as a TokenRequest, is [`Estimate::One`].
    Write {
        /// The number of watchers.
        watchers: u32,
    },
}

/// The known properties of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// The stored objects of its kind.
    pub stored: StoredObjects,
    /// The requested page size.
    pub limit: Option<u64>,
    pub source: Source,
    pub selection: Selection,
}

/// The stored objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredObjects {
    /// Number and size are known.
    Known {
        objects: u64,
        /// The average size; zero if it was not measured.
        average_bytes: u64,
    },
    /// The count is outdated.
    Stale,
    /// The kind is not counted, for example because it is served by an aggregated server.
    Unknown,
}

/// The source of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Cache,
    Store,
}

/// The selection of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    All,
    /// Objects that match a label or field selector.
    Selected,
    /// One object by name.
    One,
}

impl Estimate {
    /// Returns the work at a level with at most `seats_max` seats per request.
    pub fn work(&self, seats_max: Option<u32>) -> Work {
        match self {
            Self::One => Work::seats(SEATS_MIN),
            Self::List(list) => Work::seats(list.seats(seats_max.unwrap_or(LIST_SEATS_MAX).min(LIST_SEATS_MAX))),
            Self::Write { watchers } => write(*watchers, seats_max.unwrap_or(SEATS_MAX).min(SEATS_MAX)),
        }
    }
}

impl Work {
    /// Returns work with these seats and without additional latency.
    pub const fn seats(seats: u32) -> Self {
        Self { initial_seats: seats, final_seats: 0, additional_latency: Duration::ZERO }
    }

    /// Returns the maximum of initial and final seats, which is reserved for the entire time.
    pub const fn width(&self) -> u32 {
        if self.initial_seats > self.final_seats { self.initial_seats } else { self.final_seats }
    }
}

impl List {
    fn seats(&self, seats_max: u32) -> u32 {
        let (objects, average_bytes) = match self.stored {
            StoredObjects::Unknown => return SEATS_MIN,
            StoredObjects::Stale => (MANY_OBJECTS, OBJECT_BYTES_MAX),
            StoredObjects::Known { objects, average_bytes: 0 } if objects > 0 => (objects, OBJECT_BYTES_MAX),
            StoredObjects::Known { objects, average_bytes } => (objects, average_bytes),
        };
        let limited = self.limit.filter(|limit| *limit > 0).map_or(objects, |limit| limit.min(objects));
        let loaded = match (self.selection, self.source) {
            (Selection::One, _) => 1,
            (Selection::Selected, Source::Store) => limited.max(objects / 2),
            (Selection::All | Selection::Selected, _) => limited,
        };
        let bytes = loaded.saturating_mul(average_bytes);
        let at_once = if self.source == Source::Cache { bytes.min(CACHED_BYTES_MAX) } else { bytes };
        let seats = u32::try_from(at_once.div_ceil(BYTES_PER_SEAT)).unwrap_or(u32::MAX);
        seats.max(SEATS_MIN).min(seats_max.max(SEATS_MIN))
    }
}

/// Returns the work of a write. With few watchers it is one seat. If the seats are limited, the latency is extended so
/// that the total work is kept.
fn write(watchers: u32, seats_max: u32) -> Work {
    if watchers < WATCHERS_PER_SEAT {
        return Work::seats(SEATS_MIN);
    }
    let seats = watchers.div_ceil(WATCHERS_PER_SEAT);
    let final_seats = seats.min(seats_max.max(SEATS_MIN));
    Work { initial_seats: SEATS_MIN, final_seats, additional_latency: EVENT_DURATION * seats / final_seats }
}

/// Returns the source of a list with these options: only exact and continued lists need the store.
pub fn list_source(resource_version: &str, version_match: &str, limit: u64, continue_token: &str) -> Source {
    let exact = match version_match {
        "NotOlderThan" => false,
        // Without resourceVersionMatch, a limit makes every version except "" and "0" exact.
        "" => limit > 0 && !matches!(resource_version, "" | "0"),
        _ => true,
    };
    if exact || !continue_token.is_empty() { Source::Store } else { Source::Cache }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_seats_depend_on_the_bytes_in_memory() {
        let known = StoredObjects::Known { objects: 1000, average_bytes: 10_000 };
        let check = |stored, limit, source, selection, expect: u32| {
            let list = Estimate::List(List { stored, limit, source, selection });
            assert_eq!(list.work(None), Work::seats(expect), "{list:?}");
        };
        check(known, None, Source::Cache, Selection::All, 10);
        check(known, None, Source::Store, Selection::All, 100);
        check(known, Some(50), Source::Store, Selection::All, 5);
        check(known, Some(50), Source::Store, Selection::Selected, 50);
        check(known, Some(50), Source::Cache, Selection::Selected, 5);
        check(known, None, Source::Store, Selection::One, 1);
        check(StoredObjects::Unknown, None, Source::Store, Selection::All, 1);
        check(StoredObjects::Stale, None, Source::Store, Selection::All, 100);
        check(StoredObjects::Known { objects: 0, average_bytes: 0 }, None, Source::Store, Selection::All, 1);
        check(StoredObjects::Known { objects: 2, average_bytes: 0 }, None, Source::Store, Selection::All, 30);
        let wide =
            Estimate::List(List { stored: known, limit: None, source: Source::Store, selection: Selection::All });
        assert_eq!(wide.work(Some(7)), Work::seats(7));
    }

    #[test]
    fn write_with_many_watchers_keeps_seats_after_the_response() {
        let check = |watchers, seats_max, final_seats, millis: u64| {
            let work = Estimate::Write { watchers }.work(seats_max);
            let latency = Duration::from_millis(millis);
            assert_eq!(work, Work { initial_seats: 1, final_seats, additional_latency: latency }, "{watchers}");
        };
        check(9, None, 0, 0);
        check(10, None, 1, 5);
        check(11, None, 2, 5);
        check(100, None, 10, 5);
        check(1000, None, 10, 50);
        check(100, Some(2), 2, 25);
    }

    #[test]
    fn only_exact_and_continued_lists_need_the_store() {
        assert_eq!(list_source("", "", 0, ""), Source::Cache);
        assert_eq!(list_source("", "", 500, ""), Source::Cache);
        assert_eq!(list_source("0", "", 500, ""), Source::Cache);
        assert_eq!(list_source("7", "", 500, ""), Source::Store);
        assert_eq!(list_source("7", "NotOlderThan", 500, ""), Source::Cache);
        assert_eq!(list_source("7", "Exact", 0, ""), Source::Store);
        assert_eq!(list_source("", "", 500, "token"), Source::Store);
    }
}
