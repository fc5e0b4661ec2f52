use apimachinery::{json, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::testing::{self, Cluster};

#[test]
fn kubelet_sets_kubelet_and_custom_labels_but_no_other_kubernetes_labels() {
    let check = |label: &str, forbidden: bool| assert_eq!(is_forbidden(label), forbidden, "{label}");
    check("kubernetes.io/hostname", false);
    check("a", false);
    check("example.com/a", false);
    check("node.kubernetes.io/x", false);
    check("x.node.kubernetes.io/x", false);
    check("failure-domain.beta.kubernetes.io/zone", false);
    check("failure-domain.kubernetes.io/zone", true);
    check("node-role.kubernetes.io/control-plane", true);
    check("node-restriction.kubernetes.io/a", true);
    check("x.k8s.io/a", true);
    check("notk8s.io/a", false);
}

/// A write by node `n1` or one of its components, with the expected result.
struct Case<'a> {
    kind: api::kind::Kind,
    user: (&'a str, &'a str),
    operation: Operation,
    subresource: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
    old: Option<Value>,
    cluster: Cluster,
}

impl Case<'_> {
    fn of(kind: api::kind::Kind, operation: Operation) -> Self {
        Self {
            kind,
            user: ("system:node:n1", auth::user::NODES),
            operation,
            subresource: "",
            namespace: None,
            name: "",
            old: None,
            cluster: Cluster::default(),
        }
    }

    /// Returns NodeRestriction's error message, empty if admitted.
    fn verdict(&self, mut object: Value) -> String {
        let user = auth::User::authenticated(self.user.0, [self.user.1.into()]);
        let mut request = testing::attributes(&self.kind, &user, self.operation);
        request.subresource = self.subresource;
        request.name = self.name;
        request.old = self.old.as_ref();
        request.namespace = self.namespace.unwrap_or(request.namespace);
        let verdict = NodeRestriction.admit(&request, &mut object, &self.cluster, &mut Notes::default());
        let message = verdict.err().map(|status| status.message).unwrap_or_default();
        message.split_once("forbidden: ").map_or(message.clone(), |(_, reason)| reason.to_owned())
    }
}

#[test]
fn kubelet_can_only_write_its_own_node_and_pods() {
    let node = |name| Case { name, ..Case::of(api::core::node::kind(), Operation::Create) };
    let labelled = value!({"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}}});
    assert_eq!(node("n1").verdict(labelled), "");
    let other = node("n2").verdict(value!({"metadata": {"name": "n2"}}));
    assert_eq!(other, r#"node "n1" is not allowed to modify node "n2""#);
    let role = value!({"metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/x": ""}}});
    let expected = r#"node "n1" is not allowed to set the following labels: node-role.kubernetes.io/x"#;
    assert_eq!(node("n1").verdict(role), expected);
    let pod = Case::of(api::core::pod::kind(), Operation::Create).verdict(value!({"metadata": {"name": "x"}}));
    let expected =
        r#"pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods"#;
    assert_eq!(pod, expected);
    let lease = |namespace| Case {
        namespace: Some(namespace),
        ..Case::of(api::coordination::lease::kind(), Operation::Create)
    };
    let object = || value!({"metadata": {"name": "n1"}});
    assert_eq!(lease("n").verdict(object()), r#"can only access leases in the "kube-node-lease" system namespace"#);
    assert_eq!(lease(LEASES).verdict(object()), "");
}

#[test]
fn kubelet_cannot_create_a_node_with_a_generated_name() {
    let case = Case::of(api::core::node::kind(), Operation::Create);
    let expected = r#"node "n1" is not allowed to modify node """#;
    assert_eq!(case.verdict(value!({"metadata": {"generateName": "n1"}})), expected);
}

#[test]
fn kubelet_cannot_change_the_owners_of_its_node() {
    let old = value!({"metadata": {"name": "n1"}, "spec": {}});
    for subresource in ["", "status"] {
        let case = Case {
            name: "n1",
            subresource,
            old: Some(old.clone()),
            ..Case::of(api::core::node::kind(), Operation::Update)
        };
        let owned = value!({"metadata": {"name": "n1", "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]}, "spec": {}});
        assert_eq!(case.verdict(owned), r#"node "n1" is not allowed to modify ownerReferences"#);
        assert_eq!(case.verdict(value!({"metadata": {"name": "n1", "ownerReferences": []}, "spec": {}})), "");
        let tainted = value!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
        assert_eq!(case.verdict(tainted), r#"node "n1" is not allowed to modify taints"#);
    }
}

#[test]
fn kubelet_cannot_change_claims_in_the_status_of_its_pods() {
    let pod = |status: Value| value!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status});
    let case = |old: Value| Case {
        name: "p",
        subresource: "status",
        old: Some(pod(old)),
        ..Case::of(api::core::pod::kind(), Operation::Update)
    };
    let empty = || value!({});
    assert_eq!(case(empty()).verdict(pod(value!({"phase": "Running", "resourceClaimStatuses": []}))), "");
    for (field, claims, what) in [
        ("resourceClaimStatuses", value!([{"name": "a", "resourceClaimName": "b"}]), "resource claim statues"),
        ("extendedResourceClaimStatus", value!({"resourceClaimName": "b"}), "extended resource claim status"),
        (
            "nodeAllocatableResourceClaimStatuses",
            value!([{"resourceClaimName": "b"}]),
            "node allocatable resource claim statuses",
        ),
    ] {
        let expected = format!(r#"node "n1" cannot update {what}"#);
        let status: Object = [(field.to_owned(), claims)].into_iter().collect();
        assert_eq!(case(empty()).verdict(pod(Value::Object(status.clone()))), expected);
        assert_eq!(case(Value::Object(status)).verdict(pod(empty())), expected);
    }
}

#[test]
fn mirror_pod_refers_to_no_api_object() {
    let cluster = || Cluster::default().with("", "nodes", r#"{"metadata": {"name": "n1", "uid": "u"}}"#);
    let verdict = |spec: &str| {
        let mut pod = value!({"metadata": {"name": "x", "annotations": {"kubernetes.io/config.mirror": "h"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": true}]}});
        let mut spec = json::parse(spec.as_bytes()).unwrap();
        spec.as_object_mut().unwrap().insert("nodeName", "n1");
        pod.as_object_mut().unwrap().insert("spec", spec);
        let case = Case { cluster: cluster(), ..Case::of(api::core::pod::kind(), Operation::Create) };
        case.verdict(pod)
    };
    let refers = |what: &str| format!(r#"node "n1" can not create pods that reference {what}"#);
    assert_eq!(verdict(r#"{"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}"#), "");
    assert_eq!(verdict(r#"{"volumes": [{"projected": {"sources": [{"downwardAPI": {}}]}}]}"#), "");
    for (spec, what) in [
        (r#"{"serviceAccountName": "a"}"#, "serviceaccounts"),
        (r#"{"imagePullSecrets": [{"name": "s"}]}"#, "secrets"),
        (r#"{"resourceClaims": [{"name": "r"}]}"#, "resourceclaims"),
        (r#"{"volumes": [{"csi": {"driver": "d"}}]}"#, "csidrivers (via CSI volumes)"),
        (r#"{"volumes": [{"ephemeral": {}}]}"#, "persistentvolumeclaims (via ephemeral volumes)"),
        (r#"{"volumes": [{"glusterfs": {"endpoints": "e"}}]}"#, "endpoints (via glusterFS volumes)"),
        (
            r#"{"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}"#,
            "serviceaccounts (via projected volumes)",
        ),
        (r#"{"volumes": [{"projected": {"sources": [{"podCertificate": {}}]}}]}"#, "podcertificates"),
        (r#"{"volumes": [{"fromTheFuture": {}}]}"#, "an unknown volume type"),
    ] {
        assert_eq!(verdict(spec), refers(what), "{spec}");
    }
}

#[test]
fn kubelet_gets_tokens_for_the_audiences_of_its_pods_only() {
    let pod = |node: &str| {
        format!(
            r#"{{"metadata": {{"name": "p", "namespace": "n", "uid": "u"}}, "spec": {{"nodeName": "{node}", "volumes": [
            {{"projected": {{"sources": [{{"serviceAccountToken": {{"audience": "vault"}}}}]}}}},
            {{"csi": {{"driver": "d"}}}}, {{"persistentVolumeClaim": {{"claimName": "c"}}}}]}}}}"#
        )
    };
    let cluster = |node: &str| {
        let driver = |name: &str, audience: &str| {
            format!(
                r#"{{"metadata": {{"name": "{name}"}}, "spec": {{"tokenRequests": [{{"audience": "{audience}"}}]}}}}"#
            )
        };
        Cluster::default()
            .with("", "pods", &pod(node))
            .with("storage.k8s.io", "csidrivers", &driver("d", "inline"))
            .with("storage.k8s.io", "csidrivers", &driver("e", "claimed"))
            .with(
                "",
                "persistentvolumeclaims",
                r#"{"metadata": {"name": "c", "namespace": "n"}, "spec": {"volumeName": "v"}}"#,
            )
            .with("", "persistentvolumes", r#"{"metadata": {"name": "v"}, "spec": {"csi": {"driver": "e"}}}"#)
    };
    let verdict = |cluster: Cluster, audiences: Value| {
        let case = Case {
            subresource: "token",
            name: "default",
            cluster,
            ..Case::of(api::core::service_account::kind(), Operation::Create)
        };
        case.verdict(value!({"spec": {"audiences": audiences,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}}}))
    };
    for audience in ["vault", "inline", "claimed"] {
        assert_eq!(verdict(cluster("n1"), value!([audience])), "", "{audience}");
    }
    let expected = r#"system:node:n1 is not authorized to request tokens for audience "other""#;
    assert_eq!(verdict(cluster("n1"), value!(["other"])), expected);
    assert_eq!(verdict(cluster("n1").allowing(true), value!(["other"])), "");
    assert_eq!(verdict(cluster("n1"), value!(["vault", "inline"])), "node may only request 0 or 1 audiences");
    let expected = "node requested token bound to a pod scheduled on a different node";
    assert_eq!(verdict(cluster("n2"), value!(["vault"])), expected);
}

#[test]
fn kubelet_requests_certificates_in_its_own_name_only() {
    let verdict = |file: &str, signer: &str| {
        let file = format!("{}/../../fuzz/corpus/csr/{file}.pem", env!("CARGO_MANIFEST_DIR"));
        let kind = api::certificates::certificate_signing_request::kind();
        let case = Case { user: ("system:node:n", auth::user::NODES), ..Case::of(kind, Operation::Create) };
        let request = STANDARD.encode(std::fs::read(file).unwrap());
        case.verdict(value!({"spec": {"signerName": signer, "request": request}}))
    };
    let (client, serving) = ("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving");
    assert_eq!(verdict("node", client), "");
    assert_eq!(verdict("serving", serving), "");
    assert_eq!(verdict("developer", client), "can only create a node CSR with CN=system:node:n");
    assert_eq!(verdict("developer", serving), "can only create a node CSR with CN=system:node:n");
    assert_eq!(verdict("developer", "example.com/other"), "");
    assert_eq!(verdict("text-before", client), "unable to parse csr: PEM block type must be CERTIFICATE REQUEST");
}

#[test]
fn kubelet_requests_pod_certificates_for_its_own_pods_only() {
    let cluster = |node: &str, annotations: &str| {
        let pod = format!(
            r#"{{"metadata": {{"name": "p", "namespace": "n", "uid": "pu", "annotations": {annotations}}},
            "spec": {{"nodeName": "{node}", "serviceAccountName": "a"}}}}"#
        );
        Cluster::default()
            .with("", "nodes", r#"{"metadata": {"name": "n1", "uid": "nu"}}"#)
            .with("", "serviceaccounts", r#"{"metadata": {"name": "a", "namespace": "n", "uid": "au"}}"#)
            .with("", "pods", &pod)
    };
    let spec = |changes: Value| {
        let spec = value!({"nodeName": "n1", "nodeUID": "nu", "podName": "p", "podUID": "pu", "serviceAccountName": "a",
            "serviceAccountUID": "au"});
        value!({"spec": (apimachinery::patch::merge::apply(spec, changes))})
    };
    let verdict = |cluster: Cluster, changes: Value| {
        let kind = api::certificates::pod_certificate_request::kind();
        Case { cluster, ..Case::of(kind, Operation::Create) }.verdict(spec(changes))
    };
    let good = || cluster("n1", "{}");
    assert_eq!(verdict(good(), value!({})), "");
    let other_node = r#"PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1""#;
    assert_eq!(verdict(good(), value!({"nodeName": "n2"})), other_node);
    assert!(verdict(good(), value!({"podUID": "x"})).contains("differs from running pod"));
    assert!(verdict(good(), value!({"nodeUID": "x"})).contains("inconsistent with the running node"));
    assert!(verdict(good(), value!({"serviceAccountUID": "x"})).contains("differs from the running service account"));
    assert!(verdict(good(), value!({"serviceAccountName": "b"})).contains("that differs from running pod"));
    assert!(verdict(good(), value!({"podName": "q"})).contains(r#"pods "q" not found"#));
    assert!(verdict(cluster("n2", "{}"), value!({})).contains("is not running on node"));
    assert!(verdict(cluster("n1", r#"{"kubernetes.io/config.mirror": "x"}"#), value!({})).ends_with("is a mirror pod"));
    let kind = api::certificates::pod_certificate_request::kind();
    let update = Case { name: "x", old: Some(spec(value!({}))), cluster: good(), ..Case::of(kind, Operation::Update) };
    assert_eq!(update.verdict(spec(value!({}))), "unexpected operation UPDATE");
}

#[test]
fn dns_component_publishes_its_own_node_only() {
    let node = r#"{"metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.1.2.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}"#;
    let case = |operation, name| Case {
        user: ("knarr:dns:n1", "knarr:dns"),
        namespace: Some("kube-system"),
        name,
        cluster: Cluster::default().with("", "nodes", node),
        ..Case::of(api::discovery::endpoint_slice::kind(), operation)
    };
    let slice = |name: &str, address: &str, node: &str, hint: &str| {
        value!({"metadata": {"name": name, "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "endpoints": [{"addresses": [address], "nodeName": node, "hints": {"forNodes": [{"name": hint}]}}]})
    };
    let own = "kube-dns-n1";
    assert_eq!(case(Operation::Create, own).verdict(slice(own, "192.0.2.1", "n1", "n1")), "");
    assert_eq!(case(Operation::Create, own).verdict(slice(own, "10.1.2.1", "n1", "n1")), "");
    assert_eq!(case(Operation::Delete, "kube-dns-n1-ipv6").verdict(Value::Null), "");
    let assert_rejected = |operation, name, slice| {
        let message = case(operation, name).verdict(slice);
        assert!(message.starts_with("knarr:dns:n1 can only "), "{message}");
    };
    assert_rejected(Operation::Create, own, slice(own, "203.0.113.9", "n1", "n1"));
    assert_rejected(Operation::Create, own, slice(own, "10.1.3.1", "n1", "n1"));
    assert_rejected(Operation::Create, own, slice(own, "192.0.2.1", "n2", "n1"));
    assert_rejected(Operation::Create, own, slice(own, "192.0.2.1", "n1", "n2"));
    assert_rejected(Operation::Create, "kube-dns-n2", slice("kube-dns-n2", "192.0.2.1", "n1", "n1"));
    assert_rejected(Operation::Update, "kube-dns-n2", slice("kube-dns-n2", "192.0.2.1", "n1", "n1"));
    assert_rejected(Operation::Delete, "kube-dns-n2", Value::Null);
    let nameless = Case { user: ("knarr:dns", "knarr:dns"), ..case(Operation::Create, "kube-dns-") };
    assert_ne!(nameless.verdict(slice("kube-dns-", "192.0.2.1", "", "")), "");
}

#[test]
fn network_component_writes_its_own_lease_only() {
    let verdict = |operation, namespace, name, holder: &str| {
        let case = Case {
            user: ("knarr:network:n1", "knarr:network"),
            namespace: Some(namespace),
            name,
            ..Case::of(api::coordination::lease::kind(), operation)
        };
        case.verdict(value!({"metadata": {"name": name}, "spec": {"holderIdentity": holder}}))
    };
    let own = "load-balancer-n1";
    assert_eq!(verdict(Operation::Create, LEASES, own, "n1"), "");
    assert_eq!(verdict(Operation::Delete, LEASES, own, ""), "");
    for message in [
        verdict(Operation::Create, LEASES, own, "n2"),
        verdict(Operation::Delete, LEASES, "load-balancer-n2", "n1"),
        verdict(Operation::Delete, LEASES, "n2", "n1"),
        verdict(Operation::Update, "kube-system", "kube-scheduler", "n1"),
    ] {
        assert_eq!(message, r#"knarr:network:n1 can only write the load balancer's Lease of node "n1""#);
    }
}

#[test]
fn local_path_component_provisions_on_its_own_node_only() {
    let claim = r#"{"metadata": {"name": "c", "namespace": "n", "uid": "u", "annotations": {
        "volume.kubernetes.io/storage-provisioner": "knarr.dev/local-path", "volume.kubernetes.io/selected-node": "n1"}},
        "spec": {"storageClassName": "local-path"}}"#;
    let volume = |node: &str, claim: &str| {
        value!({"metadata": {"name": "pvc-u", "annotations": {"pv.kubernetes.io/provisioned-by": "knarr.dev/local-path"},
            "finalizers": ["knarr.dev/local-path"]},
            "spec": {"local": {"path": "/x"}, "storageClassName": "local-path",
                "claimRef": {"namespace": "n", "name": claim, "uid": "u"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}}})
    };
    let case = |operation, old: Option<Value>| Case {
        user: ("knarr:local-path:n1", "knarr:local-path"),
        name: "pvc-u",
        old,
        cluster: Cluster::default().with("", "persistentvolumeclaims", claim),
        ..Case::of(api::core::persistent_volume::kind(), operation)
    };
    let is_rejected = |verdict: String| verdict.starts_with("knarr:local-path:n1 can only ");
    assert_eq!(case(Operation::Create, None).verdict(volume("n1", "c")), "");
    assert!(is_rejected(case(Operation::Create, None).verdict(volume("n2", "c"))));
    assert!(is_rejected(case(Operation::Create, None).verdict(volume("n1", "other"))));
    let unfinalized = apimachinery::patch::merge::apply(volume("n1", "c"), value!({"metadata": {"finalizers": null}}));
    assert_eq!(case(Operation::Update, Some(volume("n1", "c"))).verdict(unfinalized), "");
    assert!(is_rejected(case(Operation::Update, Some(volume("n1", "c"))).verdict(volume("n2", "c"))));
    assert!(is_rejected(case(Operation::Update, Some(volume("n2", "c"))).verdict(volume("n2", "c"))));
    assert_eq!(case(Operation::Delete, Some(volume("n1", "c"))).verdict(Value::Null), "");
    assert!(is_rejected(case(Operation::Delete, Some(volume("n2", "c"))).verdict(Value::Null)));
}
