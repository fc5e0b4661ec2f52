//! CSR approver: approves certificates that authorized nodes request for their kubelet and node components.

use std::convert::Infallible;
use std::net::IpAddr;

use api::certificates::request::CertificateRequest;
use api::resources::{self, CERTIFICATE_SIGNING_REQUESTS};
use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Value, value};
use auth::node::component;
use auth::user::{NODE_PREFIX, NODES};
use controller::{Action, Cache, Controller, Plan, ServerQuery, Write, kinds};

use crate::csr::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, check, is, parse, usages};

/// Initial delay until a denied SubjectAccessReview is repeated; doubles up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_nanos(200_000_000);
const RETRY_MAX: Duration = Duration::from_seconds(1000);

/// A reason to approve: the required subresource permission, and the message of the condition.
struct Approval {
    right: &'static str,
    message: &'static str,
}

/// A node that renews its own client certificate.
const SELF: Approval = Approval {
    right: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
/// A requester that may request node client certificates, such as the holder of a bootstrap token.
const NODE: Approval =
    Approval { right: "nodeclient", message: "Auto approving kubelet client certificate after SubjectAccessReview." };

/// A node that requests a client certificate for a component on it, such as kube-proxy.
const COMPONENT: Approval = Approval {
    right: "nodecomponentclient",
    message: "Auto approving certificate of a node's component after SubjectAccessReview.",
};

// DEVIATION: a kubelet's serving certificate is approved automatically if the node has the permission `selfnodeserver`
// and all names are the node's; upstream leaves these requests to other approvers. Only `knarr up` grants that
// permission.
/// A node that requests its kubelet's serving certificate.
const SERVING: Approval = Approval {
    right: "selfnodeserver",
    message: "Auto approving self kubelet serving certificate after SubjectAccessReview and checking the node's addresses.",
};

/// User and group of kube-proxy. As upstream, all nodes share them, because kube-proxy only reads.
const PROXY: (&str, &str) = ("system:kube-proxy", "system:node-proxier");

pub struct CsrApprover;

/// A pending request, and the reason to approve it, if any.
pub struct Observation<'a> {
    request: &'a Value,
    ground: Option<&'static Approval>,
    denials: i64,
}

impl Controller for CsrApprover {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "certificatesigningrequest-approving-controller";
    const READS: &'static [GroupResource] = &[CERTIFICATE_SIGNING_REQUESTS, resources::NODES];
    const WRITES: &'static [Write] = &[(CERTIFICATE_SIGNING_REQUESTS, "approval")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        if kind != resources::NODES {
            return keys.push(Key::of(object));
        }
        // Any node's addresses may allow or block a pending serving request.
        let waiting = cache.of(Self::READS[0]).iter().filter(|it| is_waiting(&it.value));
        let serving = waiting.filter(|it| it.value.text_at(&["spec", "signerName"]) == KUBELET_SERVING);
        keys.extend(serving.map(|it| it.key.clone()));
    }

    fn queries(cache: &Cache, key: &Key, _: Time) -> Vec<ServerQuery> {
        let Some(request) = waiting(cache, key) else { return Vec::new() };
        // The next review is requested only after the previous one was denied.
        let mut queries = Vec::new();
        for ground in grounds(cache, request) {
            let query = review(request, ground);
            let has_response = cache.response(&query).is_some();
            let allowed = is_allowed(cache, &query);
            queries.push(query);
            if !has_response || allowed {
                break;
            }
        }
        queries
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let request = waiting(cache, key)?;
        let grounds = grounds(cache, request);
        if grounds.is_empty() {
            return None;
        }
        let ground = grounds.into_iter().find(|ground| is_allowed(cache, &review(request, ground)));
        let denials = cache.memory().and_then(Value::as_int).unwrap_or(0);
        Some(Observation { request, ground, denials })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let Some(ground) = observed.ground else {
            // Permissions cannot be watched, so the review is repeated to detect permissions granted later.
            let wait = RETRY.nanos().saturating_mul(1 << observed.denials.clamp(0, 20)).min(RETRY_MAX.nanos());
            return Plan {
                wake_at: Some(now.plus(Duration::from_nanos(wait))),
                remember: Some((observed.denials + 1).into()),
                ..Plan::waiting("the requester is not authorized for automatic approval")
            };
        };
        let mut object = observed.request.clone();
        let now = now.to_string();
        let approved = value!({"type": "Approved", "status": "True", "reason": "AutoApproved",
            "message": (ground.message), "lastUpdateTime": (now.as_str()), "lastTransitionTime": (now.as_str())});
        let mut conditions = object.list_at(&["status", "conditions"]).to_vec();
        conditions.push(approved);
        if let Some(object) = object.as_object_mut()
            && let Some(status) = object.get_or_insert_with("status", Value::object).as_object_mut()
        {
            status.insert("conditions", conditions);
        }
        Plan::of(Action::UpdateSubresource {
            resource: kinds::CERTIFICATE_SIGNING_REQUESTS.clone(),
            subresource: "approval",
            object,
        })
    }
}

/// Returns the request if it is neither approved nor denied and has no certificate.
fn waiting<'a>(cache: &'a Cache, key: &Key) -> Option<&'a Value> {
    cache.get(CsrApprover::READS[0], key).filter(|request| is_waiting(request))
}

fn is_waiting(request: &Value) -> bool {
    let decided = ["Approved", "Denied"].iter().any(|kind| is(request, kind));
    !decided && request.text_at(&["status", "certificate"]).is_empty()
}

/// Returns the reasons that could apply to a request, the one with the narrowest permission first.
fn grounds(cache: &Cache, request: &Value) -> Vec<&'static Approval> {
    let signer = request.text_at(&["spec", "signerName"]);
    let Some(x509_request) =
        parse(request).filter(|x509_request| check(x509_request, signer, &usages(request)).is_ok())
    else {
        return Vec::new();
    };
    let is_self = request.text_at(&["spec", "username"]) == x509_request.common_name;
    match signer {
        KUBELET_CLIENT if is_self => vec![&SELF, &NODE],
        KUBELET_CLIENT => vec![&NODE],
        KUBELET_SERVING => {
            let is_own = requesting_node(request).is_some_and(|node| is_self && has_names(cache, &x509_request, node));
            if is_own { vec![&SERVING] } else { Vec::new() }
        }
        CLIENT => {
            let is_own = requesting_node(request).is_some_and(|node| is_component(&x509_request, node));
            if is_own { vec![&COMPONENT] } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// Returns the node that made the request, from the user and groups recorded by the API server.
fn requesting_node(request: &Value) -> Option<&str> {
    let is_node = request.list_at(&["spec", "groups"]).iter().any(|group| group.as_str() == Some(NODES));
    request.text_at(&["spec", "username"]).strip_prefix(NODE_PREFIX).filter(|node| is_node && !node.is_empty())
}

// DEVIATION: certificates of components that run on every node are approved for nodes with the permission
// `nodecomponentclient`. Only `knarr up` grants that permission.
/// Whether the request is for a component of this node. Bootstrap tokens cannot request component certificates: their
/// holder is not a node yet.
fn is_component(x509_request: &CertificateRequest, node: &str) -> bool {
    let [group] = x509_request.organizations.as_slice() else { return false };
    let is_named = x509_request.dns_names.len()
        + x509_request.addresses.len()
        + x509_request.emails.len()
        + x509_request.uris.len()
        > 0;
    let is_proxy = (x509_request.common_name.as_str(), group.as_str()) == PROXY;
    let is_own =
        component::ALL.contains(&group.as_str()) && x509_request.common_name == component::user_name(group, node);
    !is_named && (is_proxy || is_own)
}

/// Whether all names of the request are the node's, and no other node claims one of them.
///
/// Nodes report their addresses themselves. A node that claims an address of another existing node gets no certificate
/// for it. The request of the other node then needs an administrator.
fn has_names(cache: &Cache, x509_request: &CertificateRequest, node: &str) -> bool {
    let names: Vec<String> =
        x509_request.dns_names.iter().cloned().chain(x509_request.addresses.iter().map(ToString::to_string)).collect();
    let Some(own) = cache.get(resources::NODES, &Key::cluster(node)) else { return false };
    let is_of = |of: &Value, name: &str| {
        let addresses = of.list_at(&["status", "addresses"]).iter();
        addresses.map(|address| address.text_at(&["address"])).any(|address| same_name(address, name))
    };
    let others = || cache.of(resources::NODES).iter().filter(|it| Meta::of(&it.value).name() != node);
    let is_free = |name: &str| !others().any(|it| is_of(&it.value, name) || Meta::of(&it.value).name() == name);
    names.iter().all(|name| (name == node || is_of(own, name)) && is_free(name))
}

/// Compares IP addresses by value and DNS names case-insensitively.
fn same_name(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    }
}

/// Returns the SubjectAccessReview that checks whether the requester has the permission of the approval.
fn review(request: &Value, ground: &Approval) -> ServerQuery {
    let mut spec = value!({
        "user": (request.text_at(&["spec", "username"])),
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
    ServerQuery {
        resource: kinds::SUBJECT_ACCESS_REVIEWS.clone(),
        key: Key::default(),
        subresource: "".into(),
        labels: None,
        body: Some(body),
        as_of: None,
    }
}

fn is_allowed(cache: &Cache, query: &ServerQuery) -> bool {
    let response = cache.response(query).and_then(|response| response.as_ref().ok());
    response.is_some_and(|review| review.is_true_at(&["status", "allowed"]))
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties, run_until_stable};
    use proptest::prelude::*;

    use super::*;
    use crate::csr::tests::{OF_COMPONENT, OF_DNS, OF_NODE, OF_PERSON, OF_SERVER, request};

    const USAGES: &[&str] = &["digital signature", "client auth"];

    /// Checks the outcome for a requester with the permissions `rights`.
    fn check(request: &Value, rights: &[&str], expect: &str) {
        check_among(&[], request, rights, expect);
    }

    /// Like [`check`], in a cluster with these nodes.
    fn check_among(nodes: &[Value], request: &Value, rights: &[&str], expect: &str) {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let key = cluster.add(&kinds::CERTIFICATE_SIGNING_REQUESTS, request.clone());
        for node in nodes {
            cluster.add(&kinds::NODES, node.clone());
        }
        for ground in [&SELF, &NODE, &COMPONENT, &SERVING] {
            let allowed = rights.contains(&ground.right);
            cluster.set_response(&review(request, ground), Ok(value!({"status": {"allowed": allowed}})));
        }
        check_properties::<CsrApprover>(&cluster, |_| false);
        run_until_stable::<CsrApprover>(&mut cluster, |_| false);
        let stored = cluster.get(&kinds::CERTIFICATE_SIGNING_REQUESTS, &key).unwrap();
        let message =
            crate::condition::find(stored, "Approved").map(|message| message.text_at(&["message"]).to_owned());
        assert_eq!(message.unwrap_or_default(), expect);
    }

    #[test]
    fn kubelet_client_csr_is_approved_on_the_narrowest_permission() {
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

    /// Returns the request with another requester.
    fn by(request: Value, user: &str, group: &str) -> Value {
        apimachinery::patch::merge::apply(request, value!({"spec": {"username": user, "groups": [group]}}))
    }

    #[test]
    fn component_csr_is_approved_only_for_its_own_node() {
        let proxy = request(OF_COMPONENT, CLIENT, USAGES);
        check(&proxy, &["nodecomponentclient"], COMPONENT.message);
        check(&proxy, &["nodeclient", "selfnodeclient"], "");
        check(&request(OF_COMPONENT, KUBELET_CLIENT, USAGES), &["nodecomponentclient"], "");
        let dns = request(OF_DNS, CLIENT, USAGES);
        check(&dns, &["nodecomponentclient"], COMPONENT.message);
        check(&by(dns.clone(), "system:node:other", NODES), &["nodecomponentclient"], "");
        check(&by(dns.clone(), "system:node:n", "system:authenticated"), &["nodecomponentclient"], "");
    }

    #[test]
    fn bootstrap_token_gets_no_component_certificate() {
        for pem in [OF_COMPONENT, OF_DNS] {
            let csr = by(request(pem, CLIENT, USAGES), "system:bootstrap:abcdef", "system:bootstrappers:knarr:agents");
            check(&csr, &["nodecomponentclient", "nodeclient"], "");
        }
    }

    #[test]
    fn serving_csr_is_approved_only_for_addresses_of_the_node() {
        let node = |name: &str, addresses: &[&str]| {
            let typed = |address: &&str| {
                let kind = if address.parse::<IpAddr>().is_ok() { "InternalIP" } else { "Hostname" };
                value!({"type": kind, "address": (*address)})
            };
            let addresses: Vec<Value> = addresses.iter().map(typed).collect();
            value!({"metadata": {"name": name}, "status": {"addresses": addresses}})
        };
        let csr = request(OF_SERVER, KUBELET_SERVING, &["digital signature", "server auth"]);
        let all = &["selfnodeserver"];
        let own = node("n", &["n.example", "10.0.0.7"]);
        check_among(std::slice::from_ref(&own), &csr, all, SERVING.message);
        check_among(std::slice::from_ref(&own), &csr, &[], "");
        check_among(&[], &csr, all, "");
        check_among(&[node("n", &["n.example", "10.0.0.8"])], &csr, all, "");
        check_among(&[node("n", &["10.0.0.7"])], &csr, all, "");
        check_among(&[own.clone(), node("m", &["10.0.0.8"])], &csr, all, SERVING.message);
        check_among(&[own.clone(), node("m", &["10.0.0.7"])], &csr, all, "");
        check_among(&[own.clone(), node("n.example", &[])], &csr, all, "");
        check_among(&[own], &by(csr, "system:node:m", NODES), all, "");
    }

    #[test]
    fn other_requests_are_not_approved_regardless_of_permissions() {
        let all = &["selfnodeclient", "nodeclient", "nodecomponentclient", "selfnodeserver"];
        check(&request(OF_PERSON, CLIENT, USAGES), all, "");
        check(&request(OF_SERVER, KUBELET_CLIENT, USAGES), all, "");
        check(&request(OF_PERSON, KUBELET_CLIENT, USAGES), all, "");
        check(&request(OF_NODE, "kubernetes.io/kubelet-serving", USAGES), all, "");
        check(&request(OF_NODE, KUBELET_CLIENT, &["server auth"]), all, "");
        let denied = value!({"status": {"conditions": [{"type": "Denied", "status": "True"}]}});
        check(&apimachinery::patch::merge::apply(request(OF_NODE, KUBELET_CLIENT, USAGES), denied), all, "");
    }

    #[test]
    fn denied_access_reviews_are_retried_with_back_off() {
        let waits = |denials: i64| {
            let request = request(OF_NODE, KUBELET_CLIENT, USAGES);
            let now = Time::from_unix(1_700_000_000, 0);
            let plan = CsrApprover::plan(&Observation { request: &request, ground: None, denials }, now);
            plan.wake_at.unwrap().since(now).to_string()
        };
        assert_eq!([0, 1, 5, 60].map(waits), ["200ms", "400ms", "6.4s", "16m40s"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn properties_hold_in_generated_clusters(pem in 0..3usize, signer in 0..2usize, own: bool, selfs: bool, nodes: bool) {
            let pem = [OF_NODE, OF_SERVER, OF_PERSON][pem];
            let signer = [KUBELET_CLIENT, "kubernetes.io/kubelet-serving"][signer];
            let who = if own { "system:node:n" } else { "jane" };
            let request = request(pem, signer, USAGES);
            let request = apimachinery::patch::merge::apply(request, value!({"spec": {"username": who}}));
            let mut rights = Vec::new();
            rights.extend(selfs.then_some("selfnodeclient"));
            rights.extend(nodes.then_some("nodeclient"));
            let fits = pem == OF_NODE && signer == KUBELET_CLIENT;
            let expect = if fits && own && selfs { SELF.message } else if fits && nodes { NODE.message } else { "" };
            check(&request, &rights, expect);
        }
    }
}
