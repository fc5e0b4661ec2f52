//! Build script: collects the type and field descriptions of k8s-openapi into one compressed text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use k8s_openapi::schemars::{Schema, SchemaGenerator};

/// Adds kinds to a schema generator, which includes every type they refer to.
macro_rules! describe {
    ($generator:ident: $($($module:ident)::+: $($kind:ident)+;)+) => {
        $({
            use k8s_openapi::$($module)::+ as package;
            $($generator.subschema_for::<package::$kind>();)+
        })+
    };
}

fn main() {
    let mut generator = SchemaGenerator::default();
    describe! { generator:
        api::admissionregistration::v1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration;
        api::admissionregistration::v1alpha1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding;
        api::admissionregistration::v1beta1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding;
        api::apiserverinternal::v1alpha1: StorageVersion;
        api::apps::v1: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
        api::authentication::v1: SelfSubjectReview TokenRequest TokenReview;
        api::authorization::v1: LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview;
        api::autoscaling::v1: HorizontalPodAutoscaler Scale;
        api::autoscaling::v2: HorizontalPodAutoscaler;
        api::batch::v1: CronJob Job;
        api::certificates::v1: CertificateSigningRequest;
        api::certificates::v1alpha1: ClusterTrustBundle;
        api::certificates::v1beta1: ClusterTrustBundle PodCertificateRequest;
        api::coordination::v1: Lease;
        api::coordination::v1alpha2: LeaseCandidate;
        api::coordination::v1beta1: LeaseCandidate;
        api::core::v1: Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount;
        api::discovery::v1: EndpointSlice;
        api::events::v1: Event;
        api::flowcontrol::v1: FlowSchema PriorityLevelConfiguration;
        api::networking::v1: Ingress IngressClass IPAddress NetworkPolicy ServiceCIDR;
        api::networking::v1beta1: IPAddress ServiceCIDR;
        api::node::v1: RuntimeClass;
        api::policy::v1: Eviction PodDisruptionBudget;
        api::rbac::v1: ClusterRole ClusterRoleBinding Role RoleBinding;
        api::resource::v1: DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
        api::resource::v1alpha3: DeviceTaintRule ResourcePoolStatusRequest;
        api::resource::v1beta1: DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
        api::resource::v1beta2: DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice;
        api::scheduling::v1: PriorityClass;
        api::scheduling::v1alpha2: PodGroup Workload;
        api::storage::v1: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass;
        api::storage::v1beta1: VolumeAttributesClass;
        api::storagemigration::v1beta1: StorageVersionMigration;
        apiextensions_apiserver::pkg::apis::apiextensions::v1: CustomResourceDefinition;
        apimachinery::pkg::apis::meta::v1: APIGroup APIGroupList APIResourceList APIVersions DeleteOptions Patch Status;
        apimachinery::pkg::version: Info;
        kube_aggregator::pkg::apis::apiregistration::v1: APIService;
    }
    let mut text = String::new();
    for (name, definition) in generator.definitions() {
        describe_type(name, &Schema::try_from(definition.clone()).expect("definitions are schemas"), &mut text);
    }
    #[expect(clippy::disallowed_methods, reason = "build scripts get their output directory from the environment")]
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).expect("writing to memory cannot fail");
    fs::write(out.join("descriptions.z"), encoder.finish().expect("writing to memory cannot fail"))
        .expect("cannot write");
    println!("cargo::rustc-env=DESCRIPTIONS_LENGTH={}", text.len());
    println!("cargo::rustc-env=FINGERPRINT={:016x}", fingerprint(&text));
}

/// Writes a line with the type's name and description, then one per field, indented by a tab.
fn describe_type(name: &str, schema: &Schema, text: &mut String) {
    let escape = |summary: Option<&str>| summary.unwrap_or_default().replace('\\', "\\\\").replace('\n', "\\n");
    let description = escape(schema.get("description").and_then(|text| text.as_str()));
    writeln!(text, "{name} {description}").expect("writing to a String cannot fail");
    let Some(fields) = schema.get("properties").and_then(|fields| fields.as_object()) else { return };
    let fields: BTreeMap<_, _> = fields.iter().collect();
    for (field, schema) in fields {
        let summary = escape(schema.get("description").and_then(|text| text.as_str()));
        writeln!(text, "\t{field} {summary}").expect("writing to a String cannot fail");
    }
}

/// Returns a hash of the inputs of documents: a client can cache a document until this changes.
fn fingerprint(descriptions: &str) -> u64 {
    let mut hash = fnv(0xcbf2_9ce4_8422_2325, descriptions.as_bytes());
    for source in ["src", "../api/src/catalogue.txt"] {
        println!("cargo::rerun-if-changed={source}");
        hash = fold(hash, Path::new(source));
    }
    hash
}

fn fold(hash: u64, path: &Path) -> u64 {
    if !path.is_dir() {
        return fnv(hash, &fs::read(path).expect("a source can be read"));
    }
    let mut below: Vec<_> =
        fs::read_dir(path).expect("a folder can be read").map(|entry| entry.expect("an entry").path()).collect();
    below.sort();
    below.iter().fold(hash, |hash, path| fold(hash, path))
}

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
