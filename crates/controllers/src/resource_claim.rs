//! ResourceClaim controller: creates ResourceClaims from templates and deallocates those that no pod needs.
//!
//! A key is a pod, or a claim if its name has the prefix `claim:`, which is not valid in object names.

mod claim;
mod pod;

use std::convert::Infallible;

use api::resources::{EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use api::view::Pod;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Cache, Controller, Plan, ServerQuery, Write, kinds};

const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Prefix of the keys of claims.
const CLAIM_KEY: &str = "claim:";

pub struct ResourceClaim;

pub enum Observation<'a> {
    /// A pod.
    Pod {
        pod: &'a Value,
        /// The claims that the pod requests.
        claim_requests: Vec<ClaimRequest<'a>>,
    },
    /// A claim with the pods that may still use it.
    Claim {
        claim: &'a Value,
        /// The reservations of pods that need the claim; `None` until they are known.
        users: Option<Vec<&'a Value>>,
        /// The existing pod with the name of the claim's owner.
        owner: Option<&'a Value>,
    },
}

/// An entry of a pod's `spec.resourceClaims`.
pub struct ClaimRequest<'a> {
    stated: &'a Value,
    /// The existing claim.
    claim: Option<&'a Value>,
    /// The template, if the entry refers to one.
    template: Option<&'a Value>,
}

impl Controller for ResourceClaim {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "resourceclaim-controller";
    const READS: &'static [GroupResource] = &[PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES];
    const WRITES: &'static [Write] =
        &[(PODS, "status"), (RESOURCE_CLAIMS, ""), (RESOURCE_CLAIMS, "status"), (EVENTS, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            PODS => {
                let names = names_of(object);
                if !names.is_empty() || wants(object).next().is_some() {
                    keys.push(Key::of(object));
                }
                keys.extend(names.into_iter().map(|name| claim_key(meta.namespace(), name)));
            }
            RESOURCE_CLAIMS => {
                keys.push(claim_key(meta.namespace(), meta.name()));
                let owner = meta.controller().filter(|owner| owner.kind() == "Pod");
                keys.extend(owner.map(|owner| Key::new(meta.namespace(), owner.name())));
                let users = object.list_at(&["status", "reservedFor"]).iter();
                keys.extend(users.map(|user| Key::new(meta.namespace(), user.text_at(&["name"]))));
            }
            _ => {
                let wants_it =
                    |pod: &Value| wants(pod).any(|it| it.text_at(&["resourceClaimTemplateName"]) == meta.name());
                let pods = cache.of(PODS).in_namespace(meta.namespace()).filter(|it| wants_it(&it.value));
                keys.extend(pods.map(|it| it.key.clone()));
            }
        }
    }

    /// Requests all pods of the namespace if a reserved pod is not cached, because it may be newer than the cache.
    fn queries(cache: &Cache, key: &Key, _: Time) -> Vec<ServerQuery> {
        let Some(claim) = claim_of(cache, key) else { return Vec::new() };
        let unknown = claim.list_at(&["status", "reservedFor"]).iter().any(|user| known(cache, key, user).is_none());
        if unknown { vec![all_pods(key)] } else { Vec::new() }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        if key.name.starts_with(CLAIM_KEY) {
            let claim = claim_of(cache, key)?;
            let owner = Meta::of(claim).controller().filter(|owner| owner.kind() == "Pod");
            let owner = owner.and_then(|owner| cache.get(PODS, &Key::new(key.namespace.clone(), owner.name())));
            return Some(Observation::Claim { claim, users: users(cache, key, claim), owner });
        }
        let pod = cache.get(PODS, key)?;
        Some(Observation::Pod {
            pod,
            claim_requests: wants(pod).map(|stated| find_claim_request(cache, pod, stated)).collect(),
        })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        match observed {
            Observation::Pod { pod, claim_requests } => pod::plan(pod, claim_requests, now),
            Observation::Claim { claim, users, owner } => claim::plan(claim, users.as_deref(), *owner),
        }
    }
}

/// Whether a pod needs none of its claims any more: terminated, or deleted before it was bound.
pub(crate) fn is_done(pod: &Value) -> bool {
    Pod(pod).is_terminal() || Meta::of(pod).is_deleting() && Pod(pod).node_name().is_empty()
}

/// Returns the names of all claims that a pod uses.
pub(crate) fn names_of(pod: &Value) -> Vec<&str> {
    let stated = wants(pod).filter_map(|it| it.str_at(&["resourceClaimName"]));
    let made =
        pod.list_at(&["status", "resourceClaimStatuses"]).iter().filter_map(|it| it.str_at(&["resourceClaimName"]));
    let extended = pod.str_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"]);
    stated.chain(made).chain(extended).collect()
}

fn wants(pod: &Value) -> std::slice::Iter<'_, Value> {
    pod.list_at(&["spec", "resourceClaims"]).iter()
}

fn claim_key(namespace: &str, name: &str) -> Key {
    Key::new(namespace, format!("{CLAIM_KEY}{name}"))
}

fn claim_of<'a>(cache: &'a Cache, key: &Key) -> Option<&'a Value> {
    cache.get(RESOURCE_CLAIMS, &Key::new(key.namespace.clone(), key.name.strip_prefix(CLAIM_KEY)?))
}

fn all_pods(key: &Key) -> ServerQuery {
    ServerQuery::all(&kinds::PODS, &key.namespace)
}

/// Returns the reserved pod if it is cached with the same UID.
fn known<'a>(cache: &'a Cache, key: &Key, user: &Value) -> Option<&'a Value> {
    let pod = cache.get(PODS, &Key::new(key.namespace.clone(), user.text_at(&["name"])))?;
    (Meta::of(pod).uid() == user.text_at(&["uid"])).then_some(pod)
}

/// Returns the reservations of pods that still need the claim. Reservations for other resources are always kept.
/// Returns `None` while a pod's state is unknown.
fn users<'a>(cache: &Cache, key: &Key, claim: &'a Value) -> Option<Vec<&'a Value>> {
    let mut users = Vec::new();
    for user in claim.list_at(&["status", "reservedFor"]) {
        let is_pod = user.text_at(&["resource"]) == "pods" && user.text_at(&["apiGroup"]).is_empty();
        let needed = match known(cache, key, user) {
            _ if !is_pod => true,
            Some(pod) => !is_done(pod),
            None => {
                let all = cache.response(&all_pods(key))?.as_ref().ok()?;
                let same = |pod: &&Value| Meta::of(pod).uid() == user.text_at(&["uid"]);
                all.list_at(&["items"]).iter().find(same).is_some_and(|pod| !is_done(pod))
            }
        };
        users.extend(needed.then_some(user));
    }
    Some(users)
}

/// Finds the claim and the template of an entry. The claim is the one that the pod names, or one that the pod controls
/// with the entry's name.
fn find_claim_request<'a>(cache: &'a Cache, pod: &'a Value, stated: &'a Value) -> ClaimRequest<'a> {
    let meta = Meta::of(pod);
    let name = stated.text_at(&["name"]);
    let Some(template) = stated.str_at(&["resourceClaimTemplateName"]) else {
        let claim = cache.get(RESOURCE_CLAIMS, &Key::new(meta.namespace(), stated.text_at(&["resourceClaimName"])));
        return ClaimRequest { stated, claim, template: None };
    };
    let made = cache.controlled_by(RESOURCE_CLAIMS, meta.uid());
    let mut made = made.filter(|claim| Meta::of(claim).annotation(POD_CLAIM_NAME) == Some(name));
    ClaimRequest {
        stated,
        claim: made.next(),
        template: cache.get(RESOURCE_CLAIM_TEMPLATES, &Key::new(meta.namespace(), template)),
    }
}

#[cfg(test)]
mod tests;
