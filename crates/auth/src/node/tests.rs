//! Tests of the Node authorizer and its denial messages.

use apimachinery::{Value, fields, value};
use proptest::prelude::*;

use super::*;

fn node() -> Node {
    let mut node = Node::new();
    node.graph.set(Kind::Pod, &pod("p1", "n1"));
    node.graph.set(
        Kind::Pod,
        &value!({"metadata": {"namespace": "ns", "name": "free"}, "spec": {"serviceAccountName": "unbound"}}),
    );
    node.graph.set(
        Kind::Volume,
        &value!({"metadata": {"name": "pv"}, "spec": {
            "claimRef": {"namespace": "ns", "name": "pvc-p1"},
            "csi": {"nodeStageSecretRef": {"namespace": "csi", "name": "stage"}, "controllerPublishSecretRef": {"namespace": "csi", "name": "attach"}},
            "rbd": {"secretRef": {"name": "rbd"}},
        }}),
    );
    let named = |name: &str| value!({"metadata": {"name": name}, "spec": {"nodeName": "n1"}});
    node.graph.set(Kind::VolumeAttachment, &named("va"));
    node.graph.set(Kind::ResourceSlice, &named("slice"));
    let request = value!({"metadata": {"namespace": "ns", "name": "pcr"}, "spec": {"nodeName": "n1"}});
    node.graph.set(Kind::PodCertificateRequest, &request);
    node
}

fn pod(name: &str, node: &str) -> Value {
    let of = |what: &str| format!("{what}-{name}");
    value!({
        "metadata": {"namespace": "ns", "name": name},
        "spec": {
            "nodeName": node, "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": (of("env"))}}}, {"valueFrom": {"configMapKeyRef": {"name": "envmap"}}}]}],
            "containers": [{"envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "frommap"}}]}],
            "volumes": [
                {"name": "a", "secret": {"secretName": (of("vol"))}}, {"name": "b", "configMap": {"name": "volmap"}},
                {"name": "c", "projected": {"sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "projmap"}}]}},
                {"name": "d", "persistentVolumeClaim": {"claimName": (of("pvc"))}}, {"name": "eph", "ephemeral": {}},
                {"name": "f", "csi": {"nodePublishSecretRef": {"name": "csi"}}}, {"name": "g", "cephfs": {"secretRef": {"name": "ceph"}}},
            ],
            "resourceClaims": [{"name": "x", "resourceClaimName": "given"}, {"name": "y", "resourceClaimTemplateName": "t"}, {"name": "z", "resourceClaimTemplateName": "t"}],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made"}, {"name": "z"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
        },
    })
}

fn kubelet(name: &str) -> User {
    User::authenticated(format!("{NODE_PREFIX}{name}"), [NODES.into()])
}

/// Returns "yes" or the denial reason for the request `verb group/resource/subresource namespace/name`.
fn authorize(node: &Node, user: &User, request: &str, selector: &str) -> String {
    let fields: Vec<&str> = request.split(' ').collect();
    let what: Vec<&str> = fields[1].split('/').collect();
    let (namespace, name) = fields[2].split_once('/').unwrap();
    let selector = fields::Selector::parse(selector).unwrap();
    let resource = Resource {
        group: what[0],
        version: "v1",
        resource: what[1],
        subresource: what.get(2).copied().unwrap_or_default(),
        namespace,
        name,
        field_selector: selector.requirements(),
        ..Resource::default()
    };
    match node.authorize(&Attributes { user, verb: fields[0], target: Target::Resource(resource) }) {
        Decision::Allow(_) => "yes".to_owned(),
        Decision::NoOpinion(reason) => reason,
        Decision::Deny(_) => panic!("the node authorizer never denies"),
    }
}

fn check_all(table: &[(&str, &str)]) {
    let node = node();
    for (request, expect) in table {
        let (request, selector) = request.split_once(" ? ").unwrap_or((request, ""));
        assert_eq!(authorize(&node, &kubelet("n1"), request, selector), *expect, "{request}");
    }
}

const UNRELATED: &str = "no relationship found between node 'n1' and this object";

#[test]
fn kubelet_reads_objects_that_its_pods_refer_to() {
    let secrets = ["pull", "env-p1", "from", "vol-p1", "proj", "csi", "ceph", "rbd"];
    let maps = ["envmap", "frommap", "volmap", "projmap"];
    let claims = ["given", "made", "extended"];
    let node = node();
    let check = |request: String| {
        assert_eq!(authorize(&node, &kubelet("n1"), &request, ""), "yes", "{request}");
        let other = "no relationship found between node 'n2' and this object";
        assert_eq!(authorize(&node, &kubelet("n2"), &request, ""), other, "{request}");
    };
    for secret in secrets {
        for verb in ["get", "list", "watch"] {
            check(format!("{verb} /secrets ns/{secret}"));
        }
    }
    maps.iter().for_each(|map| check(format!("watch /configmaps ns/{map}")));
    claims.iter().for_each(|claim| check(format!("get resource.k8s.io/resourceclaims ns/{claim}")));
    for claim in ["pvc-p1", "p1-eph"] {
        check(format!("get /persistentvolumeclaims ns/{claim}"));
        check(format!("update /persistentvolumeclaims/status ns/{claim}"));
    }
    check("get /persistentvolumes /pv".to_owned());
    check("get /secrets csi/stage".to_owned());
    check("get storage.k8s.io/volumeattachments /va".to_owned());
    check("get /pods ns/p1".to_owned());
    check("create /serviceaccounts/token ns/robot".to_owned());
    check("get /serviceaccounts ns/robot".to_owned());
}

#[test]
fn denials_have_upstreams_reasons() {
    check_all(&[
        ("get /secrets ns/other", UNRELATED),
        ("get /secrets other/pull", UNRELATED),
        ("get /secrets csi/attach", UNRELATED),
        ("create /serviceaccounts/token ns/unbound", UNRELATED),
        ("get /secrets ns/", "No Object name found"),
        ("list /secrets /", "can only read namespaced object of this type"),
        ("update /secrets ns/pull", "can only read resources of this type"),
        ("get /configmaps/x ns/volmap", "cannot read subresource"),
        ("list /persistentvolumeclaims ns/", "can only get individual resources of this type"),
        ("get /persistentvolumes/status /pv", "cannot get subresource"),
        ("get /persistentvolumeclaims/status ns/pvc-p1", "can only get/update/patch this type"),
        ("create /serviceaccounts/token ns/", "can only create tokens for individual service accounts"),
        ("delete /serviceaccounts ns/robot", "can only create tokens for individual service accounts"),
        ("create /serviceaccounts/scale ns/robot", "can only create token subresource of serviceaccount"),
    ]);
}

#[test]
fn kubelet_manages_its_own_lease_and_csi_node() {
    let lease = "can only access node lease with the same name as the requesting node";
    check_all(&[
        ("update coordination.k8s.io/leases kube-node-lease/n1", "yes"),
        ("create coordination.k8s.io/leases kube-node-lease/", "yes"),
        ("get coordination.k8s.io/leases kube-node-lease/n2", lease),
        (
            "get coordination.k8s.io/leases default/n1",
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        (
            "list coordination.k8s.io/leases kube-node-lease/",
            "can only get, create, update, patch, or delete a node lease",
        ),
        ("patch storage.k8s.io/csinodes /n1", "yes"),
        ("create storage.k8s.io/csinodes /", "yes"),
        ("get storage.k8s.io/csinodes /n2", "can only access CSINode with the same name as the requesting node"),
        ("watch storage.k8s.io/csinodes /", "can only get, create, update, patch, or delete a CSINode"),
        ("get storage.k8s.io/csinodes/x /n1", "cannot authorize CSINode subresources"),
    ]);
}

#[test]
fn kubelet_reads_its_own_node_and_pods() {
    let pods = "can only list/watch pods with spec.nodeName field selector";
    check_all(&[
        ("get /nodes /n1", "yes"),
        ("list /nodes /n1", "yes"),
        ("create /nodes /", "yes"),
        ("patch /nodes/status /n1", "yes"),
        ("list /nodes /", "node 'n1' cannot read all nodes, only its own Node object"),
        ("get /nodes /n2", "node 'n1' cannot read 'n2', only its own Node object"),
        ("delete /nodes /n1", ""),
        ("get /nodes/proxy /n1", ""),
        ("list /pods / ? spec.nodeName=n1", "yes"),
        ("watch /pods ns/ ? status.phase!=x,spec.nodeName=n1", "yes"),
        ("list /pods / ? spec.nodeName=n2", pods),
        ("list /pods / ? spec.nodeName!=n1", pods),
        ("list /pods /", pods),
        ("watch /pods ns/p1", "yes"),
        ("watch /pods ns/p2", UNRELATED),
        ("get /pods ns/p2", UNRELATED),
        ("create /pods ns/", "yes"),
        ("delete /pods ns/p1", "yes"),
        ("patch /pods/status ns/p1", "yes"),
        ("create /pods/eviction ns/p1", "yes"),
        ("create /pods/exec ns/p1", ""),
        ("update /pods ns/p1", ""),
    ]);
}

#[test]
fn kubelet_manages_its_own_slices_and_certificate_requests() {
    let slices = "can only list/watch/deletecollection resourceslices with nodeName field selector";
    let requests = "can only list/watch podcertificaterequests with nodeName field selector";
    check_all(&[
        ("get resource.k8s.io/resourceslices /slice", "yes"),
        ("create resource.k8s.io/resourceslices /", "yes"),
        ("delete resource.k8s.io/resourceslices /other", UNRELATED),
        ("deletecollection resource.k8s.io/resourceslices / ? spec.nodeName=n1", "yes"),
        ("list resource.k8s.io/resourceslices /", slices),
        ("get resource.k8s.io/resourceslices/status /slice", "cannot authorize ResourceSlice subresources"),
        ("create certificates.k8s.io/podcertificaterequests ns/", "yes"),
        ("get certificates.k8s.io/podcertificaterequests ns/pcr", "yes"),
        ("get certificates.k8s.io/podcertificaterequests ns/other", UNRELATED),
        ("watch certificates.k8s.io/podcertificaterequests / ? spec.nodeName=n1", "yes"),
        ("watch certificates.k8s.io/podcertificaterequests /", requests),
        ("delete certificates.k8s.io/podcertificaterequests ns/pcr", "nodes may not delete podcertificaterequests"),
        (
            "update certificates.k8s.io/podcertificaterequests/status ns/pcr",
            "nodes may not access the status subresource of PodCertificateRequests",
        ),
    ]);
}

#[test]
fn common_permissions_come_from_the_system_node_role() {
    check_all(&[
        ("create certificates.k8s.io/certificatesigningrequests /", "yes"),
        ("list /services /", "yes"),
        ("create /events ns/", "yes"),
        ("delete /services ns/x", ""),
        ("list apps/deployments /", ""),
        ("list certificates.k8s.io/clustertrustbundles /", "yes"),
        ("update certificates.k8s.io/clustertrustbundles /b", ""),
    ]);
}

#[test]
fn other_users_get_no_opinion() {
    let node = node();
    assert_eq!(authorize(&node, &User::authenticated("eve", []), "get /nodes /n1", ""), "");
    let groupless = User::authenticated("system:node:n1", []);
    assert_eq!(authorize(&node, &groupless, "get /nodes /n1", ""), "");
    assert_eq!(authorize(&node, &kubelet(""), "get /nodes /n1", ""), "unknown node for user \"system:node:\"");
    assert!(Node::hides_rules_of(&kubelet("n1")) && !Node::hides_rules_of(&groupless));
}

#[test]
fn mirror_pod_relates_to_no_other_objects() {
    let mut node = Node::new();
    let mut mirror = pod("p1", "n1");
    apimachinery::meta::MetaMut::of(&mut mirror).unwrap().set_annotation("kubernetes.io/config.mirror", "x");
    node.graph.set(Kind::Pod, &mirror);
    assert_eq!(authorize(&node, &kubelet("n1"), "get /pods ns/p1", ""), "yes");
    assert_eq!(authorize(&node, &kubelet("n1"), "get /secrets ns/pull", ""), UNRELATED);
}

#[test]
fn access_is_revoked_when_no_pod_needs_the_object() {
    let mut node = node();
    node.graph.set(Kind::Pod, &pod("p2", "n1"));
    node.graph.remove(Kind::Pod, "ns", "p1");
    assert_eq!(authorize(&node, &kubelet("n1"), "get /secrets ns/pull", ""), "yes", "another pod names it");
    assert_eq!(authorize(&node, &kubelet("n1"), "get /secrets ns/vol-p1", ""), UNRELATED);
    assert_eq!(authorize(&node, &kubelet("n1"), "get /persistentvolumes /pv", ""), UNRELATED);
    node.graph.set(Kind::Pod, &pod("p2", "n2"));
    assert_eq!(authorize(&node, &kubelet("n1"), "get /secrets ns/pull", ""), UNRELATED);
    for (kind, namespace, name) in [
        (Kind::Pod, "ns", "p2"),
        (Kind::Volume, "", "pv"),
        (Kind::VolumeAttachment, "", "va"),
        (Kind::ResourceSlice, "", "slice"),
        (Kind::PodCertificateRequest, "ns", "pcr"),
    ] {
        node.graph.remove(kind, namespace, name);
    }
    assert!(node.graph.is_empty(), "nothing is left behind: {:?}", node.graph);
}

#[derive(Clone, Debug)]
enum Change {
    Pod { name: u8, node: u8, secret: u8, claim: u8 },
    DeletePod(u8),
    Volume { name: u8, claim: u8, secret: u8 },
    DeleteVolume(u8),
}

fn changes() -> impl Strategy<Value = Change> {
    let few = || 0u8..3;
    prop_oneof![
        (few(), few(), few(), few()).prop_map(|(name, node, secret, claim)| Change::Pod { name, node, secret, claim }),
        few().prop_map(Change::DeletePod),
        (few(), few(), few()).prop_map(|(name, claim, secret)| Change::Volume { name, claim, secret }),
        few().prop_map(Change::DeleteVolume),
    ]
}

proptest! {
    /// After any changes, a node is related to exactly the objects reachable from the existing pods and volumes.
    #[test]
    fn relations_match_the_existing_objects(changes in prop::collection::vec(changes(), 0..60)) {
        let mut graph = Graph::default();
        let mut pods = std::collections::BTreeMap::new();
        let mut volumes = std::collections::BTreeMap::new();
        for change in changes {
            match change {
                Change::Pod { name, node, secret, claim } => {
                    pods.insert(name, (node, secret, claim));
                    let volumes = value!([
                        {"secret": {"secretName": (format!("s{secret}"))}},
                        {"persistentVolumeClaim": {"claimName": (format!("c{claim}"))}},
                    ]);
                    graph.set(Kind::Pod, &value!({
                        "metadata": {"namespace": "ns", "name": (format!("p{name}"))},
                        "spec": {"nodeName": (format!("n{node}")), "volumes": volumes},
                    }));
                }
                Change::DeletePod(name) => {
                    pods.remove(&name);
                    graph.remove(Kind::Pod, "ns", &format!("p{name}"));
                }
                Change::Volume { name, claim, secret } => {
                    volumes.insert(name, (claim, secret));
                    graph.set(Kind::Volume, &value!({
                        "metadata": {"name": (format!("v{name}"))},
                        "spec": {
                            "claimRef": {"namespace": "ns", "name": (format!("c{claim}"))},
                            "rbd": {"secretRef": {"name": (format!("s{secret}"))}},
                        },
                    }));
                }
                Change::DeleteVolume(name) => {
                    volumes.remove(&name);
                    graph.remove(Kind::Volume, "", &format!("v{name}"));
                }
            }
        }
        for node in 0..3u8 {
            let on_node = || pods.values().filter(|pod| pod.0 == node);
            let claims = |claim: u8| on_node().any(|pod| pod.2 == claim);
            for one in 0..3u8 {
                let through = volumes.values().any(|volume| volume.1 == one && claims(volume.0));
                let secret = on_node().any(|pod| pod.1 == one) || through;
                let name = format!("n{node}");
                prop_assert_eq!(graph.relates(Kind::Secret, "ns", &format!("s{one}"), &name), secret);
                prop_assert_eq!(graph.relates(Kind::Claim, "ns", &format!("c{one}"), &name), claims(one));
                let volume = volumes.get(&one).is_some_and(|volume| claims(volume.0));
                prop_assert_eq!(graph.relates(Kind::Volume, "", &format!("v{one}"), &name), volume);
            }
        }
        prop_assert_eq!(graph.is_empty(), pods.is_empty() && volumes.is_empty());
    }
}
