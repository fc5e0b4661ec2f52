//! How much work a request is expected to be: the seats it takes, and for how long it keeps some after its answer.

use std::time::Duration;

/// A request takes at least one seat.
const SEATS_MIN: u32 = 1;
/// A write takes at most ten seats.
const SEATS_MAX: u32 = 10;
/// A list takes at most a hundred seats.
const LIST_SEATS_MAX: u32 = 100;
/// A list takes a seat for each hundred kilobytes that it holds in memory at once.
const BYTES_PER_SEAT: u64 = 100_000;
/// A list from the cache is streamed, and holds no more than this at once.
const CACHED_BYTES_MAX: u64 = 1_000_000;
/// What an object may weigh at most, which is assumed where nobody knows.
const OBJECT_BYTES_MAX: u64 = 1_500_000;
/// More objects than any server holds.
const MANY_OBJECTS: u64 = 1_000_000_000;
/// A write takes a seat for each ten watchers that must be told of it.
const WATCHERS_PER_SEAT: u32 = 10;
/// How long it takes to tell them.
const EVENT_DURATION: Duration = Duration::from_millis(5);

/// The seats that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// While it runs.
    pub initial_seats: u32,
    /// After it was answered, while its consequences are dealt with.
    pub final_seats: u32,
    /// How long that takes.
    pub additional_latency: Duration,
}

/// What is known of a request before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// An ordinary request: one seat.
    One,
    /// A list, or a watch that starts with a list.
    List(List),
    /// A write of which so many watchers will be told. A write that makes no event, such as a request for a service account
    /// token, is [`Estimate::One`].
    Write {
        /// The number of watchers.
        watchers: u32,
    },
}

/// What is known of a list before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// What is stored of its kind.
    pub stored: Stored,
    /// How many objects the client asked for at once.
    pub limit: Option<u64>,
    /// Where it is read from.
    pub source: Source,
    /// What the client asked to leave out.
    pub selection: Selection,
}

/// What is stored of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// So many objects of that size.
    Known {
        /// How many.
        objects: u64,
        /// What one weighs on average; zero if nobody measured.
        average_bytes: u64,
    },
    /// It was known and the count is too old.
    Stale,
    /// Nobody counts this kind, for example because another server serves it.
    Unknown,
}

/// Where a list is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The watch cache.
    Cache,
    /// The store.
    Store,
}

/// What a list leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Nothing.
    All,
    /// What labels or fields do not match.
    Selected,
    /// All but the one object of a name.
    One,
}

impl Estimate {
    /// The work at a level that gives one request at most `seats_max` seats.
    pub fn work(&self, seats_max: Option<u32>) -> Work {
        match self {
            Self::One => Work::seats(SEATS_MIN),
            Self::List(list) => Work::seats(list.seats(seats_max.unwrap_or(LIST_SEATS_MAX).min(LIST_SEATS_MAX))),
            Self::Write { watchers } => write(*watchers, seats_max.unwrap_or(SEATS_MAX).min(SEATS_MAX)),
        }
    }
}

impl Work {
    /// Work that takes so many seats and ends with its answer.
    pub const fn seats(seats: u32) -> Self {
        Self { initial_seats: seats, final_seats: 0, additional_latency: Duration::ZERO }
    }

    /// The most seats that it takes at a time, which are reserved for it all the time.
    pub const fn width(&self) -> u32 {
        if self.initial_seats > self.final_seats { self.initial_seats } else { self.final_seats }
    }
}

impl List {
    fn seats(&self, seats_max: u32) -> u32 {
        let (objects, average_bytes) = match self.stored {
            Stored::Unknown => return SEATS_MIN,
            Stored::Stale => (MANY_OBJECTS, OBJECT_BYTES_MAX),
            Stored::Known { objects, average_bytes: 0 } if objects > 0 => (objects, OBJECT_BYTES_MAX),
            Stored::Known { objects, average_bytes } => (objects, average_bytes),
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

/// Few watchers cost nothing; of many, the work is kept and stretched where it would take too many seats at once.
fn write(watchers: u32, seats_max: u32) -> Work {
    if watchers < WATCHERS_PER_SEAT {
        return Work::seats(SEATS_MIN);
    }
    let wanted = watchers.div_ceil(WATCHERS_PER_SEAT);
    let final_seats = wanted.min(seats_max.max(SEATS_MIN));
    Work { initial_seats: SEATS_MIN, final_seats, additional_latency: EVENT_DURATION * wanted / final_seats }
}

/// Where a list with these options is read from: only an exact or a continued one needs the store.
pub fn list_source(resource_version: &str, version_match: &str, limit: u64, continue_token: &str) -> Source {
    let exact = match version_match {
        "NotOlderThan" => false,
        // Without a match, a limit makes any version but the empty one and zero exact.
        "" => limit > 0 && !matches!(resource_version, "" | "0"),
        _ => true,
    };
    if exact || !continue_token.is_empty() { Source::Store } else { Source::Cache }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_seats_by_what_it_holds_in_memory() {
        let known = Stored::Known { objects: 1000, average_bytes: 10_000 };
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
        check(Stored::Unknown, None, Source::Store, Selection::All, 1);
        check(Stored::Stale, None, Source::Store, Selection::All, 100);
        check(Stored::Known { objects: 0, average_bytes: 0 }, None, Source::Store, Selection::All, 1);
        check(Stored::Known { objects: 2, average_bytes: 0 }, None, Source::Store, Selection::All, 30);
        let wide =
            Estimate::List(List { stored: known, limit: None, source: Source::Store, selection: Selection::All });
        assert_eq!(wide.work(Some(7)), Work::seats(7));
    }

    #[test]
    fn a_write_keeps_seats_while_many_watchers_are_told() {
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
