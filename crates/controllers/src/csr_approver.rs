//! Approves what nodes ask for to show to the API server, if they may ask for it.

use machinery::time::{Duration, Time};
use machinery::{Key, Resource, Value, value};
use reconcile::{Action, Ask, Cache, Controller, Plan, kinds};

use crate::csr::{CLIENT, KUBELET_CLIENT, check, is, parse, usages};
use crate::read::text;

/// How long after a refusal the right is asked for again, at first; then ever longer.
const RETRY: Duration = Duration::from_nanos(200_000_000);
/// And at the most.
const RETRY_MAX: Duration = Duration::from_seconds(1000);

static REVIEWS: Resource =
    Resource::cluster("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview");

/// A reason to approve: the right that it takes, and what is said then.
struct Ground {
    right: &'static str,
    message: &'static str,
}

/// A node that renews what it has.
const SELF: Ground = Ground {
    right: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
/// Somebody who may ask for a node, such as the bearer of a bootstrap token.
const NODE: Ground =
    Ground { right: "nodeclient", message: "Auto approving kubelet client certificate after SubjectAccessReview." };

/// Somebody who may ask for what runs on every node beside its kubelet.
const COMPONENT: Ground = Ground {
    right: "nodecomponentclient",
    message: "Auto approving certificate of a node's component after SubjectAccessReview.",
};

// DEVIATION: certificates of the components that run on every node are approved like a kubelet's, for those who have the
// right `nodecomponentclient`; nobody has it but what `knarr up` gives it to.
/// What runs on a node beside its kubelet: the user and the groups that it is.
pub const COMPONENTS: &[(&str, &[&str])] = &[
    ("system:kube-proxy", &["system:node-proxier"]),
    ("knarr:network", &[]),
    ("knarr:dns", &[]),
    ("knarr:local-path", &[]),
];

/// The controller.
pub struct CsrApprover;

/// A request that waits, and on what ground it is approved, if on any.
pub struct Observed<'a> {
    request: &'a Value,
    ground: Option<&'static Ground>,
    refusals: i64,
}

impl Controller for CsrApprover {
    type Observed<'a> = Observed<'a>;
    const NAME: &'static str = "certificatesigningrequest-approving-controller";
    const READS: &'static [&'static str] = &["certificatesigningrequests.certificates.k8s.io"];
    const WRITES: &'static [&'static str] = &["certificatesigningrequests.certificates.k8s.io/approval"];

    fn concerns(_: &Cache, _: &str, object: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::of(object));
    }

    fn asks(cache: &Cache, key: &Key, _: Time) -> Vec<Ask> {
        let Some(request) = waiting(cache, key) else { return Vec::new() };
        // The second is asked only once the first is answered, and not at all if that was yes.
        let mut asks = Vec::new();
        for ground in grounds(request) {
            let ask = review(request, ground);
            let answered = cache.answer(&ask).is_some();
            let allowed = is_allowed(cache, &ask);
            asks.push(ask);
            if !answered || allowed {
                break;
            }
        }
        asks
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Observed<'a>> {
        let request = waiting(cache, key)?;
        let grounds = grounds(request);
        if grounds.is_empty() {
            return None;
        }
        let ground = grounds.into_iter().find(|ground| is_allowed(cache, &review(request, ground)));
        let refusals = cache.memory().and_then(Value::as_int).unwrap_or(0);
        Some(Observed { request, ground, refusals })
    }

    fn plan(observed: &Observed<'_>, now: Time) -> Plan {
        let Some(ground) = observed.ground else {
            // Rights are no objects that could be watched: whoever is given this one later is found by asking again.
            let wait = RETRY.nanos().saturating_mul(1 << observed.refusals.clamp(0, 20)).min(RETRY_MAX.nanos());
            return Plan {
                wake_at: Some(now.plus(Duration::from_nanos(wait))),
                remember: Some((observed.refusals + 1).into()),
                ..Plan::waiting("the requester may not have it approved by itself")
            };
        };
        let mut object = observed.request.clone();
        let now = now.to_string();
        let approved = value!({"type": "Approved", "status": "True", "reason": "AutoApproved",
            "message": (ground.message), "lastUpdateTime": (now.as_str()), "lastTransitionTime": (now.as_str())});
        let mut conditions = crate::read::list(&object, &["status", "conditions"]).to_vec();
        conditions.push(approved);
        if let Some(object) = object.as_object_mut()
            && let Some(status) = object.get_or_insert_with("status", Value::object).as_object_mut()
        {
            status.insert("conditions", conditions);
        }
        Plan::of(Action::UpdatePart {
            resource: kinds::CERTIFICATE_SIGNING_REQUESTS.clone(),
            subresource: "approval",
            object,
        })
    }
}

/// A request of which nothing is decided.
fn waiting<'a>(cache: &'a Cache, key: &Key) -> Option<&'a Value> {
    let request = cache.get(CsrApprover::READS[0], key)?;
    let decided = ["Approved", "Denied"].iter().any(|kind| is(request, kind));
    (!decided && text(request, &["status", "certificate"]).is_empty()).then_some(request)
}

/// On what grounds a request can be approved, the narrowest first. Only clients on nodes are approved by themselves.
fn grounds(request: &Value) -> Vec<&'static Ground> {
    let signer = text(request, &["spec", "signerName"]);
    let Some(asked) = parse(request) else { return Vec::new() };
    if ![CLIENT, KUBELET_CLIENT].contains(&signer) || check(&asked, signer, &usages(request)).is_err() {
        return Vec::new();
    }
    if signer == CLIENT {
        let is_component = COMPONENTS
            .iter()
            .any(|(user, groups)| asked.common_name == *user && asked.organizations.iter().eq(groups.iter()));
        return if is_component { vec![&COMPONENT] } else { Vec::new() };
    }
    if text(request, &["spec", "username"]) == asked.common_name { vec![&SELF, &NODE] } else { vec![&NODE] }
}

/// The question whether the requester has a right.
fn review(request: &Value, ground: &Ground) -> Ask {
    let mut spec = value!({
        "user": (text(request, &["spec", "username"])),
        "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
            "subresource": (ground.right), "version": "*"},
    });
    if let Some(spec) = spec.as_object_mut() {
        for field in ["uid", "groups", "extra"] {
            if let Some(value) = request.at(&["spec", field]) {
                spec.insert(field, value.clone());
            }
        }
    }
    let body = value!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    Ask {
        resource: REVIEWS.clone(),
        key: Key::default(),
        subresource: "".into(),
        labels: None,
        body: Some(body),
        as_of: None,
    }
}

fn is_allowed(cache: &Cache, ask: &Ask) -> bool {
    let answer = cache.answer(ask).and_then(|answer| answer.as_ref().ok());
    answer.is_some_and(|review| crate::read::is_true(review, &["status", "allowed"]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reconcile::testing::{World, obeys_laws, settle};

    use super::*;
    use crate::csr::tests::{OF_COMPONENT, OF_NODE, OF_PERSON, OF_SERVER, request};

    const USAGES: &[&str] = &["digital signature", "client auth"];

    /// What becomes of a request if the requester has these rights.
    fn check(request: &Value, rights: &[&str], expect: &str) {
        let mut world = World::new(Time::from_unix(1_700_000_000, 0));
        let key = world.add(&kinds::CERTIFICATE_SIGNING_REQUESTS, request.clone());
        for ground in [&SELF, &NODE, &COMPONENT] {
            let allowed = rights.contains(&ground.right);
            world.answer(&review(request, ground), Ok(value!({"status": {"allowed": allowed}})));
        }
        obeys_laws::<CsrApprover>(&world, |_| false);
        settle::<CsrApprover>(&mut world, |_| false);
        let settled = world.get(&kinds::CERTIFICATE_SIGNING_REQUESTS, &key).unwrap();
        let said = crate::condition::find(settled, "Approved").map(|said| text(said, &["message"]).to_owned());
        assert_eq!(said.unwrap_or_default(), expect);
    }

    #[test]
    fn a_kubelets_client_is_approved_by_the_narrowest_right_it_has() {
        let own = request(OF_NODE, KUBELET_CLIENT, USAGES);
        check(&own, &["selfnodeclient", "nodeclient"], SELF.message);
        check(&own, &["nodeclient"], NODE.message);
        check(&own, &[], "");
        let mut others = own;
        let spec = others.get_mut("spec").and_then(Value::as_object_mut).unwrap();
        spec.insert("username", "system:bootstrap:abcdef");
        check(&others, &["selfnodeclient"], "");
        check(&others, &["nodeclient"], NODE.message);
    }

    #[test]
    fn a_component_of_a_node_is_approved_for_who_may_ask_for_one() {
        let asked = request(OF_COMPONENT, CLIENT, USAGES);
        check(&asked, &["nodecomponentclient"], COMPONENT.message);
        check(&asked, &["nodeclient", "selfnodeclient"], "");
        check(&request(OF_COMPONENT, KUBELET_CLIENT, USAGES), &["nodecomponentclient"], "");
    }

    #[test]
    fn nothing_else_is_approved_whatever_the_rights() {
        let all = &["selfnodeclient", "nodeclient", "nodecomponentclient"];
        check(&request(OF_PERSON, CLIENT, USAGES), all, "");
        check(&request(OF_SERVER, KUBELET_CLIENT, USAGES), all, "");
        check(&request(OF_PERSON, KUBELET_CLIENT, USAGES), all, "");
        check(&request(OF_NODE, "kubernetes.io/kubelet-serving", USAGES), all, "");
        check(&request(OF_NODE, KUBELET_CLIENT, &["server auth"]), all, "");
        let denied = value!({"status": {"conditions": [{"type": "Denied", "status": "True"}]}});
        check(&machinery::patch::merge::apply(request(OF_NODE, KUBELET_CLIENT, USAGES), denied), all, "");
    }

    #[test]
    fn a_right_is_asked_for_ever_less_often() {
        let waits = |refusals: i64| {
            let request = request(OF_NODE, KUBELET_CLIENT, USAGES);
            let now = Time::from_unix(1_700_000_000, 0);
            let plan = CsrApprover::plan(&Observed { request: &request, ground: None, refusals }, now);
            plan.wake_at.unwrap().since(now).to_string()
        };
        assert_eq!([0, 1, 5, 60].map(waits), ["200ms", "400ms", "6.4s", "16m40s"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn it_obeys_the_laws_in_generated_worlds(pem in 0..3usize, signer in 0..2usize, own: bool, selfs: bool, nodes: bool) {
            let pem = [OF_NODE, OF_SERVER, OF_PERSON][pem];
            let signer = [KUBELET_CLIENT, "kubernetes.io/kubelet-serving"][signer];
            let who = if own { "system:node:n" } else { "jane" };
            let request = request(pem, signer, USAGES);
            let request = machinery::patch::merge::apply(request, value!({"spec": {"username": who}}));
            let mut rights = Vec::new();
            rights.extend(selfs.then_some("selfnodeclient"));
            rights.extend(nodes.then_some("nodeclient"));
            let fits = pem == OF_NODE && signer == KUBELET_CLIENT;
            let expect = if fits && own && selfs { SELF.message } else if fits && nodes { NODE.message } else { "" };
            check(&request, &rights, expect);
        }
    }
}
