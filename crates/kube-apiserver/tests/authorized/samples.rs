//! Sample objects: a valid object of every kind.

use api::kind::Kind;
use apimachinery::{Value, json};

/// The fields of each kind other than its metadata. `$NS` is the namespace, `$NAME` the first label of the name.
const FIELDS: &[(&str, &str)] = &[
    ("bindings", r#""target": {"kind": "Node", "name": "sample"}"#),
    ("componentstatuses", ""),
    ("configmaps", r#""data": {"k": "v"}"#),
    ("endpoints", r#""subsets": []"#),
    (
        "events",
        r#""involvedObject": {"kind": "Pod", "namespace": "$NS", "name": "p"}, "reason": "r", "type": "Normal""#,
    ),
    ("limitranges", r#""spec": {"limits": [{"type": "PersistentVolumeClaim", "min": {"storage": "1"}}]}"#),
    ("namespaces", ""),
    ("nodes", ""),
    (
        "persistentvolumeclaims",
        r#""spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}"#,
    ),
    (
        "persistentvolumes",
        r#""spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}"#,
    ),
    ("pods", r#""spec": {"containers": [{"name": "c", "image": "i"}]}"#),
    ("podtemplates", r#""template": $TEMPLATE"#),
    ("replicationcontrollers", r#""spec": {"selector": {"a": "b"}, "template": $TEMPLATE}"#),
    ("resourcequotas", r#""spec": {"hard": {"count/things.none.example.com": "1"}}"#),
    ("secrets", r#""stringData": {"k": "v"}"#),
    ("serviceaccounts", ""),
    ("services", r#""spec": {"ports": [{"port": 80}]}"#),
    (
        "apiservices.apiregistration.k8s.io",
        r#""spec": {"group": "away.example.com", "version": "$NAME", "groupPriorityMinimum": 100, "versionPriority": 10, "insecureSkipTLSVerify": true, "service": {"namespace": "tenant", "name": "away"}}"#,
    ),
    ("controllerrevisions.apps", r#""data": {"a": "b"}, "revision": 1"#),
    ("daemonsets.apps", r#""spec": {"selector": {"matchLabels": {"a": "b"}}, "template": $TEMPLATE}"#),
    ("deployments.apps", r#""spec": {"selector": {"matchLabels": {"a": "b"}}, "template": $TEMPLATE}"#),
    ("replicasets.apps", r#""spec": {"selector": {"matchLabels": {"a": "b"}}, "template": $TEMPLATE}"#),
    (
        "statefulsets.apps",
        r#""spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": $TEMPLATE}"#,
    ),
    (
        "events.events.k8s.io",
        r#""eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "example.com/c", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal", "regarding": {"kind": "Pod", "namespace": "$NS", "name": "p"}"#,
    ),
    ("selfsubjectreviews.authentication.k8s.io", ""),
    ("tokenreviews.authentication.k8s.io", r#""spec": {"token": "t"}"#),
    (
        "localsubjectaccessreviews.authorization.k8s.io",
        r#""spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "$NS"}}"#,
    ),
    (
        "selfsubjectaccessreviews.authorization.k8s.io",
        r#""spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}"#,
    ),
    ("selfsubjectrulesreviews.authorization.k8s.io", r#""spec": {"namespace": "tenant"}"#),
    (
        "subjectaccessreviews.authorization.k8s.io",
        r#""spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}"#,
    ),
    (
        "horizontalpodautoscalers.autoscaling",
        r#""spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 2}"#,
    ),
    ("cronjobs.batch", r#""spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": $JOB}}}"#),
    ("jobs.batch", r#""spec": {"template": $JOB}"#),
    (
        "certificatesigningrequests.certificates.k8s.io",
        r#""spec": {"request": "$REQUEST", "signerName": "example.com/s", "usages": ["client auth"]}"#,
    ),
    ("clustertrustbundles.certificates.k8s.io", r#""spec": {"trustBundle": "$CA"}"#),
    (
        "podcertificaterequests.certificates.k8s.io",
        r#""spec": {"signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "s", "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "maxExpirationSeconds": 86400, "stubPKCS10Request": "$REQUEST"}"#,
    ),
    ("ingressclasses.networking.k8s.io", r#""spec": {"controller": "example.com/c"}"#),
    (
        "ingresses.networking.k8s.io",
        r#""spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}"#,
    ),
    (
        "ipaddresses.networking.k8s.io",
        r#""spec": {"parentRef": {"resource": "services", "namespace": "tenant", "name": "s"}}"#,
    ),
    ("networkpolicies.networking.k8s.io", r#""spec": {"podSelector": {}}"#),
    ("servicecidrs.networking.k8s.io", r#""spec": {"cidrs": ["192.0.2.0/24"]}"#),
    ("poddisruptionbudgets.policy", r#""spec": {"minAvailable": 1, "selector": {"matchLabels": {"x": "y"}}}"#),
    (
        "clusterrolebindings.rbac.authorization.k8s.io",
        r#""roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}"#,
    ),
    (
        "clusterroles.rbac.authorization.k8s.io",
        r#""rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]"#,
    ),
    (
        "rolebindings.rbac.authorization.k8s.io",
        r#""roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}"#,
    ),
    ("roles.rbac.authorization.k8s.io", r#""rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]"#),
    ("csidrivers.storage.k8s.io", r#""spec": {}"#),
    ("csinodes.storage.k8s.io", r#""spec": {"drivers": []}"#),
    ("csistoragecapacities.storage.k8s.io", r#""storageClassName": "s""#),
    ("storageclasses.storage.k8s.io", r#""provisioner": "example.com/p""#),
    (
        "volumeattachments.storage.k8s.io",
        r#""spec": {"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}"#,
    ),
    ("volumeattributesclasses.storage.k8s.io", r#""driverName": "example.com", "parameters": {"a": "b"}"#),
    (
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        r#""spec": {"matchConstraints": $MATCH, "reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]}"#,
    ),
    ("mutatingadmissionpolicybindings.admissionregistration.k8s.io", r#""spec": {"policyName": "none"}"#),
    ("mutatingwebhookconfigurations.admissionregistration.k8s.io", r#""webhooks": []"#),
    (
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        r#""spec": {"matchConstraints": $MATCH, "validations": [{"expression": "true"}]}"#,
    ),
    (
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        r#""spec": {"policyName": "none", "validationActions": ["Deny"]}"#,
    ),
    ("validatingwebhookconfigurations.admissionregistration.k8s.io", r#""webhooks": []"#),
    (
        "customresourcedefinitions.apiextensions.k8s.io",
        r#""spec": {"group": "none.example.com", "scope": "Cluster", "names": {"plural": "$NAME", "kind": "K$NAME"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}"#,
    ),
    ("podgroups.scheduling.k8s.io", r#""spec": {"schedulingPolicy": {"basic": {}}}"#),
    ("priorityclasses.scheduling.k8s.io", r#""value": 1"#),
    (
        "workloads.scheduling.k8s.io",
        r#""spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}]}"#,
    ),
    (
        "leasecandidates.coordination.k8s.io",
        r#""spec": {"leaseName": "l", "binaryVersion": "1.36.0", "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion"}"#,
    ),
    ("leases.coordination.k8s.io", r#""spec": {"holderIdentity": "h", "leaseDurationSeconds": 10}"#),
    ("runtimeclasses.node.k8s.io", r#""handler": "h""#),
    ("endpointslices.discovery.k8s.io", r#""addressType": "IPv4", "endpoints": []"#),
    ("deviceclasses.resource.k8s.io", r#""spec": {}"#),
    (
        "devicetaintrules.resource.k8s.io",
        r#""spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "example.com/k", "effect": "NoSchedule"}}"#,
    ),
    ("resourceclaims.resource.k8s.io", r#""spec": {}"#),
    ("resourceclaimtemplates.resource.k8s.io", r#""spec": {"spec": {}}"#),
    ("resourcepoolstatusrequests.resource.k8s.io", r#""spec": {"driver": "d.example.com"}"#),
    (
        "resourceslices.resource.k8s.io",
        r#""spec": {"driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": []}"#,
    ),
    (
        "flowschemas.flowcontrol.apiserver.k8s.io",
        r#""spec": {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 9000}"#,
    ),
    (
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        r#""spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}"#,
    ),
    ("storageversions.internal.apiserver.k8s.io", r#""spec": {}"#),
    (
        "storageversionmigrations.storagemigration.k8s.io",
        r#""spec": {"resource": {"group": "apps", "resource": "deployments"}}"#,
    ),
    ("widgets.example.com", r#""spec": {"size": 1}"#),
    ("machines.example.com", r#""spec": {"size": 1}"#),
];

const TEMPLATE: &str = r#"{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}"#;
const JOB: &str = r#"{"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}"#;
const MATCH: &str = r#"{"resourceRules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"]}]}"#;

/// A certificate request and a CA certificate, generated once.
pub(crate) struct Samples {
    request: String,
    ca_pem: String,
}

impl Samples {
    pub(crate) fn new() -> Self {
        use base64::Engine;
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_pem = params.self_signed(&key).unwrap().pem();
        Self { request: base64::engine::general_purpose::STANDARD.encode(request), ca_pem: ca_pem.replace('\n', "\\n") }
    }

    /// Returns an object of a kind in the given version.
    pub(crate) fn object(&self, kind: &Kind, version: &str, namespace: &str, name: &str) -> Value {
        let resource = kind.qualified_resource();
        let found = FIELDS.iter().find(|(of, _)| *of == resource);
        let fields = found.unwrap_or_else(|| panic!("there is no sample of {resource}: add one to FIELDS")).1;
        let fields = fields
            .replace("$NS", namespace)
            .replace("$NAME", name.split('.').next().unwrap_or_default())
            .replace("$TEMPLATE", TEMPLATE)
            .replace("$JOB", JOB)
            .replace("$MATCH", MATCH)
            .replace("$REQUEST", &self.request)
            .replace("$CA", &self.ca_pem);
        let comma = if fields.is_empty() { "" } else { "," };
        let api_version = kind.gvk(version).api_version();
        let text = format!(
            r#"{{"apiVersion": "{api_version}", "kind": "{}", "metadata": {{"name": "{name}"}}{comma} {fields}}}"#,
            kind.kind
        );
        json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }
}

/// Returns the name of an existing object and of a missing one.
pub(crate) fn names(kind: &Kind) -> [&'static str; 2] {
    match kind.qualified_resource().as_str() {
        // A tenant's role includes its own Namespace object, so the other one is used.
        "namespaces" => ["other", "fresh"],
        "componentstatuses" => ["etcd-0", "fresh"],
        "ipaddresses.networking.k8s.io" => ["192.0.2.1", "192.0.2.2"],
        "apiservices.apiregistration.k8s.io" => ["v1.away.example.com", "v2.away.example.com"],
        "customresourcedefinitions.apiextensions.k8s.io" => ["samples.none.example.com", "fresh.none.example.com"],
        "storageversions.internal.apiserver.k8s.io" => ["none.example.com.samples", "none.example.com.fresh"],
        // Core events and events.k8s.io events are the same objects.
        "events.events.k8s.io" => ["sample-event", "fresh-event"],
        _ => ["sample", "fresh"],
    }
}
