//! Flow control state machine: arrival, execution, timeout and completion of requests.

mod adjust;
mod reconfigure;

use std::sync::Arc;
use std::time::Duration;

use apimachinery::Str;
use aws_lc_rs::digest;

pub use reconfigure::{Condition, InvalidLevel, ReconfigureResult};

use crate::demand::Demand;
use crate::dropped::DroppedRequests;
use crate::flow_schema::FlowSchema;
use crate::level::{CATCH_ALL, Discipline, LevelSpec, Limits};
use crate::metrics::{LevelSeries, Reason, Series, Snapshot};
use crate::queues::{ArrivalOutcome, Phase, Queues, Tag};
use crate::{Digest, Estimate, Moment};

/// Maximum wait of a request.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Wait of a request without a deadline, such as a watch: a quarter of the default request timeout.
const WAIT_DEFAULT: Duration = Duration::from_secs(15);

/// API priority and fairness of one server.
#[derive(Debug)]
pub struct FlowControl {
    total: u32,
    flows: Vec<Flow>,
    /// Levels by index. The index of a removed level is reused.
    levels: Vec<Option<Level>>,
    series: Vec<Series>,
    serial: u64,
    adjusted_at: Moment,
    fair_fraction: f64,
}

/// A queued or executing request. The caller must pass it to [`FlowControl::finish`] when the request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    serial: u64,
    level: u32,
    slot: u32,
}

/// The flow schema and priority level of a request. Clients get only the UIDs, because the names reveal the priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classification {
    pub flow_schema: Str,
    pub flow_schema_uid: Str,
    pub priority_level: Str,
    pub priority_level_uid: Str,
}

/// The result of an arrival.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub classification: Arc<Classification>,
    pub outcome: Outcome,
    /// Other requests that may now execute; rarely any.
    pub admitted: Vec<Ticket>,
}

/// The outcome of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request executes.
    Admitted(Ticket),
    /// The request waits until a later step admits its ticket, or until it leaves the queue.
    Queued(Ticket),
    /// The request is rejected.
    Rejected {
        reason: Reason,
        /// Retry-After for the client.
        retry_after_seconds: u32,
    },
}

/// The outcome of leaving a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DequeueResult {
    /// The request left the queue.
    Removed {
        /// Retry-After for the client.
        retry_after_seconds: u32,
        /// The requests that may now execute.
        admitted: Vec<Ticket>,
    },
    /// The request executes already, and its holder must finish it.
    Running,
    /// The request no longer exists.
    NotFound,
}

#[derive(Debug)]
struct Flow {
    schema: FlowSchema,
    level: usize,
    series: u32,
    classification: Arc<Classification>,
}

#[derive(Debug)]
struct Level {
    spec: LevelSpec,
    limits: Limits,
    current: u32,
    seats_max: Option<u32>,
    queues: Queues,
    demand: Demand,
    target: f64,
    dropped: DroppedRequests,
    /// No flow schema refers to the level any more. It is removed when it is idle.
    quiescing: bool,
}

impl Classification {
    /// Returns the response headers.
    pub fn headers(&self) -> [(&'static str, &str); 2] {
        [
            ("X-Kubernetes-PF-FlowSchema-UID", &self.flow_schema_uid),
            ("X-Kubernetes-PF-PriorityLevel-UID", &self.priority_level_uid),
        ]
    }
}

/// Returns the time until which a request may wait: a quarter of the time until its deadline, at most a minute.
pub fn wait_until(arrived: Moment, deadline: Option<Moment>) -> Moment {
    let wait = deadline.map_or(WAIT_DEFAULT, |deadline| deadline.since(arrived) / 4);
    arrived.plus(wait.min(WAIT_MAX))
}

/// Returns the flow hash for shuffle sharding: the first eight bytes of the SHA-256 of schema name and flow
/// distinguisher.
pub fn flow_hash(flow_schema: &str, distinguisher: &str) -> u64 {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(flow_schema.as_bytes());
    hash.update(&[0]);
    hash.update(distinguisher.as_bytes());
    let sum = hash.finish();
    u64::from_le_bytes(sum.as_ref()[..8].try_into().expect("a SHA-256 has 32 bytes"))
}

impl FlowControl {
    /// Returns flow control for `total` seats with the mandatory configuration only.
    pub fn new(total: u32, now: Moment) -> Self {
        let mut control = Self {
            total,
            flows: Vec::new(),
            levels: Vec::new(),
            series: Vec::new(),
            serial: 0,
            adjusted_at: now,
            fair_fraction: 0.0,
        };
        control.reconfigure(&[], &[], now);
        control
    }

    /// Classifies a request: the first matching schema by precedence and name.
    pub fn classify(&self, digest: &Digest<'_>) -> &Classification {
        &self.flow(digest).classification
    }

    /// Handles the arrival of a request.
    pub fn arrive(&mut self, digest: &Digest<'_>, estimate: &Estimate, now: Moment) -> Arrival {
        self.serial += 1;
        let flow = self.flow(digest);
        let (id, series, classification) = (flow.level, flow.series, Arc::clone(&flow.classification));
        let level = self.levels[id].as_ref().expect("every flow refers to an existing level");
        let hash = match level.spec.discipline {
            Discipline::Queue(queuing) if queuing.queues > 1 => {
                flow_hash(&flow.schema.name, flow.schema.distinguish(digest))
            }
            _ => 0,
        };
        let level = self.levels[id].as_mut().expect("every flow refers to an existing level");
        let work = estimate.work(level.seats_max);
        let counted = &mut self.series[series as usize];
        counted.estimated_seats.observe(f64::from(work.width()));
        let ticket = |slot| Ticket { serial: self.serial, level: id as u32, slot };
        let rejected = |reason, counted: &mut Series, dropped: &mut DroppedRequests| {
            counted.rejects(reason, Duration::ZERO);
            Outcome::Rejected { reason, retry_after_seconds: dropped.record(now.whole_seconds()) }
        };
        let tag = Tag { serial: self.serial, series, is_mutating: digest.is_mutating() };
        let (start, others) = level.queues.arrive(tag, work, hash, now);
        let outcome = match start {
            ArrivalOutcome::Executing(slot) => {
                counted.starts(Duration::ZERO);
                Outcome::Admitted(ticket(slot))
            }
            ArrivalOutcome::Queued(slot, length) => {
                counted.queue_length.observe(f64::from(length));
                Outcome::Queued(ticket(slot))
            }
            ArrivalOutcome::NoSeat => rejected(Reason::ConcurrencyLimit, counted, &mut level.dropped),
            ArrivalOutcome::QueueFull => rejected(Reason::QueueFull, counted, &mut level.dropped),
        };
        Arrival { classification, outcome, admitted: self.note_started(id as u32, &others, now) }
    }

    /// Handles the completion of a request and returns the requests that may now execute. A ticket that is already
    /// finished has no effect.
    pub fn finish(&mut self, ticket: Ticket, now: Moment) -> Vec<Ticket> {
        let Some(level) = self.level_mut(ticket) else { return Vec::new() };
        let Some(record) = level.queues.record(ticket.slot, ticket.serial).copied() else { return Vec::new() };
        let started = level.queues.finish(ticket.slot, ticket.serial, now);
        if record.phase == Phase::Running {
            self.series[record.tag.series as usize].execution.observe(now.since(record.started).as_secs_f64());
        }
        let mut admitted = self.note_started(ticket.level, &started, now);
        self.reap(ticket.level, now, &mut admitted);
        admitted
    }

    /// Handles the queue wait timeout of a request.
    pub fn time_out(&mut self, ticket: Ticket, now: Moment) -> DequeueResult {
        self.leave(ticket, Reason::TimeOut, now)
    }

    /// Handles the disconnection of a queued request's client.
    pub fn cancel(&mut self, ticket: Ticket, now: Moment) -> DequeueResult {
        self.leave(ticket, Reason::Cancelled, now)
    }

    /// Returns the time at which [`FlowControl::wake`] must be called.
    pub fn wake_at(&self) -> Moment {
        let lingering = self.levels.iter().flatten().filter_map(|level| level.queues.wake_at());
        lingering.fold(self.adjusted_at.plus(adjust::PERIOD), Moment::min)
    }

    /// Releases due seats, and reallocates seats after each period. Returns the requests that may now execute.
    pub fn wake(&mut self, now: Moment) -> Vec<Ticket> {
        let mut admitted = Vec::new();
        for id in 0..self.levels.len() {
            let Some(level) = self.levels[id].as_mut() else { continue };
            let started = level.queues.wake(now);
            admitted.extend(self.note_started(id as u32, &started, now));
            self.reap(id as u32, now, &mut admitted);
        }
        if now.since(self.adjusted_at) >= adjust::PERIOD {
            admitted.extend(self.adjust(now));
        }
        admitted
    }

    /// Returns all metrics.
    pub fn snapshot(&self) -> Snapshot {
        let levels = self.levels.iter().flatten().map(Level::series).collect();
        let mut snapshot = Snapshot { levels, series: self.series.clone(), ..Snapshot::default() };
        snapshot.seat_fair_frac = self.fair_fraction;
        for record in self.levels.iter().flatten().flat_map(|level| level.queues.records()) {
            snapshot.holds(record);
        }
        snapshot
    }

    fn flow(&self, digest: &Digest<'_>) -> &Flow {
        let matching = self.flows.iter().find(|flow| flow.schema.matches(digest));
        // A user without groups does not match even the catch-all schema, but is classified there.
        let rest = || self.flows.iter().find(|flow| flow.schema.name == CATCH_ALL);
        matching.or_else(rest).expect("the mandatory flow schemas always exist")
    }

    fn leave(&mut self, ticket: Ticket, reason: Reason, now: Moment) -> DequeueResult {
        let Some(level) = self.level_mut(ticket) else { return DequeueResult::NotFound };
        let Some(record) = level.queues.record(ticket.slot, ticket.serial).copied() else {
            return DequeueResult::NotFound;
        };
        let Some(started) = level.queues.leave(ticket.slot, ticket.serial, now) else { return DequeueResult::Running };
        let retry_after_seconds = level.dropped.record(now.whole_seconds());
        self.series[record.tag.series as usize].rejects(reason, now.since(record.arrived));
        let mut admitted = self.note_started(ticket.level, &started, now);
        self.reap(ticket.level, now, &mut admitted);
        DequeueResult::Removed { retry_after_seconds, admitted }
    }

    /// Counts requests that a level admitted and returns their tickets.
    fn note_started(&mut self, id: u32, slots: &[u32], now: Moment) -> Vec<Ticket> {
        let Some(level) = self.levels[id as usize].as_ref() else { return Vec::new() };
        let mut tickets = Vec::with_capacity(slots.len());
        for slot in slots {
            let record = level.queues.at(*slot);
            self.series[record.tag.series as usize].starts(now.since(record.arrived));
            tickets.push(Ticket { serial: record.tag.serial, level: id, slot: *slot });
        }
        tickets
    }

    fn level_mut(&mut self, ticket: Ticket) -> Option<&mut Level> {
        self.levels.get_mut(ticket.level as usize)?.as_mut()
    }
}

impl Level {
    fn series(&self) -> LevelSeries {
        LevelSeries {
            priority_level: self.spec.name.clone(),
            nominal_limit_seats: self.limits.nominal,
            lower_limit_seats: self.limits.lower,
            upper_limit_seats: self.limits.upper,
            current_limit_seats: self.current,
            demand_seats_high_watermark: self.demand.high_watermark,
            demand_seats_average: self.demand.average,
            demand_seats_stdev: self.demand.deviation,
            demand_seats_smoothed: self.demand.smoothed,
            target_seats: self.target,
            current_r: self.queues.progress_seat_seconds(),
            request_dispatch_no_accommodation_total: self.queues.counts().unaccommodated,
        }
    }
}

#[cfg(test)]
mod tests;
