//! Backtracking search of the DRA allocator.

use std::cell::Cell;
use std::collections::BTreeMap;

use api::view::Taint;
use apimachinery::Str;
use apimachinery::quantity::Quantity;

use super::{AllocatedDevice, Fault, Here, RESULTS_MAX, ResolvedRequest, STEPS_MAX, SearchInput, fits, selectable};
use crate::devices::claim::{Constraint, Rule};
use crate::devices::slice::{Attribute, Counters};

/// Returns the devices of each claim, or `None` if the search finds no solution.
pub(super) fn run<'c>(
    scene: &SearchInput<'c>,
    steps: &Cell<u32>,
) -> Result<Option<Vec<Vec<AllocatedDevice<'c>>>>, Fault> {
    let constraint_states = |pending_claim: &super::PendingClaim<'c>| {
        pending_claim.claim.constraints.iter().map(ConstraintState::new).collect()
    };
    let mut search = Search {
        scene,
        steps,
        matched: vec![None; scene.needs_len * scene.here.len()],
        constraint_states: scene.pending_claims.iter().map(constraint_states).collect(),
        holders: vec![Vec::new(); scene.here.len()],
        shares: vec![Vec::new(); scene.here.len()],
        consumed: BTreeMap::new(),
        given: scene.pending_claims.iter().map(|_| Vec::new()).collect(),
    };
    match search.go(Position::default(), 0) {
        Ok(true) => Ok(Some(search.given)),
        Ok(false) | Err(Stop::TooMany) => Ok(None),
        Err(Stop::Fault(fault)) => Err(fault),
    }
}

/// Position of the search: the claim, request, alternative and device to allocate next.
#[derive(Clone, Copy, Default)]
struct Position {
    claim: usize,
    request: usize,
    /// `None` before an alternative is chosen.
    alternative: Option<usize>,
    device: usize,
}

/// Reason for backtracking over more than one device.
enum Stop {
    /// A claim would exceed its maximum of devices; another alternative may need fewer.
    TooMany,
    /// The search failed as a whole.
    Fault(Fault),
}

/// Whether another device may be used instead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeviceChoice {
    Any,
    /// The device was selected already because the request needs all matching devices.
    Fixed,
}

struct Search<'s, 'c> {
    scene: &'s SearchInput<'c>,
    steps: &'s Cell<u32>,
    /// Cached selector results, by resolved request and device.
    matched: Vec<Option<bool>>,
    constraint_states: Vec<Vec<ConstraintState<'c>>>,
    /// Claims that hold the device exclusively, by device.
    holders: Vec<Vec<usize>>,
    /// Allocated shares, by device.
    shares: Vec<Vec<Counters>>,
    /// Consumed shared counters, by pool, counter set and counter name.
    consumed: BTreeMap<(usize, &'c Str, &'c Str), Quantity>,
    given: Vec<Vec<AllocatedDevice<'c>>>,
}

/// State of a constraint during the search.
struct ConstraintState<'c> {
    constraint: &'c Constraint,
    seen: Vec<&'c Attribute>,
}

impl<'s, 'c> Search<'s, 'c> {
    /// Allocates devices for this position and all following ones; the first candidate is the device with index
    /// `start`.
    fn go(&mut self, at: Position, start: usize) -> Result<bool, Stop> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps > STEPS_MAX {
            return Err(Stop::Fault(Fault::Steps));
        }
        let scene = self.scene;
        let Some(requests) = scene.needs.get(at.claim) else { return Ok(true) };
        let Some(alternatives) = requests.get(at.request) else {
            let next = self.go(Position { claim: at.claim + 1, ..Position::default() }, 0);
            // With other devices for earlier claims, this claim may need fewer devices.
            return if matches!(next, Err(Stop::TooMany)) { Ok(false) } else { next };
        };
        let Some(alternative) = at.alternative else { return self.try_alternatives(at, alternatives.len()) };
        let need = &alternatives[alternative];
        if need.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        if at.device >= need.count {
            return self.go(Position { claim: at.claim, request: at.request + 1, ..Position::default() }, 0);
        }
        if self.given[at.claim].len() + need.count - at.device > RESULTS_MAX {
            return Err(Stop::TooMany);
        }
        match &need.all {
            Some(all) => self.try_device(at, need, all[at.device], DeviceChoice::Fixed),
            None => {
                for device in start..scene.here.len() {
                    if self.try_device(at, need, device, DeviceChoice::Any)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    fn try_alternatives(&mut self, at: Position, alternatives: usize) -> Result<bool, Stop> {
        let mut too_many = alternatives > 0;
        for alternative in 0..alternatives {
            match self.go(Position { alternative: Some(alternative), ..at }, 0) {
                Err(Stop::TooMany) => {}
                Ok(false) => too_many = false,
                other => return other,
            }
        }
        if too_many { Err(Stop::TooMany) } else { Ok(false) }
    }

    /// Allocates the device if it is suitable and continues with the next position; releases it if that fails.
    fn try_device(
        &mut self,
        at: Position,
        need: &'s ResolvedRequest<'c>,
        device: usize,
        want: DeviceChoice,
    ) -> Result<bool, Stop> {
        let scene = self.scene;
        let here = &scene.here[device];
        let pool = scene.pools[here.pool];
        if want == DeviceChoice::Any && (pool.incomplete || pool.invalid) || self.in_use(at, need, device) {
            return Ok(false);
        }
        if want == DeviceChoice::Any && !self.matches(at, need, device).map_err(Stop::Fault)? {
            return Ok(false);
        }
        if is_repelled(need, here) || !self.take(at, need, device, want)? {
            return Ok(false);
        }
        let next = self.go(Position { device: at.device + 1, ..at }, device + 1);
        if !matches!(next, Ok(true)) {
            self.release_device(at, need, device);
        }
        next
    }

    fn in_use(&self, at: Position, need: &ResolvedRequest<'_>, device: usize) -> bool {
        let here = &self.scene.here[device];
        if need.alternative.admin {
            return !here.device.shared && self.holders[device].contains(&at.claim);
        }
        here.taken.is_some_and(|taken| taken.whole > 0) || !self.holders[device].is_empty()
    }

    fn matches(&mut self, at: Position, need: &ResolvedRequest<'_>, device: usize) -> Result<bool, Fault> {
        let memory = need.number * self.scene.here.len() + device;
        if let Some(known) = self.matched[memory] {
            return Ok(known);
        }
        let matches = selectable(&self.scene.pending_claims[at.claim], need, &self.scene.here[device])?;
        self.matched[memory] = Some(matches);
        Ok(matches)
    }

    fn take(
        &mut self,
        at: Position,
        need: &'s ResolvedRequest<'c>,
        device: usize,
        want: DeviceChoice,
    ) -> Result<bool, Stop> {
        let scene = self.scene;
        let here = &scene.here[device];
        let mut taking = Counters::new();
        for (name, amount) in self.shares[device].iter().flatten() {
            let sum = taking.entry(name.clone()).or_default();
            *sum = sum.add(*amount);
        }
        let Some(share) = fits(need.alternative, here, &taking) else { return Ok(false) };
        if !self.consume(device, need) {
            return Ok(false);
        }
        for number in 0..self.constraint_states[at.claim].len() {
            if self.constraint_states[at.claim][number].add(need, here) {
                continue;
            }
            self.constraint_states[at.claim][..number].iter_mut().for_each(|state| state.remove(need, here));
            self.release(device, need);
            if want == DeviceChoice::Fixed {
                let (claim, request) = (scene.pending_claims[at.claim].name, &need.request.name);
                let cause = "because a claim constraint would not be satisfied";
                let message = format!("claim {claim}, request {request}: cannot add device {} {cause}", here.id);
                return Err(Stop::Fault(Fault::Claim(message)));
            }
            return Ok(false);
        }
        if here.device.shared {
            self.shares[device].push(share.clone());
        } else {
            self.holders[device].push(at.claim);
        }
        self.given[at.claim].push(AllocatedDevice {
            request: at.request,
            alternative: at.alternative.unwrap_or_default(),
            id: here.id.clone(),
            device: here.device,
            slice: here.slice,
            share: here.device.shared.then_some(share),
        });
        Ok(true)
    }

    fn release_device(&mut self, at: Position, need: &'s ResolvedRequest<'c>, device: usize) {
        let scene = self.scene;
        let here = &scene.here[device];
        self.given[at.claim].pop();
        if here.device.shared {
            self.shares[device].pop();
        } else {
            self.holders[device].pop();
        }
        self.constraint_states[at.claim].iter_mut().for_each(|state| state.remove(need, here));
        self.release(device, need);
    }

    /// Consumes the device's shared counters if enough is left. Requests with admin access consume nothing, and a
    /// device that is already shared consumed its counters with its first share.
    fn consume(&mut self, device: usize, need: &ResolvedRequest<'_>) -> bool {
        let scene = self.scene;
        let here = &scene.here[device];
        if !self.consumes(device, need) {
            return true;
        }
        for (set, amounts) in &here.device.consumes {
            let left = scene.counters.get(&(here.pool, set));
            for (name, amount) in amounts {
                let Some(left) = left.and_then(|left| left.get(name)) else { continue };
                let taken = self.consumed.get(&(here.pool, set, name)).copied().unwrap_or_default();
                if taken.add(*amount) > *left {
                    return false;
                }
            }
        }
        self.change(device, Quantity::add);
        true
    }

    fn release(&mut self, device: usize, need: &ResolvedRequest<'_>) {
        if self.consumes(device, need) {
            self.change(device, Quantity::sub);
        }
    }

    fn consumes(&self, device: usize, need: &ResolvedRequest<'_>) -> bool {
        let here = &self.scene.here[device];
        let is_shared = here.taken.is_some_and(|taken| taken.shares > 0) || !self.shares[device].is_empty();
        !here.device.consumes.is_empty() && !need.alternative.admin && !is_shared
    }

    fn change(&mut self, device: usize, by: fn(Quantity, Quantity) -> Quantity) {
        let scene = self.scene;
        let here = &scene.here[device];
        for (set, amounts) in &here.device.consumes {
            for (name, amount) in amounts {
                let taken = self.consumed.entry((here.pool, set, name)).or_default();
                *taken = by(*taken, *amount);
            }
        }
    }
}

impl<'c> ConstraintState<'c> {
    const fn new(constraint: &'c Constraint) -> Self {
        Self { constraint, seen: Vec::new() }
    }

    /// Whether the constraint still holds with this device. If so, the device is added to the constraint's state.
    fn add(&mut self, need: &ResolvedRequest<'_>, here: &Here<'c>) -> bool {
        if !self.constraint.applies_to(need.request, need.alternative) {
            return true;
        }
        let Some(value) = self.value(here).filter(|value| **value != Attribute::Unknown) else { return false };
        let holds = match self.constraint.rule {
            Rule::Same(_) => self.seen.first().is_none_or(|seen| *seen == value),
            Rule::Distinct(_) => !self.seen.contains(&value),
            Rule::Unknown => false,
        };
        if holds {
            self.seen.push(value);
        }
        holds
    }

    /// Removes the device that was added last.
    fn remove(&mut self, need: &ResolvedRequest<'_>, here: &Here<'c>) {
        if self.constraint.applies_to(need.request, need.alternative) && self.value(here).is_some() {
            self.seen.pop();
        }
    }

    fn value(&self, here: &Here<'c>) -> Option<&'c Attribute> {
        match &self.constraint.rule {
            Rule::Same(name) | Rule::Distinct(name) => here.device.attribute(name, &here.id.driver),
            Rule::Unknown => None,
        }
    }
}

/// Whether a device has a taint that the request does not tolerate.
fn is_repelled(need: &ResolvedRequest<'_>, here: &Here<'_>) -> bool {
    here.device.taints.iter().any(|[key, value, effect]| {
        let taint = Taint { key, value, effect };
        matches!(taint.effect, "NoSchedule" | "NoExecute")
            && !need.alternative.tolerations.iter().any(|it| it.tolerates(taint))
    })
}
