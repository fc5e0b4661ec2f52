use std::collections::BTreeSet;

use proptest::prelude::*;

use super::model::Model;
use super::*;
use crate::dealer::Dealer;

fn queuing(queues: u32, hand_size: u32, length_max: u32) -> Discipline {
    let dealer = Dealer::new(queues.into(), hand_size.into()).unwrap();
    Discipline::Queue(Queuing { dealer, queues, hand_size, length_max })
}

fn millis(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn tag(serial: u64) -> Tag {
    Tag { serial, series: 0, is_mutating: false }
}

/// A level whose requests are numbered in order of arrival.
struct Bench {
    queues: Queues,
    serial: u64,
    now: Moment,
    /// Other requests admitted by an arrival.
    others: Vec<u32>,
}

impl Bench {
    fn new(discipline: Discipline, limit: u32) -> Self {
        Self { queues: Queues::new(discipline, limit, millis(0)), serial: 0, now: millis(0), others: Vec::new() }
    }

    fn arrive(&mut self, seats: u32, hash: u64) -> (ArrivalOutcome, u64) {
        self.serial += 1;
        let (start, others) = self.queues.arrive(tag(self.serial), Work::seats(seats), hash, self.now);
        self.others.extend(others);
        (start, self.serial)
    }
}

#[test]
fn without_queues_only_the_limit_decides() {
    let mut bench = Bench::new(Discipline::Reject, 2);
    let (first, serial) = bench.arrive(1, 0);
    assert_eq!(first, ArrivalOutcome::Executing(0));
    assert_eq!(bench.arrive(1, 0).0, ArrivalOutcome::Executing(1));
    assert_eq!(bench.arrive(1, 0).0, ArrivalOutcome::NoSeat);
    bench.queues.finish(0, serial, millis(1));
    assert_eq!(bench.arrive(2, 0).0, ArrivalOutcome::NoSeat);
    assert_eq!(bench.arrive(1, 0).0, ArrivalOutcome::Executing(0));
}

#[test]
fn request_wider_than_the_limit_runs_alone() {
    let mut bench = Bench::new(queuing(1, 1, 10), 2);
    let (_, small) = bench.arrive(1, 0);
    let (wide, wide_serial) = bench.arrive(5, 0);
    assert_eq!(wide, ArrivalOutcome::Queued(1, 1));
    assert_eq!(bench.arrive(1, 0).0, ArrivalOutcome::Queued(2, 2), "a request does not overtake others in its queue");
    assert_eq!(bench.queues.finish(0, small, millis(5)), [1]);
    assert_eq!(bench.queues.finish(1, wide_serial, millis(9)), [2]);
}

#[test]
fn seats_stay_occupied_while_a_request_lingers() {
    let mut queues = Queues::new(queuing(1, 1, 10), 1, millis(0));
    let work = Work { initial_seats: 1, final_seats: 1, additional_latency: Duration::from_millis(5) };
    assert_eq!(queues.arrive(tag(1), work, 0, millis(0)), (ArrivalOutcome::Executing(0), vec![]));
    assert_eq!(queues.arrive(tag(2), work, 0, millis(0)), (ArrivalOutcome::Queued(1, 1), vec![]));
    assert_eq!(queues.finish(0, 1, millis(10)), [] as [u32; 0]);
    assert_eq!(queues.wake_at(), Some(millis(15)));
    assert_eq!(queues.wake(millis(14)), [] as [u32; 0]);
    assert_eq!(queues.wake(millis(15)), [1]);
    assert_eq!(queues.counts().executing, 1);
}

#[test]
fn excess_final_seats_extend_the_additional_latency() {
    let mut queues = Queues::new(queuing(1, 1, 10), 2, millis(0));
    let work = Work { initial_seats: 1, final_seats: 10, additional_latency: Duration::from_millis(4) };
    queues.arrive(tag(1), work, 0, millis(0));
    assert_eq!(queues.counts().seats_in_use, 2);
    queues.finish(0, 1, millis(10));
    assert_eq!(queues.wake_at(), Some(millis(30)));
}

#[test]
fn finishing_or_leaving_twice_has_no_effect() {
    let mut bench = Bench::new(queuing(1, 1, 10), 1);
    let (_, running) = bench.arrive(1, 0);
    let (_, waiting) = bench.arrive(1, 0);
    assert_eq!(bench.queues.leave(0, running, millis(1)), None);
    assert_eq!(bench.queues.finish(1, waiting, millis(1)), [] as [u32; 0], "a waiting request cannot finish");
    assert_eq!(bench.queues.leave(1, waiting, millis(1)), Some(vec![]));
    assert_eq!(bench.queues.leave(1, waiting, millis(1)), None);
    bench.queues.finish(0, running, millis(2));
    assert_eq!(bench.queues.finish(0, running, millis(2)), [] as [u32; 0]);
    assert!(bench.queues.is_idle());
}

/// Serves two flows for 4,000 steps. Each flow keeps a number of requests of a width pending. Returns the service of
/// each in seat-milliseconds.
fn share(flows: [(usize, u32); 2], seats: u32, service: u64) -> [u64; 2] {
    let mut bench = Bench::new(queuing(64, 4, 50), seats);
    let (mut running, mut pending, mut got) = (Vec::new(), [0_usize; 2], [0_u64; 2]);
    let mut owners = BTreeMap::new();
    for step in 0..4000 {
        bench.now = millis(step);
        for (flow, (depth, width)) in flows.iter().enumerate() {
            while pending[flow] < *depth {
                let hash = crate::control::flow_hash("schema", &flow.to_string());
                let (start, serial) = bench.arrive(*width, hash);
                let (ArrivalOutcome::Executing(slot) | ArrivalOutcome::Queued(slot, _)) = start else { break };
                pending[flow] += 1;
                owners.insert(slot, (flow, serial));
                if matches!(start, ArrivalOutcome::Executing(_)) {
                    running.push((step + service, slot));
                }
                running.extend(bench.others.drain(..).map(|other| (step + service, other)));
            }
        }
        let (done, still): (Vec<_>, Vec<_>) = running.drain(..).partition(|(end, _)| *end <= step);
        running = still;
        for (_, slot) in done {
            let (flow, serial) = owners[&slot];
            pending[flow] -= 1;
            got[flow] += service * u64::from(flows[flow].1);
            running.extend(bench.queues.finish(slot, serial, bench.now).into_iter().map(|next| (step + service, next)));
        }
    }
    got
}

#[test]
fn small_flow_is_not_starved_by_a_large_flow() {
    let [mouse, elephant] = share([(2, 1), (180, 1)], 4, 10);
    // The large flow fills its four queues. The small flow has at least one queue for itself, and so a fifth of the
    // seats. With a single queue it would get 2 of 182 parts.
    assert!(mouse * 4 >= elephant, "{mouse} {elephant}");
    let [narrow, wide] = share([(40, 1), (40, 3)], 6, 10);
    assert!(narrow * 10 >= wide * 7 && wide * 10 >= narrow * 7, "{narrow} {wide}");
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { seats: u32, latency: u64, flow: u8 },
    Finish(prop::sample::Index),
    Leave(prop::sample::Index),
    Wait(u64),
    Limit(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_u32..5, 0_u64..8, 0_u8..6).prop_map(|(seats, latency, flow)| Step::Arrive { seats, latency, flow }),
        4 => any::<prop::sample::Index>().prop_map(Step::Finish),
        1 => any::<prop::sample::Index>().prop_map(Step::Leave),
        3 => (0_u64..20).prop_map(Step::Wait),
        1 => (0_u32..8).prop_map(Step::Limit),
    ];
    prop::collection::vec(step, 1..300)
}

/// Counts requests and seats from the records.
fn recount(queues: &Queues) -> Counts {
    let mut counts = Counts { unaccommodated: queues.counts.unaccommodated, ..Counts::default() };
    for record in queues.records() {
        match record.phase {
            Phase::Waiting => {
                counts.waiting += 1;
                counts.seats_waiting += record.work.width();
            }
            Phase::Running => {
                counts.executing += 1;
                counts.seats_in_use += record.work.width();
            }
            Phase::Lingering => counts.seats_in_use += record.work.width(),
        }
    }
    counts
}

proptest! {
    #[test]
    fn seats_stay_within_the_limit_and_queues_are_bounded(steps in steps(), rejecting: bool) {
        let discipline = if rejecting { Discipline::Reject } else { queuing(8, 2, 3) };
        let mut queues = Queues::new(discipline, 4, millis(0));
        let (mut now, mut serial, mut limit) = (millis(0), 0, 4);
        let (mut running, mut waiting) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            let before = queues.counts();
            let mut started = Vec::new();
            match step {
                Step::Arrive { seats, latency, flow } => {
                    serial += 1;
                    let work = Work {
                        initial_seats: seats,
                        final_seats: seats * u32::from(latency > 4),
                        additional_latency: Duration::from_millis(latency.saturating_sub(4)),
                    };
                    let hash = u64::from(flow).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let (start, others) = queues.arrive(tag(serial), work, hash, now);
                    started.extend(others.into_iter().map(|slot| (slot, queues.at(slot).tag.serial)));
                    match start {
                        ArrivalOutcome::Executing(slot) => started.push((slot, serial)),
                        ArrivalOutcome::Queued(slot, _) => drop(waiting.insert((slot, serial))),
                        ArrivalOutcome::NoSeat | ArrivalOutcome::QueueFull => {}
                    }
                }
                Step::Finish(which) if !running.is_empty() => {
                    let (slot, serial) = *running.iter().nth(which.index(running.len())).unwrap();
                    running.remove(&(slot, serial));
                    started = queues.finish(slot, serial, now).into_iter().map(|slot| (slot, queues.at(slot).tag.serial)).collect();
                }
                Step::Leave(which) if !waiting.is_empty() => {
                    let (slot, serial) = *waiting.iter().nth(which.index(waiting.len())).unwrap();
                    waiting.remove(&(slot, serial));
                    let left = queues.leave(slot, serial, now).expect("the request was queued");
                    started = left.into_iter().map(|slot| (slot, queues.at(slot).tag.serial)).collect();
                }
                Step::Wait(more) => {
                    now = now.plus(Duration::from_millis(more));
                    started = queues.wake(now).into_iter().map(|slot| (slot, queues.at(slot).tag.serial)).collect();
                }
                Step::Limit(seats) => {
                    limit = seats;
                    let slots = queues.configure(discipline, limit, now);
                    started = slots.into_iter().map(|slot| (slot, queues.at(slot).tag.serial)).collect();
                }
                Step::Finish(_) | Step::Leave(_) => {}
            }
            for ticket in &started {
                waiting.remove(ticket);
                running.insert(*ticket);
            }
            let counts = queues.counts();
            prop_assert_eq!(counts, recount(&queues));
            prop_assert_eq!(counts.waiting as usize, waiting.len());
            prop_assert_eq!(counts.executing as usize, running.len());
            // Seats exceed the limit only for a single wider request, or after the limit was reduced.
            if !started.is_empty() {
                let alone = counts.executing == 1;
                prop_assert!(counts.seats_in_use <= limit || alone, "{:?} {}", counts, limit);
            } else {
                prop_assert!(counts.seats_in_use <= before.seats_in_use.max(limit));
            }
            prop_assert!(queues.length_max() <= 3);
        }
    }

    #[test]
    fn every_choice_equals_the_reference_model(steps in steps(), limit in 1_u32..8) {
        let discipline = queuing(8, 2, 3);
        let Discipline::Queue(config) = discipline else { panic!("it queues") };
        let (mut queues, mut model) = (Queues::new(discipline, limit, millis(0)), Model::new(config, limit));
        let (mut now, mut serial, mut slots) = (millis(0), 0, BTreeMap::new());
        for step in steps {
            let ran = model.running();
            let waits = |queues: &Queues| -> Vec<u64> {
                let waiting = queues.records().filter(|record| record.phase == Phase::Waiting);
                waiting.map(|record| record.tag.serial).collect()
            };
            match step {
                Step::Arrive { seats, latency, flow } => {
                    serial += 1;
                    let additional_latency = Duration::from_millis(latency.saturating_sub(4));
                    let final_seats = (seats + 2) * u32::from(latency > 4);
                    let work = Work { initial_seats: seats, final_seats, additional_latency };
                    let hash = u64::from(flow).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let (start, _) = queues.arrive(tag(serial), work, hash, now);
                    prop_assert_eq!(model.arrive(serial, work, hash, now), start != ArrivalOutcome::QueueFull);
                    if let ArrivalOutcome::Executing(slot) | ArrivalOutcome::Queued(slot, _) = start {
                        slots.insert(serial, slot);
                    }
                }
                Step::Finish(which) if !ran.is_empty() => {
                    let serial = ran[which.index(ran.len())];
                    queues.finish(slots[&serial], serial, now);
                    model.finish(serial, now);
                }
                Step::Leave(which) if !waits(&queues).is_empty() => {
                    let waiting = waits(&queues);
                    let serial = waiting[which.index(waiting.len())];
                    queues.leave(slots[&serial], serial, now);
                    model.leave(serial, now);
                }
                Step::Wait(more) => {
                    now = now.plus(Duration::from_millis(more));
                    queues.wake(now);
                    model.wake(now);
                }
                Step::Limit(limit) => {
                    queues.configure(discipline, limit.max(1), now);
                    model.set_limit(limit.max(1), now);
                }
                Step::Finish(_) | Step::Leave(_) => {}
            }
            let running = queues.records().filter(|record| record.phase == Phase::Running);
            let mut running: Vec<u64> = running.map(|record| record.tag.serial).collect();
            running.sort_unstable();
            prop_assert_eq!(running, model.running());
        }
    }

    #[test]
    fn every_waiting_request_is_eventually_served(
        arrivals in prop::collection::vec((1_u32..6, any::<u64>()), 1..120),
        service in 1_u64..50,
    ) {
        let mut queues = Queues::new(queuing(8, 3, 40), 4, millis(0));
        let (mut running, mut done, mut accepted) = (Vec::new(), 0, 0);
        for (serial, (seats, hash)) in arrivals.iter().enumerate() {
            let (start, others) = queues.arrive(tag(serial as u64), Work::seats(*seats), *hash, millis(0));
            running.extend(others);
            match start {
                ArrivalOutcome::Executing(slot) => running.push(slot),
                ArrivalOutcome::Queued(..) => {}
                ArrivalOutcome::NoSeat | ArrivalOutcome::QueueFull => continue,
            }
            accepted += 1;
        }
        let mut now = 0;
        while let Some(slot) = running.pop() {
            now += service;
            done += 1;
            running.extend(queues.finish(slot, queues.at(slot).tag.serial, millis(now)));
        }
        prop_assert_eq!(done, accepted);
        prop_assert!(queues.is_idle());
        prop_assert!(queues.queues.is_empty() && queues.ready.is_empty() && queues.active_queues == 0);
    }
}
