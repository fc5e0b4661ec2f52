//! API priority and fairness: connects [`flowcontrol`] to the clock, to waiting requests and to their seats.

mod exposition;
mod watchers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use apimachinery::Value;
use auth::User;
use flowcontrol::control::{ReconfigureResult, wait_until};
use flowcontrol::inflight::{self, InFlight, Pass};
use flowcontrol::metrics::Snapshot;
use flowcontrol::work::{List, Selection, Source, StoredObjects};
use flowcontrol::{Classification, DequeueResult, Digest, Estimate, FlowControl, Moment, Outcome, Target, Ticket};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub use watchers::{Watchers, Watching};

use crate::request_info::RequestInfo;
use crate::storage::Storage;

/// Concurrency limits of the server.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// `--enable-priority-and-fairness`
    pub enabled: bool,
    /// `--max-requests-inflight`
    pub read_only_max: u32,
    /// `--max-mutating-requests-inflight`
    pub mutating_max: u32,
}

/// Admits requests to seats by priority and fairness, or by max-in-flight limits.
pub struct Fairness {
    origin: Instant,
    inner: Mutex<Inner>,
    /// Notified when the next deadline is earlier than the one the timer task waits for.
    sooner: Notify,
    /// Counts the watches that a write has to notify.
    pub watchers: Watchers,
}

struct Inner {
    control: Control,
    /// The wake-up channels of queued requests.
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
    /// The time at which the timer task wakes.
    wakes_at: Moment,
}

enum Control {
    PriorityAndFairness(Box<FlowControl>),
    MaxInFlight(InFlight),
}

/// The result of an admission.
pub struct Admission {
    /// The FlowSchema and priority level, if priority and fairness is enabled.
    pub classification: Option<Arc<Classification>>,
    pub seat: Result<Seat, TooManyRequests>,
}

/// The request was rejected with 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRequests {
    /// Value of the Retry-After header.
    pub retry_after_seconds: u32,
}

/// Permission to execute a request; released on drop.
pub struct Seat {
    fairness: Arc<Fairness>,
    reservation: Option<SeatGrant>,
}

enum SeatGrant {
    Ticket(Ticket),
    Pass(Pass),
}

/// A position in a queue. Dropping it, as when the client disconnects, removes the request from the queue.
struct QueuePosition<'a> {
    fairness: &'a Arc<Fairness>,
    ticket: Option<Ticket>,
}

impl Default for Config {
    fn default() -> Self {
        Self { enabled: true, read_only_max: 400, mutating_max: 200 }
    }
}

impl Fairness {
    pub fn new(config: Config) -> Arc<Self> {
        let seats = config.read_only_max.saturating_add(config.mutating_max).max(1);
        let control = if config.enabled {
            Control::PriorityAndFairness(Box::new(FlowControl::new(seats, Moment::default())))
        } else {
            Control::MaxInFlight(InFlight::new(config.read_only_max, config.mutating_max))
        };
        let inner = Inner { control, waiting: BTreeMap::new(), wakes_at: Moment::default() };
        Arc::new(Self {
            origin: Instant::now(),
            inner: Mutex::new(inner),
            sooner: Notify::new(),
            watchers: Watchers::default(),
        })
    }

    /// Waits for a seat for the request, or rejects the request.
    pub async fn admit(
        self: &Arc<Self>,
        storage: &Storage,
        request: &RequestInfo,
        user: &User,
        deadline: Option<Instant>,
    ) -> Admission {
        if let Control::MaxInFlight(limits) = &mut self.lock().control {
            return self.plain(limits, request, user);
        }
        self.seat_for(&digest(request, user), &self.estimate(storage, request), deadline).await
    }

    async fn seat_for(
        self: &Arc<Self>,
        digest: &Digest<'_>,
        estimate: &Estimate,
        deadline: Option<Instant>,
    ) -> Admission {
        let now = self.now();
        let (classification, outcome, wakeup) = {
            let mut inner = self.lock();
            let Control::PriorityAndFairness(control) = &mut inner.control else {
                unreachable!("the control never changes")
            };
            let arrival = control.arrive(digest, estimate, now);
            inner.ring(&arrival.admitted);
            let wakeup = match arrival.outcome {
                Outcome::Queued(ticket) => {
                    let (wakeup, receiver) = oneshot::channel();
                    inner.waiting.insert(ticket, wakeup);
                    Some(receiver)
                }
                Outcome::Admitted(_) | Outcome::Rejected { .. } => None,
            };
            (arrival.classification, arrival.outcome, wakeup)
        };
        let seat = match (outcome, wakeup) {
            (Outcome::Queued(ticket), Some(wakeup)) => {
                let deadline = deadline.map(|deadline| self.moment(deadline));
                self.wait(ticket, wakeup, wait_until(now, deadline)).await
            }
            (Outcome::Admitted(ticket) | Outcome::Queued(ticket), _) => Ok(self.seat(SeatGrant::Ticket(ticket))),
            (Outcome::Rejected { retry_after_seconds, .. }, _) => Err(TooManyRequests { retry_after_seconds }),
        };
        Admission { classification: Some(classification), seat }
    }

    /// Applies new FlowSchemas and PriorityLevelConfigurations.
    pub fn reconfigure(&self, schemas: &[Value], levels: &[Value]) -> Option<ReconfigureResult> {
        let now = self.now();
        let mut inner = self.lock();
        let Control::PriorityAndFairness(control) = &mut inner.control else { return None };
        let result = control.reconfigure(schemas, levels, now);
        inner.ring(&result.admitted);
        Some(result)
    }

    /// Returns the values for metrics. Without priority and fairness only the requests in flight are known.
    pub fn snapshot(&self) -> Snapshot {
        match &self.lock().control {
            Control::PriorityAndFairness(control) => control.snapshot(),
            Control::MaxInFlight(limits) => {
                let (read_only, mutating) = limits.current();
                let mut snapshot = Snapshot::default();
                (snapshot.executing.read_only, snapshot.executing.mutating) = (read_only, mutating);
                snapshot
            }
        }
    }

    /// Runs the timer of the queues until the process exits.
    pub async fn run(self: Arc<Self>) {
        loop {
            let wakes_at = {
                let mut inner = self.lock();
                let Control::PriorityAndFairness(control) = &inner.control else { return };
                inner.wakes_at = control.wake_at();
                inner.wakes_at
            };
            let at = self.origin + Duration::from_nanos(wakes_at.nanos());
            tokio::select! {
                () = tokio::time::sleep_until(at) => {
                    let now = self.now();
                    let mut inner = self.lock();
                    if let Control::PriorityAndFairness(control) = &mut inner.control {
                        let admitted = control.wake(now);
                        inner.ring(&admitted);
                    }
                }
                () = self.sooner.notified() => {}
            }
        }
    }

    fn plain(self: &Arc<Self>, limits: &mut InFlight, request: &RequestInfo, user: &User) -> Admission {
        let seat = if request.info.is_long_running() {
            Ok(Seat { fairness: self.clone(), reservation: None })
        } else {
            let pass = limits.arrive(request.info.verb, &user.groups);
            let rejected = TooManyRequests { retry_after_seconds: inflight::RETRY_AFTER_SECONDS };
            pass.map(|pass| self.seat(SeatGrant::Pass(pass))).ok_or(rejected)
        };
        Admission { classification: None, seat }
    }

    async fn wait(
        self: &Arc<Self>,
        ticket: Ticket,
        wakeup: oneshot::Receiver<()>,
        until: Moment,
    ) -> Result<Seat, TooManyRequests> {
        let mut waiter = QueuePosition { fairness: self, ticket: Some(ticket) };
        let until = self.origin + Duration::from_nanos(until.nanos());
        let called = tokio::time::timeout_at(until, wakeup).await;
        waiter.ticket = None;
        if matches!(called, Ok(Ok(()))) {
            return Ok(self.seat(SeatGrant::Ticket(ticket)));
        }
        let now = self.now();
        let mut inner = self.lock();
        inner.waiting.remove(&ticket);
        let Control::PriorityAndFairness(control) = &mut inner.control else {
            unreachable!("only fair control has queues")
        };
        match control.time_out(ticket, now) {
            DequeueResult::Removed { retry_after_seconds, admitted } => {
                inner.ring(&admitted);
                Err(TooManyRequests { retry_after_seconds })
            }
            // The request was dispatched at the same moment as its timeout.
            DequeueResult::Running => Ok(self.seat(SeatGrant::Ticket(ticket))),
            DequeueResult::NotFound => Err(TooManyRequests { retry_after_seconds: inflight::RETRY_AFTER_SECONDS }),
        }
    }

    fn seat(self: &Arc<Self>, reservation: SeatGrant) -> Seat {
        Seat { fairness: self.clone(), reservation: Some(reservation) }
    }

    fn release(&self, reservation: SeatGrant) {
        let now = self.now();
        let mut inner = self.lock();
        match (&mut inner.control, reservation) {
            (Control::PriorityAndFairness(control), SeatGrant::Ticket(ticket)) => {
                let admitted = control.finish(ticket, now);
                // The seats of a write stay occupied while its watchers are notified, so the timer may have to wake
                // earlier.
                let is_sooner = control.wake_at() < inner.wakes_at;
                inner.ring(&admitted);
                drop(inner);
                if is_sooner {
                    self.sooner.notify_one();
                }
            }
            (Control::MaxInFlight(limits), SeatGrant::Pass(pass)) => limits.finish(pass),
            (Control::PriorityAndFairness(_), SeatGrant::Pass(_)) | (Control::MaxInFlight(_), SeatGrant::Ticket(_)) => {
                unreachable!("the control never changes")
            }
        }
    }

    fn cancel(&self, ticket: Ticket) {
        let now = self.now();
        let mut inner = self.lock();
        inner.waiting.remove(&ticket);
        let Control::PriorityAndFairness(control) = &mut inner.control else { return };
        let admitted = match control.cancel(ticket, now) {
            DequeueResult::Removed { admitted, .. } => admitted,
            // The request was dispatched at the same moment, but its task no longer exists.
            DequeueResult::Running => control.finish(ticket, now),
            DequeueResult::NotFound => Vec::new(),
        };
        inner.ring(&admitted);
    }

    /// Appends the metrics in the Prometheus text format.
    pub fn print_metrics(&self, out: &mut String) {
        exposition::print(&self.snapshot(), out);
    }

    /// Estimates the work of a request in seats.
    fn estimate(&self, storage: &Storage, request: &RequestInfo) -> Estimate {
        let Some(resource) = &request.info.resource else { return Estimate::One };
        match request.info.verb {
            "list" => Estimate::List(list(storage, request)),
            "watch" if request.query.flag("sendInitialEvents") => Estimate::List(list(storage, request)),
            "create" if resource.subresource == "token" => Estimate::One,
            "create" | "update" | "patch" | "delete" | "deletecollection" => {
                Estimate::Write { watchers: self.watchers.interested(resource) }
            }
            _ => Estimate::One,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder panics")
    }

    fn now(&self) -> Moment {
        self.moment(Instant::now())
    }

    fn moment(&self, at: Instant) -> Moment {
        Moment::default().plus(at.saturating_duration_since(self.origin))
    }
}

impl Inner {
    /// Wakes the dispatched requests.
    fn ring(&mut self, tickets: &[Ticket]) {
        for ticket in tickets {
            if let Some(wakeup) = self.waiting.remove(ticket) {
                // A request that no longer listens releases its position itself.
                let _ = wakeup.send(());
            }
        }
    }
}

fn digest<'a>(request: &'a RequestInfo, user: &'a User) -> Digest<'a> {
    let target = match &request.info.resource {
        None => Target::Path(&request.info.path),
        Some(resource) => Target::Resource {
            group: &resource.group,
            resource: &resource.plural,
            subresource: &resource.subresource,
            namespace: &resource.namespace,
        },
    };
    Digest { user: &user.name, groups: &user.groups, verb: request.info.verb, target }
}

fn list(storage: &Storage, request: &RequestInfo) -> List {
    let resource = request.info.resource.as_ref();
    let table = storage.table();
    let kind = resource.and_then(|resource| table.kind(&resource.group, &resource.plural));
    let stored = kind.map_or(StoredObjects::Unknown, |kind| {
        let (objects, bytes) = storage.cache.kind_cache(kind).weight();
        StoredObjects::Known { objects: objects as u64, average_bytes: (bytes / objects.max(1)) as u64 }
    });
    let selected = request.query.has("labelSelector") || request.query.has("fieldSelector");
    let named = resource.is_some_and(|resource| !resource.name.is_empty());
    let selection = match (named, selected) {
        (true, _) => Selection::One,
        (false, true) => Selection::Selected,
        (false, false) => Selection::All,
    };
    let limit = request.query.get("limit").and_then(|limit| limit.parse().ok());
    List { stored, limit, source: Source::Cache, selection }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.fairness.release(reservation);
        }
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.fairness.cancel(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// A server with a few seats and queues for most users.
    fn fairness() -> Arc<Fairness> {
        let fairness = Fairness::new(Config { enabled: true, read_only_max: 100, mutating_max: 0 });
        let (levels, schemas): (Vec<Value>, Vec<Value>) = flowcontrol::bootstrap::objects()
            .into_iter()
            .partition(|object| object.str_at(&["kind"]) == Some("PriorityLevelConfiguration"));
        fairness.reconfigure(&schemas, &levels);
        fairness
    }

    const TARGET: Target<'_> = Target::Resource { group: "", resource: "pods", subresource: "", namespace: "a" };

    async fn request_seat(fairness: &Arc<Fairness>, deadline: Option<Instant>) -> Admission {
        let groups = ["system:authenticated".into()];
        let digest = Digest { user: "ann", groups: &groups, verb: "get", target: TARGET };
        fairness.seat_for(&digest, &Estimate::One, deadline).await
    }

    fn waiting(fairness: &Fairness) -> usize {
        fairness.lock().waiting.len()
    }

    #[tokio::test]
    async fn queued_requests_are_dispatched_and_disconnected_ones_are_not() {
        let fairness = fairness();
        let mut seats = Vec::new();
        let mut first = loop {
            let mut asking = Box::pin(request_seat(&fairness, None));
            match asking.as_mut().now_or_never() {
                Some(admission) => seats.push(admission.seat.expect("the request is admitted")),
                None => break asking,
            }
        };
        let mut second = Box::pin(request_seat(&fairness, None));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(waiting(&fairness), 2);
        drop(second);
        assert_eq!(waiting(&fairness), 1, "a request that is cancelled leaves the queue");
        drop(seats.pop().expect("a request has a seat"));
        let admission = first.as_mut().now_or_never().expect("the queued request gets the seat");
        assert!(admission.seat.is_ok());
        assert_eq!(waiting(&fairness), 0);
    }

    #[tokio::test]
    async fn request_is_queued_for_at_most_a_quarter_of_its_timeout() {
        let fairness = fairness();
        let mut seats = Vec::new();
        let deadline = || Some(Instant::now() + Duration::from_millis(40));
        let rejected = loop {
            match request_seat(&fairness, deadline()).await.seat {
                Ok(seat) => seats.push(seat),
                Err(rejected) => break rejected,
            }
        };
        assert!(rejected.retry_after_seconds >= 1);
        assert_eq!(waiting(&fairness), 0);
    }
}
