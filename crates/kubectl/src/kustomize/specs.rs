//! The fields that kustomize's transformations change, by kind.

use super::field_path::FieldSpec;

const TEMPLATES: &[&str] = &["Deployment", "ReplicaSet", "DaemonSet"];

const AFFINITY_SELECTORS: &[&str] = &[
    "affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
    "affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
    "topologySpreadConstraints/labelSelector/matchLabels",
];

/// A kind whose name other objects refer to, and the fields that do.
pub(super) struct NameReference {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub referrers: Vec<FieldSpec>,
}

/// Returns the labels of objects and of their templates.
pub(super) fn template_labels() -> Vec<FieldSpec> {
    let mut specs = vec![FieldSpec::new("metadata/labels").created()];
    specs.extend(templates("labels"));
    specs.push(of("apps", "StatefulSet", "spec/template/metadata/labels").created());
    specs.push(of("apps", "StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels").created());
    specs
}

/// Returns the labels and label selectors of objects.
pub(super) fn common_labels() -> Vec<FieldSpec> {
    let mut specs = vec![
        of("", "Service", "spec/selector").of_version("v1").created(),
        of("", "ReplicationController", "spec/selector").of_version("v1").created(),
        of("apps", "StatefulSet", "spec/selector/matchLabels").created(),
        of("batch", "Job", "spec/selector/matchLabels"),
        of("batch", "CronJob", "spec/jobTemplate/spec/selector/matchLabels"),
        of("policy", "PodDisruptionBudget", "spec/selector/matchLabels"),
        of("networking.k8s.io", "NetworkPolicy", "spec/podSelector/matchLabels"),
        of("networking.k8s.io", "NetworkPolicy", "spec/ingress/from/podSelector/matchLabels"),
        of("networking.k8s.io", "NetworkPolicy", "spec/egress/to/podSelector/matchLabels"),
    ];
    specs.extend(TEMPLATES.iter().map(|kind| of("", kind, "spec/selector/matchLabels").created()));
    for kind in ["Deployment", "StatefulSet"] {
        specs.extend(AFFINITY_SELECTORS.iter().map(|path| of("apps", kind, &format!("spec/template/spec/{path}"))));
    }
    specs.extend(template_labels());
    specs
}

/// Returns the annotations of objects and of their templates.
pub(super) fn common_annotations() -> Vec<FieldSpec> {
    let mut specs = vec![FieldSpec::new("metadata/annotations").created()];
    specs.extend(templates("annotations"));
    specs.push(of("", "StatefulSet", "spec/template/metadata/annotations").created());
    specs
}

pub(super) fn namespaces() -> Vec<FieldSpec> {
    vec![
        of("apiregistration.k8s.io", "APIService", "spec/service/namespace").created(),
        of(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "spec/conversion/webhook/clientConfig/service/namespace",
        ),
    ]
}

pub(super) fn replicas() -> Vec<FieldSpec> {
    let kinds = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"];
    kinds.iter().map(|kind| of("", kind, "spec/replicas").created()).collect()
}

pub(super) fn images() -> Vec<FieldSpec> {
    let paths = ["containers[]/image", "initContainers[]/image", "volumes[]/image/reference"];
    let prefixes = ["spec", "spec/template/spec"];
    prefixes
        .iter()
        .flat_map(|prefix| paths.iter().map(move |path| FieldSpec::new(&format!("{prefix}/{path}"))))
        .collect()
}

/// Returns the references by name that are updated when a name changes.
pub(super) fn name_references() -> Vec<NameReference> {
    let scaled = ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"];
    let scale =
        scaled.map(|kind| reference("", "", kind, vec![of("", "HorizontalPodAutoscaler", "spec/scaleTargetRef/name")]));
    let mut references: Vec<NameReference> = scale.into_iter().collect();
    references.extend([config_maps(), secrets(), services()]);
    let rbac = "rbac.authorization.k8s.io";
    let role_ref = |kind: &str| of(rbac, kind, "roleRef/name");
    references.push(reference(rbac, "", "Role", vec![role_ref("RoleBinding")]));
    references.push(reference(rbac, "", "ClusterRole", vec![role_ref("RoleBinding"), role_ref("ClusterRoleBinding")]));
    let mut accounts = vec![of(rbac, "RoleBinding", "subjects"), of(rbac, "ClusterRoleBinding", "subjects")];
    accounts.extend(pod_fields(SOME_WORKLOADS, &["serviceAccountName"]));
    references.push(reference("", "v1", "ServiceAccount", accounts));
    let claims = pod_fields(SOME_WORKLOADS, &["volumes/persistentVolumeClaim/claimName"]);
    references.push(reference("", "v1", "PersistentVolumeClaim", claims));
    let volumes =
        vec![of("", "PersistentVolumeClaim", "spec/volumeName"), of("", "ClusterRole", "rules/resourceNames")];
    references.push(reference("", "v1", "PersistentVolume", volumes));
    let classes = vec![
        of("", "PersistentVolume", "spec/storageClassName"),
        of("", "PersistentVolumeClaim", "spec/storageClassName"),
        of("", "StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName"),
    ];
    references.push(reference("storage.k8s.io", "v1", "StorageClass", classes));
    let priorities = pod_fields(SOME_WORKLOADS, &["priorityClassName"]);
    references.push(reference("scheduling.k8s.io", "v1", "PriorityClass", priorities));
    let admission = "admissionregistration.k8s.io";
    let policies = vec![of(admission, "ValidatingAdmissionPolicyBinding", "spec/policyName")];
    references.push(reference(admission, "", "ValidatingAdmissionPolicy", policies));
    references
}

/// The kinds with a pod template and the path of its spec.
const WORKLOADS: &[(&str, &str)] = &[
    ("Pod", "spec"),
    ("PodTemplate", "template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
];

/// The kinds for which kustomize updates references to service accounts, claims and priority classes.
const SOME_WORKLOADS: &[(&str, &str)] = &[
    ("Pod", "spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicationController", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
];

fn config_maps() -> NameReference {
    let mut referrers = pod_fields(
        WORKLOADS,
        &[
            "volumes/configMap/name",
            "containers/env/valueFrom/configMapKeyRef/name",
            "initContainers/env/valueFrom/configMapKeyRef/name",
            "containers/envFrom/configMapRef/name",
            "initContainers/envFrom/configMapRef/name",
            "volumes/projected/sources/configMap/name",
        ],
    );
    referrers.extend([
        of("", "Node", "spec/configSource/configMap"),
        of("", "Role", "rules/resourceNames"),
        of("", "ClusterRole", "rules/resourceNames"),
        of("", "Ingress", r"metadata/annotations/nginx.ingress.kubernetes.io\/fastcgi-params-configmap"),
    ]);
    reference("", "v1", "ConfigMap", referrers)
}

fn secrets() -> NameReference {
    let mut referrers = pod_fields(
        WORKLOADS,
        &[
            "volumes/secret/secretName",
            "containers/env/valueFrom/secretKeyRef/name",
            "initContainers/env/valueFrom/secretKeyRef/name",
            "containers/envFrom/secretRef/name",
            "initContainers/envFrom/secretRef/name",
            "imagePullSecrets/name",
            "volumes/projected/sources/secret/name",
        ],
    );
    referrers.extend([
        of("", "Ingress", "spec/tls/secretName"),
        of("", "Ingress", r"metadata/annotations/ingress.kubernetes.io\/auth-secret"),
        of("", "Ingress", r"metadata/annotations/nginx.ingress.kubernetes.io\/auth-secret"),
        of("", "Ingress", r"metadata/annotations/nginx.ingress.kubernetes.io\/auth-tls-secret"),
        of("", "ServiceAccount", "imagePullSecrets/name"),
        of("", "StorageClass", "parameters/secretName"),
        of("", "StorageClass", "parameters/adminSecretName"),
        of("", "StorageClass", "parameters/userSecretName"),
        of("", "StorageClass", "parameters/secretRef"),
        of("", "Role", "rules/resourceNames"),
        of("", "ClusterRole", "rules/resourceNames"),
        of("serving.knative.dev", "Service", "spec/template/spec/containers/env/valueFrom/secretKeyRef/name")
            .of_version("v1"),
        of("", "PersistentVolume", "spec/azureFile/secretName"),
    ]);
    reference("", "v1", "Secret", referrers)
}

fn services() -> NameReference {
    let admission = "admissionregistration.k8s.io";
    let referrers = vec![
        of("apps", "StatefulSet", "spec/serviceName"),
        of("", "Ingress", "spec/rules/http/paths/backend/serviceName"),
        of("", "Ingress", "spec/backend/serviceName"),
        of("", "Ingress", "spec/rules/http/paths/backend/service/name"),
        of("", "Ingress", "spec/defaultBackend/service/name"),
        of("apiregistration.k8s.io", "APIService", "spec/service/name"),
        of(admission, "ValidatingWebhookConfiguration", "webhooks/clientConfig/service"),
        of(admission, "MutatingWebhookConfiguration", "webhooks/clientConfig/service"),
    ];
    reference("", "v1", "Service", referrers)
}

/// Returns a field of the metadata of templates, except those of StatefulSets.
fn templates(field: &str) -> Vec<FieldSpec> {
    let template = format!("spec/template/metadata/{field}");
    let mut specs: Vec<FieldSpec> = TEMPLATES.iter().map(|kind| of("", kind, &template).created()).collect();
    specs.push(of("", "ReplicationController", &template).of_version("v1").created());
    specs.push(of("batch", "Job", &template).created());
    specs.push(of("batch", "CronJob", &format!("spec/jobTemplate/metadata/{field}")).created());
    specs.push(of("batch", "CronJob", &format!("spec/jobTemplate/spec/template/metadata/{field}")).created());
    specs
}

fn pod_fields(workloads: &[(&str, &str)], fields: &[&str]) -> Vec<FieldSpec> {
    let spec = |(kind, prefix): &(&str, &str), field: &&str| of("", kind, &format!("{prefix}/{field}"));
    workloads.iter().flat_map(|workload| fields.iter().map(move |field| spec(workload, field))).collect()
}

const fn reference(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    referrers: Vec<FieldSpec>,
) -> NameReference {
    NameReference { group, version, kind, referrers }
}

fn of(group: &str, kind: &str, path: &str) -> FieldSpec {
    FieldSpec::new(path).of_group(group).of_kind(kind)
}
