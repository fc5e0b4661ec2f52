//! Controller properties: convergence, robustness against interruption, determinism, and writes only as declared.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::collection::Entry;
use apimachinery::{Key, Value};

use super::fake_cluster::FakeCluster;
use crate::{Action, Controller, Plan, decide};

/// Maximum rounds of plans before a controller counts as not converging.
const ROUNDS_MAX: usize = 300;
/// Maximum consecutive wake-ups without an action. A controller that wakes periodically still counts as converged.
const WAKES_MAX: usize = 8;
/// Number of interrupted rounds, and of omitted actions per plan.
const INTERRUPTED_ROUNDS: usize = 6;
const LEFT_OUT_MAX: usize = 12;

/// The part of a plan that is executed before the controller loses its memory and restarts.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The first actions up to this number.
    Prefix(usize),
    /// All actions except this one.
    AllBut(usize),
}

/// Runs a controller and its environment until neither acts.
///
/// `environment` simulates the rest of the cluster and returns whether it acted. Time advances only to wake-ups.
///
/// # Panics
/// If the controller does not converge, or a plan violates a property.
pub fn run_until_stable<C: Controller<Config: Default>>(
    cluster: &mut FakeCluster,
    environment: impl Fn(&mut FakeCluster) -> bool,
) {
    run_until_stable_with::<C>(&C::Config::default(), cluster, environment);
}

/// Like [`run_until_stable`], with a configuration.
///
/// # Panics
/// As [`run_until_stable`].
pub fn run_until_stable_with<C: Controller>(
    config: &C::Config,
    cluster: &mut FakeCluster,
    environment: impl Fn(&mut FakeCluster) -> bool,
) {
    run::<C>(config, cluster, &environment, None);
}

/// Checks all properties: after any interruption the cluster converges to the same state.
///
/// # Panics
/// If a property is violated. The message has the details.
pub fn check_properties<C: Controller<Config: Default>>(
    cluster: &FakeCluster,
    environment: impl Fn(&mut FakeCluster) -> bool,
) {
    check_properties_with::<C>(&C::Config::default(), cluster, environment);
}

/// Like [`check_properties`], with a configuration.
///
/// # Panics
/// As [`check_properties`].
pub fn check_properties_with<C: Controller>(
    config: &C::Config,
    cluster: &FakeCluster,
    environment: impl Fn(&mut FakeCluster) -> bool,
) {
    let mut whole = cluster.clone();
    let lengths = run::<C>(config, &mut whole, &environment, None);
    let expect = whole.picture();
    for (round, actions) in lengths.into_iter().enumerate().take(INTERRUPTED_ROUNDS) {
        let prefixes = (0..actions.min(LEFT_OUT_MAX)).map(Cut::Prefix);
        let left_out = (0..actions.min(LEFT_OUT_MAX)).map(Cut::AllBut);
        for cut in prefixes.chain(left_out) {
            let mut cut_short = cluster.clone();
            run::<C>(config, &mut cut_short, &environment, Some((round, cut)));
            let picture = cut_short.picture();
            assert!(
                picture == expect,
                "{}: cut to {cut:?} in round {round} it settles differently\n--- expected\n{}\n--- settled\n{}\n--- log\n{}",
                C::NAME,
                expect.join("\n"),
                picture.join("\n"),
                cut_short.log.join("\n"),
            );
        }
    }
}

/// Runs to convergence and returns the number of actions in each round.
fn run<C: Controller>(
    config: &C::Config,
    cluster: &mut FakeCluster,
    environment: &impl Fn(&mut FakeCluster) -> bool,
    cut: Option<(usize, Cut)>,
) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut wakes = 0;
    let mut memories: BTreeMap<Key, Value> = BTreeMap::new();
    for round in 0..ROUNDS_MAX {
        let mut length = 0;
        let mut changes = 0;
        let mut wake_at = None;
        for key in keys::<C>(config, cluster) {
            let plan = checked_plan::<C>(config, cluster, &key, memories.get(&key));
            wake_at = [wake_at, plan.wake_at].into_iter().flatten().min();
            let cut = cut.filter(|(at, _)| *at == round).map(|(_, cut)| cut);
            let mut whole = cut.is_none();
            for (at, (action, after)) in plan.steps().enumerate() {
                let taken = match cut {
                    None => true,
                    Some(Cut::Prefix(len)) => length + at < len,
                    Some(Cut::AllBut(one)) => length + at != one,
                };
                if taken {
                    // After a rejection the next round observes again.
                    let executed = match after {
                        None => cluster.execute(action),
                        Some(after) => cluster.execute_after(after),
                    };
                    whole &= executed.is_ok();
                }
            }
            length += plan.steps().count();
            // Events change no state.
            changes += plan.steps().filter(|(action, _)| !matches!(action, Action::Event { .. })).count();
            match plan.remember {
                Some(remember) if whole => drop(memories.insert(key, remember)),
                _ if whole => drop(memories.remove(&key)),
                _ if cut.is_some() => memories.clear(),
                _ => {}
            }
        }
        lengths.push(length);
        let busy = environment(cluster);
        if changes > 0 || busy {
            wakes = 0;
            continue;
        }
        match wake_at {
            Some(time) if wakes < WAKES_MAX => {
                cluster.now = cluster.now.max(time);
                wakes += 1;
            }
            _ => return lengths,
        }
    }
    panic!("{} does not settle in {ROUNDS_MAX} rounds:\n{}", C::NAME, cluster.log.join("\n"));
}

/// Returns the keys that any object triggers. Checks that the plans for other keys of the first kind are done, because
/// no change would trigger them.
fn keys<C: Controller>(config: &C::Config, cluster: &FakeCluster) -> BTreeSet<Key> {
    let cache = cluster.cache::<C>();
    let mut keys = Vec::new();
    for kind in C::READS {
        cluster.of(kind).iter().for_each(|entry| C::affected_keys(&cache, *kind, &entry.value, &mut keys));
    }
    let keys: BTreeSet<Key> = keys.into_iter().collect();
    for Entry { key, .. } in cluster.of(C::READS[0]).iter().map(|entry| &**entry).filter(|it| !keys.contains(&it.key)) {
        let plan = checked_plan::<C>(config, cluster, key, None);
        let is_done = plan.steps().next().is_none() && plan.wake_at.is_none();
        assert!(is_done, "{}: no object concerns {key}, for which there is something to do\n{plan}", C::NAME);
    }
    keys
}

fn checked_plan<C: Controller>(
    config: &C::Config,
    cluster: &FakeCluster,
    key: &Key,
    memory: Option<&Value>,
) -> Plan<C::Effect> {
    let plan_once = || decide::<C>(&cluster.cache_for::<C>(key, memory), config, key, cluster.now);
    let (plan, again) = (plan_once(), plan_once());
    assert!(plan == again, "{}: the same observation gave two plans for {key}\n{plan}\n{again}", C::NAME);
    for (action, _) in plan.steps() {
        let writes = action.writes();
        assert!(action.is_declared(C::WRITES), "{}: {action}\nwrites {writes}, which is not declared", C::NAME);
    }
    if let Some(time) = plan.wake_at {
        assert!(time > cluster.now, "{}: wants to wake at {time}, which is past, for {key}", C::NAME);
    }
    plan
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use api::resources::{CONFIG_MAPS, PODS};
    use apimachinery::meta::Meta;
    use apimachinery::time::Time;
    use apimachinery::{GroupResource, value};

    use super::*;
    use crate::testing::kubelet;
    use crate::{Cache, Write, kinds};

    /// A test controller that keeps `count` pods for each ConfigMap. With `CARELESS` it ignores existing pods; with
    /// `DEAF` it is never triggered.
    struct Copies<const CARELESS: bool, const DEAF: bool>;

    struct Observation<'a> {
        map: &'a Value,
        pods: Vec<&'a Value>,
    }

    impl<const CARELESS: bool, const DEAF: bool> Controller for Copies<CARELESS, DEAF> {
        type Observed<'a> = Observation<'a>;
        type Config = ();
        type Effect = Infallible;
        const NAME: &'static str = "copies";
        const READS: &'static [GroupResource] = &[CONFIG_MAPS, PODS];
        const WRITES: &'static [Write] = &[(PODS, "")];

        fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
            if kind == CONFIG_MAPS && !DEAF {
                keys.push(Key::of(object));
            }
        }

        fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
            let map = cache.get(CONFIG_MAPS, key)?;
            Some(Observation { map, pods: cache.controlled_by(PODS, Meta::of(map).uid()).collect() })
        }

        fn plan(observed: &Observation<'_>, _: Time) -> Plan {
            let meta = Meta::of(observed.map);
            let have = if CARELESS && observed.pods.len() < 3 { 0 } else { observed.pods.len() };
            let owner = value!([{"uid": (meta.uid()), "controller": true}]);
            let pod =
                value!({"metadata": {"namespace": (meta.namespace()), "generateName": "p-", "ownerReferences": owner}});
            let create = Action::Create { resource: kinds::PODS.clone(), object: pod, result_event: None };
            Plan { actions: vec![create; 3usize.saturating_sub(have)], ..Plan::default() }
        }
    }

    fn new_cluster() -> FakeCluster {
        let mut cluster = FakeCluster::new(Time::from_unix(1_000, 0));
        cluster.add(&kinds::CONFIG_MAPS, value!({"metadata": {"namespace": "a", "name": "x"}}));
        cluster
    }

    #[test]
    fn level_triggered_controller_survives_interruption() {
        check_properties::<Copies<false, false>>(&new_cluster(), kubelet);
    }

    #[test]
    #[should_panic(expected = "no object concerns a/x")]
    fn controller_that_is_never_triggered_is_detected() {
        check_properties::<Copies<false, true>>(&new_cluster(), kubelet);
    }

    #[test]
    #[should_panic(expected = "settles differently")]
    fn controller_that_ignores_its_own_writes_is_detected() {
        check_properties::<Copies<true, false>>(&new_cluster(), kubelet);
    }
}
