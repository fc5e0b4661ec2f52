//! Flow control metrics, with upstream's names.

use std::time::Duration;

use apimachinery::Str;

use crate::queues::{Phase, Record};

/// Bucket bounds of wait and execution times, in seconds.
const SECONDS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
/// Bucket bounds of queue lengths.
const LENGTHS: [f64; 8] = [0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
/// Bucket bounds of estimated seats.
const SEATS: [f64; 6] = [1.0, 2.0, 4.0, 10.0, 50.0, 100.0];

/// The `reason` label of `rejected_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The queue was full.
    QueueFull,
    /// All seats were taken, and the level has no queues.
    ConcurrencyLimit,
    /// The request waited too long.
    TimeOut,
    /// The client disconnected.
    Cancelled,
}

impl Reason {
    pub const fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::TimeOut => "time-out",
            Self::Cancelled => "cancelled",
        }
    }

    const ALL: [Self; 4] = [Self::QueueFull, Self::ConcurrencyLimit, Self::TimeOut, Self::Cancelled];
}

/// A histogram with fixed bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram<const N: usize> {
    bounds: &'static [f64; N],
    counts: [u64; N],
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: f64,
}

impl<const N: usize> Histogram<N> {
    const fn new(bounds: &'static [f64; N]) -> Self {
        Self { bounds, counts: [0; N], count: 0, sum: 0.0 }
    }

    pub fn observe(&mut self, value: f64) {
        if let Some(at) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[at] += 1;
        }
        self.count += 1;
        self.sum += value;
    }

    /// Returns each bound with the cumulative count, as Prometheus requires.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut below = 0;
        self.bounds.iter().zip(self.counts).map(move |(bound, count)| {
            below += count;
            (*bound, below)
        })
    }
}

/// The metrics of a flow schema at a priority level.
#[derive(Clone, Debug)]
pub struct Series {
    /// The label `priority_level`.
    pub priority_level: Str,
    /// The label `flow_schema`.
    pub flow_schema: Str,
    dispatched: u64,
    rejected: [u64; 4],
    waiting: u32,
    seats_waiting: u32,
    executing: u32,
    seats_executing: u32,
    /// `apiserver_flowcontrol_request_wait_duration_seconds{execute="true"}`
    pub wait_executed: Histogram<13>,
    /// `apiserver_flowcontrol_request_wait_duration_seconds{execute="false"}`
    pub wait_rejected: Histogram<13>,
    /// `apiserver_flowcontrol_request_execution_seconds`
    pub execution: Histogram<13>,
    /// `apiserver_flowcontrol_request_queue_length_after_enqueue`
    pub queue_length: Histogram<8>,
    /// `apiserver_flowcontrol_work_estimated_seats`
    pub estimated_seats: Histogram<6>,
}

/// The metrics of a priority level. Each field is the series `apiserver_flowcontrol_<field>`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LevelSeries {
    /// The label `priority_level`.
    pub priority_level: Str,
    /// The seats by shares.
    pub nominal_limit_seats: u32,
    /// The seats if all lendable seats are lent.
    pub lower_limit_seats: u32,
    /// The seats if all borrowable seats are borrowed.
    pub upper_limit_seats: u32,
    /// The current seats.
    pub current_limit_seats: u32,
    /// The peak demand in the last period.
    pub demand_seats_high_watermark: f64,
    /// The mean demand in the last period.
    pub demand_seats_average: f64,
    /// The standard deviation of the demand in the last period.
    pub demand_seats_stdev: f64,
    /// The smoothed demand.
    pub demand_seats_smoothed: f64,
    /// The target of the last allocation.
    pub target_seats: f64,
    /// The progress of virtual time.
    pub current_r: f64,
    /// The number of times that the next request was too wide for the free seats.
    pub request_dispatch_no_accommodation_total: u64,
}

/// All metrics at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By priority level.
    pub levels: Vec<LevelSeries>,
    /// By flow schema and priority level.
    pub series: Vec<Series>,
    /// `apiserver_flowcontrol_seat_fair_frac`
    pub seat_fair_frac: f64,
    /// `apiserver_current_inflight_requests`
    pub executing: ByKind,
    /// `apiserver_current_inqueue_requests`
    pub waiting: ByKind,
}

/// Requests by the label `request_kind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByKind {
    /// `readOnly`
    pub read_only: u32,
    /// `mutating`
    pub mutating: u32,
}

/// One value of a counter or gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: &'static str,
    pub labels: Vec<(&'static str, Str)>,
    pub value: f64,
}

impl Sample {
    /// Returns the HELP text of the metric.
    pub fn help(&self) -> &'static str {
        match self.name {
            "apiserver_flowcontrol_seat_fair_frac" => {
                "Multiple of its target seats that each priority level gets, within its limits."
            }
            "apiserver_current_inflight_requests" => "Number of executing requests, by kind.",
            "apiserver_current_inqueue_requests" => "Number of queued requests, by kind.",
            "apiserver_flowcontrol_nominal_limit_seats" => "Nominal number of seats of a priority level.",
            "apiserver_flowcontrol_lower_limit_seats" => "Seats of a priority level if it lends all lendable seats.",
            "apiserver_flowcontrol_upper_limit_seats" => "Seats of a priority level if it borrows as much as it may.",
            "apiserver_flowcontrol_current_limit_seats" => "Current number of seats of a priority level.",
            "apiserver_flowcontrol_demand_seats_high_watermark" => {
                "Peak demand in the last adjustment period, in seats."
            }
            "apiserver_flowcontrol_demand_seats_average" => "Mean demand in the last adjustment period, in seats.",
            "apiserver_flowcontrol_demand_seats_stdev" => {
                "Standard deviation of the demand in the last adjustment period, in seats."
            }
            "apiserver_flowcontrol_demand_seats_smoothed" => "Smoothed demand, in seats.",
            "apiserver_flowcontrol_target_seats" => "Target of the last seat allocation.",
            "apiserver_flowcontrol_current_r" => "Progress of virtual time.",
            "apiserver_flowcontrol_request_dispatch_no_accommodation_total" => {
                "Number of times that the next request needed more seats than were free."
            }
            "apiserver_flowcontrol_dispatched_requests_total" => "Number of executed requests.",
            "apiserver_flowcontrol_current_inqueue_requests" => "Number of queued requests.",
            "apiserver_flowcontrol_current_inqueue_seats" => "Number of seats that the queued requests need.",
            "apiserver_flowcontrol_current_executing_requests" => "Number of executing requests.",
            "apiserver_flowcontrol_current_executing_seats" => "Number of seats that executing requests occupy.",
            "apiserver_flowcontrol_rejected_requests_total" => "Number of rejected requests, by reason.",
            _ => "",
        }
    }
}

impl Series {
    pub(crate) fn new(priority_level: Str, flow_schema: Str) -> Self {
        Self {
            priority_level,
            flow_schema,
            dispatched: 0,
            rejected: [0; 4],
            waiting: 0,
            seats_waiting: 0,
            executing: 0,
            seats_executing: 0,
            wait_executed: Histogram::new(&SECONDS),
            wait_rejected: Histogram::new(&SECONDS),
            execution: Histogram::new(&SECONDS),
            queue_length: Histogram::new(&LENGTHS),
            estimated_seats: Histogram::new(&SEATS),
        }
    }

    pub(crate) fn rejects(&mut self, reason: Reason, waited: Duration) {
        let at = Reason::ALL.iter().position(|known| *known == reason).expect("all reasons are listed");
        self.rejected[at] += 1;
        self.wait_rejected.observe(waited.as_secs_f64());
    }

    pub(crate) fn starts(&mut self, waited: Duration) {
        self.dispatched += 1;
        self.wait_executed.observe(waited.as_secs_f64());
    }

    const fn holds(&mut self, record: &Record) {
        let seats = record.work.width();
        match record.phase {
            Phase::Waiting => {
                self.waiting += 1;
                self.seats_waiting += seats;
            }
            Phase::Running => {
                self.executing += 1;
                self.seats_executing += seats;
            }
            Phase::Lingering => self.seats_executing += seats,
        }
    }
}

impl ByKind {
    const fn add(&mut self, is_mutating: bool) {
        if is_mutating {
            self.mutating += 1;
        } else {
            self.read_only += 1;
        }
    }

    fn samples(self, name: &'static str, samples: &mut Vec<Sample>) {
        for (kind, value) in [("readOnly", self.read_only), ("mutating", self.mutating)] {
            samples.push(Sample { name, labels: vec![("request_kind", kind.into())], value: f64::from(value) });
        }
    }
}

impl Snapshot {
    /// Counts an existing request.
    pub(crate) fn holds(&mut self, record: &Record) {
        self.series[record.tag.series as usize].holds(record);
        match record.phase {
            Phase::Waiting => self.waiting.add(record.tag.is_mutating),
            Phase::Running => self.executing.add(record.tag.is_mutating),
            Phase::Lingering => {}
        }
    }

    /// Returns the counters and gauges. The histograms are in [`Snapshot::series`].
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = vec![Sample {
            name: "apiserver_flowcontrol_seat_fair_frac",
            labels: Vec::new(),
            value: self.seat_fair_frac,
        }];
        self.executing.samples("apiserver_current_inflight_requests", &mut samples);
        self.waiting.samples("apiserver_current_inqueue_requests", &mut samples);
        self.levels.iter().for_each(|level| level.samples(&mut samples));
        self.series.iter().for_each(|series| series.samples(&mut samples));
        samples
    }
}

impl LevelSeries {
    fn samples(&self, samples: &mut Vec<Sample>) {
        let values = [
            ("apiserver_flowcontrol_nominal_limit_seats", f64::from(self.nominal_limit_seats)),
            ("apiserver_flowcontrol_lower_limit_seats", f64::from(self.lower_limit_seats)),
            ("apiserver_flowcontrol_upper_limit_seats", f64::from(self.upper_limit_seats)),
            ("apiserver_flowcontrol_current_limit_seats", f64::from(self.current_limit_seats)),
            ("apiserver_flowcontrol_demand_seats_high_watermark", self.demand_seats_high_watermark),
            ("apiserver_flowcontrol_demand_seats_average", self.demand_seats_average),
            ("apiserver_flowcontrol_demand_seats_stdev", self.demand_seats_stdev),
            ("apiserver_flowcontrol_demand_seats_smoothed", self.demand_seats_smoothed),
            ("apiserver_flowcontrol_target_seats", self.target_seats),
            ("apiserver_flowcontrol_current_r", self.current_r),
            (
                "apiserver_flowcontrol_request_dispatch_no_accommodation_total",
                self.request_dispatch_no_accommodation_total as f64,
            ),
        ];
        let sample = |(name, value)| {
            let labels = vec![("priority_level", self.priority_level.clone())];
            Sample { name, labels, value }
        };
        samples.extend(values.into_iter().map(sample));
    }
}

impl Series {
    fn samples(&self, samples: &mut Vec<Sample>) {
        let labels =
            || vec![("priority_level", self.priority_level.clone()), ("flow_schema", self.flow_schema.clone())];
        let values = [
            ("apiserver_flowcontrol_dispatched_requests_total", self.dispatched as f64),
            ("apiserver_flowcontrol_current_inqueue_requests", f64::from(self.waiting)),
            ("apiserver_flowcontrol_current_inqueue_seats", f64::from(self.seats_waiting)),
            ("apiserver_flowcontrol_current_executing_requests", f64::from(self.executing)),
            ("apiserver_flowcontrol_current_executing_seats", f64::from(self.seats_executing)),
        ];
        samples.extend(values.into_iter().map(|(name, value)| Sample { name, labels: labels(), value }));
        for (reason, count) in Reason::ALL.iter().zip(self.rejected).filter(|(_, count)| *count > 0) {
            let mut labels = labels();
            labels.push(("reason", reason.label().into()));
            let name = "apiserver_flowcontrol_rejected_requests_total";
            samples.push(Sample { name, labels, value: count as f64 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_include_values_above_the_last_bound() {
        let mut histogram = Histogram::new(&SEATS);
        for seats in [1.0, 2.0, 3.0, 1000.0] {
            histogram.observe(seats);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(1.0, 1), (2.0, 2), (4.0, 3), (10.0, 3), (50.0, 3), (100.0, 3)]);
        assert_eq!((histogram.count, histogram.sum), (4, 1006.0));
    }
}
