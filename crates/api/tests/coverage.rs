//! The catalogue contains every kind that upstream serves and every kind of `k8s-openapi`.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;

use apimachinery::schema::{Schema, Shape, Struct};
use apimachinery::{GroupVersion, GroupVersionKind, Str, Value, json};
use k8s_openapi::schemars::SchemaGenerator;
use k8s_openapi::serde_json::Value as Json;

#[test]
fn compare_kinds_of_the_catalogue_with_discovery() {
    let dir = std::fs::read_dir(test_requirements::upstream("reference/discovery")).unwrap();
    let documents = dir.map(|file| json::parse(&std::fs::read(file.unwrap().path()).unwrap()).unwrap());
    let kinds: BTreeSet<GroupVersionKind> = documents.flat_map(|document| served(&document)).collect();
    assert!(kinds.len() > 100, "{kinds:?}");
    let missing: Vec<_> = kinds.iter().filter(|kind| api::catalogue::schema(kind).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Returns the kinds in a discovery document; the version is that of the document unless specified.
fn served(document: &Value) -> Vec<GroupVersionKind> {
    let resources = document["resources"].as_array().unwrap_or_default();
    let version: GroupVersion = document["groupVersion"].as_str().unwrap_or_default().parse().unwrap();
    let text = |value: &Value, otherwise: &Str| value.as_str().map_or_else(|| otherwise.clone(), Str::from);
    let kind = |resource: &Value| GroupVersionKind {
        group: text(&resource["group"], &version.group),
        version: text(&resource["version"], &version.version),
        kind: text(&resource["kind"], &Str::default()),
    };
    resources.iter().map(kind).collect()
}

#[test]
fn every_kind_of_k8s_openapi_has_the_same_fields() {
    let mut known =
        SchemaComparison { generator: SchemaGenerator::default(), findings: Vec::new(), seen: BTreeSet::new() };
    known.all();
    assert!(known.seen.len() > 600, "{} types compared", known.seen.len());
    assert!(known.findings.is_empty(), "{}", known.findings.join("\n"));
}

struct SchemaComparison {
    generator: SchemaGenerator,
    findings: Vec<String>,
    /// Compared pairs of type names: theirs, ours.
    seen: BTreeSet<(String, String)>,
}

impl SchemaComparison {
    fn kind<K: k8s_openapi::Resource + k8s_openapi::schemars::JsonSchema>(&mut self) {
        let kind = GroupVersionKind::of(K::GROUP, K::VERSION, K::KIND);
        let expected = self.generator.subschema_for::<K>().to_value();
        match api::catalogue::schema(&kind) {
            Some(actual) => self.compare(&expected, actual, K::KIND),
            None => self.findings.push(format!("{kind} is missing")),
        }
    }

    /// Compares recursively until the other schema has no more information.
    fn compare(&mut self, expected: &Json, actual: Schema<'static>, path: &str) {
        let Some(name) = expected["$ref"].as_str().or_else(|| expected["allOf"][0]["$ref"].as_str()) else {
            return self.compare_definition(expected, actual, path);
        };
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        if self.seen.insert((name.clone(), actual.ty().name.to_string())) {
            let definition = self.generator.definitions()[&name].clone();
            self.compare_definition(&definition, actual, path);
        }
    }

    fn compare_definition(&mut self, expected: &Json, actual: Schema<'static>, path: &str) {
        if let Some(properties) = expected["properties"].as_object() {
            let Shape::Struct(Struct { fields, .. }) = actual.shape() else {
                return self.findings.push(format!("{path}: {actual:?} is not a struct"));
            };
            let here: BTreeSet<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            let there: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
            if here != there {
                let differ: Vec<_> = here.symmetric_difference(&there).collect();
                self.findings.push(format!("{path}: {actual:?} differs in {differ:?}"));
            }
            for (name, property) in properties {
                if let Some((_, ty)) = actual.field(name) {
                    self.compare(property, ty, &format!("{path}.{name}"));
                }
            }
        } else if expected["items"].is_object() {
            match actual.item() {
                Some(item) => self.compare(&expected["items"], item, path),
                None => self.findings.push(format!("{path}: {actual:?} is not a list")),
            }
        } else if expected["additionalProperties"].is_object() && expected["type"] == "object" {
            match actual.shape() {
                Shape::Map(map) => self.compare(&expected["additionalProperties"], actual.other(map.value), path),
                _ => self.findings.push(format!("{path}: {actual:?} is not a map")),
            }
        } else {
            self.compare_scalar(expected, actual, path);
        }
    }

    fn compare_scalar(&mut self, expected: &Json, actual: Schema<'static>, path: &str) {
        let fits = match (expected["type"].as_str(), expected["format"].as_str(), actual.shape()) {
            (Some("boolean"), _, shape) => matches!(shape, Shape::Bool),
            (Some("integer"), Some("int32"), shape) => matches!(shape, Shape::Int32),
            (Some("integer"), _, shape) => matches!(shape, Shape::Int64),
            (Some("number"), _, shape) => matches!(shape, Shape::Double),
            (Some("string"), Some("byte"), shape) => matches!(shape, Shape::Bytes),
            (Some("string"), Some("date-time"), shape) => matches!(shape, Shape::Time | Shape::MicroTime),
            (Some("string"), Some("int-or-string"), shape) => matches!(shape, Shape::IntOrString),
            (Some("string"), _, shape) => matches!(shape, Shape::String | Shape::Quantity | Shape::IntOrString),
            _ => true,
        };
        if !fits {
            self.findings.push(format!("{path}: {actual:?} is not {expected}"));
        }
    }
}

/// Compares every kind of every module.
macro_rules! kinds {
    ($($($module:ident)::+ => $($kind:ident),+;)+) => {
        impl SchemaComparison {
            fn all(&mut self) {
                $({
                    use k8s_openapi::$($module)::+ as module;
                    $(self.kind::<module::$kind>();)+
                })+
            }
        }
    };
}

kinds! {
    api::admissionregistration::v1 => MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration;
    api::admissionregistration::v1alpha1 => MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding;
    api::admissionregistration::v1beta1 => MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding;
    api::apiserverinternal::v1alpha1 => StorageVersion;
    api::apps::v1 => ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet;
    api::authentication::v1 => SelfSubjectReview, TokenRequest, TokenReview;
    api::authorization::v1 => LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview;
    api::autoscaling::v1 => HorizontalPodAutoscaler, Scale;
    api::autoscaling::v2 => HorizontalPodAutoscaler;
    api::batch::v1 => CronJob, Job;
    api::certificates::v1 => CertificateSigningRequest;
    api::certificates::v1alpha1 => ClusterTrustBundle;
    api::certificates::v1beta1 => ClusterTrustBundle, PodCertificateRequest;
    api::coordination::v1 => Lease;
    api::coordination::v1alpha2 => LeaseCandidate;
    api::coordination::v1beta1 => LeaseCandidate;
    api::core::v1 => Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount;
    api::discovery::v1 => EndpointSlice;
    api::events::v1 => Event;
    api::flowcontrol::v1 => FlowSchema, PriorityLevelConfiguration;
    api::networking::v1 => IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR;
    api::networking::v1beta1 => IPAddress, ServiceCIDR;
    api::node::v1 => RuntimeClass;
    api::policy::v1 => Eviction, PodDisruptionBudget;
    api::rbac::v1 => ClusterRole, ClusterRoleBinding, Role, RoleBinding;
    api::resource::v1 => DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
    api::resource::v1alpha3 => DeviceTaintRule, ResourcePoolStatusRequest;
    api::resource::v1beta1 => DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
    api::resource::v1beta2 => DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
    api::scheduling::v1 => PriorityClass;
    api::scheduling::v1alpha2 => PodGroup, Workload;
    api::storage::v1 => CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass;
    api::storage::v1beta1 => VolumeAttributesClass;
    api::storagemigration::v1beta1 => StorageVersionMigration;
    apiextensions_apiserver::pkg::apis::apiextensions::v1 => CustomResourceDefinition;
    apimachinery::pkg::apis::meta::v1 => APIGroup, APIGroupList, APIResourceList, APIVersions, Status;
    kube_aggregator::pkg::apis::apiregistration::v1 => APIService;
}
