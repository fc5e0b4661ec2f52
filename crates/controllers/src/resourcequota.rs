//! ResourceQuota controller: recalculates `status.used` of a quota from the objects of its namespace.
//!
//! The API server adds the usage of each write to the quota in the same transaction. This controller initializes the
//! usage and corrects it when objects are deleted or terminate.
//! A correction is conditional on the observed version of the quota, and must include all usage that the server added
//! until that version. A lower count would admit more than the quota allows.
//! Therefore only caches at that version or later are used. A kind whose watch lags behind is listed from the server.
//!
//! Kinds that are not watched, such as custom ones, are listed when a quota first counts them, and every five minutes.

use std::convert::Infallible;

use api::amounts::{self, Amounts};
use api::quota::{scopes, usage};
use api::resources::{
    self, CONFIG_MAPS, CRON_JOBS, CUSTOM_RESOURCE_DEFINITIONS, DAEMON_SETS, DEPLOYMENTS, JOBS,
    PERSISTENT_VOLUME_CLAIMS, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, RESOURCE_CLAIMS, RESOURCE_QUOTAS, SECRETS,
    SERVICE_ACCOUNTS, SERVICES, STATEFUL_SETS,
};
use apimachinery::meta::Meta;
use apimachinery::quantity::{Format, Quantity};
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Object, Resource, Str, Value};
use controller::{Action, Cache, Controller, Plan, ServerQuery, Write, kinds};

use crate::scale_target;

/// Retry delay after a failed list request.
const LATER: Duration = Duration::from_seconds(1);
/// Validity of the count of an unwatched kind, equal to upstream's full resync interval.
const COUNT_HOLDS: Duration = Duration::from_seconds(5 * 60);
/// Prefix of object count quotas. The resource follows.
const COUNT: &str = "count/";

pub struct ResourceQuota;

/// A quota, and the objects of its namespace for each counted kind.
pub struct Observation<'a> {
    quota: &'a Value,
    counted: Vec<CountedKind<'a>>,
    /// Counted kinds that are not watched. Their stored usage is kept unless they are counted now.
    unwatched: Vec<UnwatchedKind>,
    /// The time of the last count of the unwatched kinds.
    counted_at: Option<Time>,
}

struct CountedKind<'a> {
    resource: Resource,
    objects: Vec<&'a Value>,
    /// Whether the cache is older than the quota, so that objects may be missing.
    late: bool,
}

struct UnwatchedKind {
    /// The name in the quota.
    name: Str,
    query: ServerQuery,
    responded: bool,
}

/// The computed status, and the kinds whose caches are too old to write it.
struct Count {
    hard: Amounts,
    used: Amounts,
    late: Vec<Resource>,
}

impl Controller for ResourceQuota {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "resourcequota-controller";
    // DEVIATION: `count/…` of a kind that is not listed here, such as a custom one, is corrected every five minutes
    // only.
    const READS: &'static [GroupResource] = &[
        RESOURCE_QUOTAS,
        PODS,
        SERVICES,
        PERSISTENT_VOLUME_CLAIMS,
        CONFIG_MAPS,
        SECRETS,
        REPLICATION_CONTROLLERS,
        SERVICE_ACCOUNTS,
        DEPLOYMENTS,
        REPLICA_SETS,
        STATEFUL_SETS,
        DAEMON_SETS,
        JOBS,
        CRON_JOBS,
        RESOURCE_CLAIMS,
        CUSTOM_RESOURCE_DEFINITIONS,
    ];
    const WRITES: &'static [Write] = &[(RESOURCE_QUOTAS, "status")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        if kind == RESOURCE_QUOTAS {
            keys.push(Key::of(object));
        }
        if kind == CUSTOM_RESOURCE_DEFINITIONS {
            let name = format!("{COUNT}{}", Meta::of(object).name());
            let counting = cache.of(RESOURCE_QUOTAS).iter().filter(|it| hard(&it.value).contains_key(name.as_str()));
            keys.extend(counting.map(|it| it.key.clone()));
            return;
        }
        // The server already added created objects. Recounting them is cheap.
        for entry in cache.of(RESOURCE_QUOTAS).in_namespace(Meta::of(object).namespace()) {
            if hard(&entry.value).keys().any(|name| counted_by(kind, name)) {
                keys.push(entry.key.clone());
            }
        }
    }

    fn queries(cache: &Cache, key: &Key, now: Time) -> Vec<ServerQuery> {
        let Some(observed) = Self::observe(cache, &(), key) else { return Vec::new() };
        let mut queries = Vec::new();
        if observed.counted.iter().any(|counted| counted.late) {
            queries.extend(count(&observed, now).late.iter().map(|resource| list_query(resource, observed.quota)));
        }
        let used = amounts::read(observed.quota.at(&["status", "used"]));
        let is_due = observed.counted_at.is_none_or(|at| at.plus(COUNT_HOLDS) <= now);
        let due = observed.unwatched.into_iter().filter(|it| is_due || !used.contains_key(&it.name));
        queries.extend(due.map(|it| it.query));
        queries
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let quota = cache.get(RESOURCE_QUOTAS, key)?;
        let hard = hard(quota);
        let listed =
            |query: &ServerQuery| Some(cache.response(query)?.as_ref().ok()?.list_at(&["items"]).iter().collect());
        let mut counted = Vec::new();
        for kind in Self::READS.iter().copied().filter(|kind| hard.keys().any(|name| counted_by(*kind, name))) {
            let Some(resource) = resources::preferred_version(kind) else { continue };
            let responded = listed(&list_query(resource, quota));
            let late = responded.is_none() && !cache.has_reached(kind, quota);
            let objects = responded.unwrap_or_else(|| cache.in_namespace(kind, &key.namespace).collect());
            counted.push(CountedKind { resource: resource.clone(), objects, late });
        }
        let mut unwatched = unwatched(cache, quota, &hard);
        for UnwatchedKind { query, responded, .. } in &mut unwatched {
            let Some(objects) = listed(query) else { continue };
            *responded = true;
            counted.push(CountedKind { resource: query.resource.clone(), objects, late: false });
        }
        let counted_at = cache.memory().and_then(Value::as_str).and_then(|time| Time::parse(time).ok());
        Some(Observation { quota, counted, unwatched, counted_at })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let Count { hard, used, late } = count(observed, now);
        let mut plan = Plan::default();
        if !observed.unwatched.is_empty() {
            let is_counted = observed.unwatched.iter().all(|it| it.responded);
            let counted_at = if is_counted { Some(now) } else { observed.counted_at };
            plan.remember = counted_at.map(|at| at.to_string().into());
            plan.wake(counted_at.map_or(now.plus(COUNT_HOLDS), |at| at.plus(COUNT_HOLDS)).max(now.plus(LATER)));
        }
        if is_status_current(observed.quota, &hard, &used) {
            return plan;
        }
        if !late.is_empty() {
            let late: Vec<String> = late.iter().map(ToString::to_string).collect();
            plan.waiting = Some(format!("{} are cached at an older version than the quota's", late.join(", ")));
            plan.wake(now.plus(LATER));
            return plan;
        }
        let status: Object = [("hard", amounts::write(&hard)), ("used", amounts::write(&used))].into_iter().collect();
        let mut object = observed.quota.clone();
        object.as_object_mut().expect("cached objects are JSON objects").insert("status", status);
        plan.push(Action::UpdateStatus { resource: kinds::RESOURCE_QUOTAS.clone(), object });
        plan
    }
}

/// Computes the usage. A kind counts as late only if its usage would change, because unchanged usage is not written.
fn count(observed: &Observation<'_>, now: Time) -> Count {
    let quota = observed.quota;
    let hard = hard(quota);
    let before = amounts::read(quota.at(&["status", "used"]));
    let mut count = Count { hard, used: Amounts::new(), late: Vec::new() };
    for CountedKind { resource, objects, late } in &observed.counted {
        let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
        let names = count.hard.keys().filter(|name| usage::counts(group, plural, name));
        let mut used: Amounts = names.map(|name| (name.clone(), Quantity::new(0, Format::DecimalSI))).collect();
        for object in objects.iter().filter(|object| scopes::match_all(quota, group, plural, object)) {
            let mut more = usage::of(group, plural, object, now);
            more.retain(|name, _| used.contains_key(name));
            amounts::add(&mut used, &more);
        }
        if *late && used.iter().any(|(name, amount)| before.get(name) != Some(amount)) {
            count.late.push(resource.clone());
        }
        amounts::add(&mut count.used, &used);
    }
    for UnwatchedKind { name, .. } in observed.unwatched.iter().filter(|it| !it.responded) {
        count.used.extend(before.get(name).map(|stored| (name.clone(), *stored)));
    }
    count
}

/// Returns the kinds that the quota counts, that exist, and that are not watched.
fn unwatched(cache: &Cache, quota: &Value, hard: &Amounts) -> Vec<UnwatchedKind> {
    let is_watched = |name: &str| ResourceQuota::READS.iter().any(|kind| counted_by(*kind, name));
    let found = hard.keys().filter(|name| !is_watched(name)).filter_map(|name| {
        let (plural, group) = name.strip_prefix(COUNT).map(|kind| kind.split_once('.').unwrap_or((kind, "")))?;
        let resource = scale_target::by_plural(cache, group, plural)?;
        let query = ServerQuery::all(&resource, Meta::of(quota).namespace()).since(quota);
        Some(UnwatchedKind { name: name.clone(), query, responded: false })
    });
    found.collect()
}

fn is_status_current(quota: &Value, hard: &Amounts, used: &Amounts) -> bool {
    let has_amounts = |field: &str, amounts: &Amounts| {
        quota.at(&["status", field]).is_some_and(|value| amounts::read(Some(value)) == *amounts)
    };
    has_amounts("hard", hard) && has_amounts("used", used)
}

/// Returns the list request for a kind whose cache is older than the quota.
fn list_query(resource: &Resource, quota: &Value) -> ServerQuery {
    ServerQuery::all(resource, Meta::of(quota).namespace()).since(quota)
}

fn hard(quota: &Value) -> Amounts {
    amounts::read(quota.at(&["spec", "hard"]))
}

fn counted_by(kind: GroupResource, name: &str) -> bool {
    usage::counts(kind.group, kind.plural, name)
}

#[cfg(test)]
mod tests;
