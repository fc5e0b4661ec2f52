//! The table of controllers: one row each, with its flags and service account.

use controller::object_graph::GlobalController;
use controller::{Controller, Setup};

use crate::{
    attach_detach, bootstrap_signer, clusterrole_aggregation, cronjob, csr_approver, csr_cleaner, csr_signer,
    daemonset, deployment, device_taint_eviction, disruption, endpoints, endpointslice, endpointslice_mirroring,
    ephemeral_volume, garbage_collector, horizontal_pod_autoscaler, job, legacy_token_cleaner, namespace, node_ipam,
    node_lifecycle, node_ttl, podgc, pv_binder, pv_expander, pv_protection, pvc_protection, replicaset,
    replicationcontroller, resource_claim, resourcequota, root_ca, service_cidr, service_lb, serviceaccount,
    serviceaccount_token, statefulset, storage_version_migrator, taint_eviction, token_cleaner, trust_bundle,
    ttl_after_finished, vac_protection, validating_admission_policy_status,
};

/// The metadata of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name for `--controllers`.
    pub name: &'static str,
    /// The service account in `kube-system` that the controller uses.
    pub account: &'static str,
    /// The flag with the number of concurrent keys; empty if there is none.
    pub workers_flag: &'static str,
    /// The default number of concurrent keys.
    pub workers: usize,
}

/// A visitor of all controllers, each with its own type.
pub trait Visitor {
    fn visit<C: Controller>(&mut self, row: &'static Row, setup: Setup<C>);

    /// Visits a controller that reads objects of every kind.
    fn visit_sweeper<S: GlobalController>(&mut self, row: &'static Row);
}

/// Lists rows as `name, account, workers [flag] => controller;`. A controller with a configuration or side effects is
/// followed by `in field`, the field of [`Setups`].
macro_rules! table {
    ($($name:literal, $account:literal, $workers:literal [$flag:literal] => $controller:ty $(, in $field:ident)?;)*) => {
        /// All rows, in the order of the table.
        pub static ROWS: &[Row] =
            &[$(Row { name: $name, account: $account, workers_flag: $flag, workers: $workers }),*];

        /// The configurations of all controllers that have one, and what performs their side effects.
        #[derive(Clone, Default)]
        pub struct Setups {
            $($(pub $field: Setup<$controller>,)?)*
        }

        /// Calls the visitor for every controller.
        pub fn each(setups: &Setups, visitor: &mut impl Visitor) {
            let mut rows = ROWS.iter();
            $(
                let row = rows.next().expect("a row for each controller");
                visitor.visit::<$controller>(row, setup!(setups $($field)?));
            )*
            visitor.visit_sweeper::<garbage_collector::GarbageCollector>(&SWEEPERS[0]);
            visitor.visit_sweeper::<namespace::Namespace>(&SWEEPERS[1]);
        }
    };
}

/// Returns the setup of a row. Without a field, the controller must have neither configuration nor side effects.
macro_rules! setup {
    ($setups:ident) => {
        Setup::new(())
    };
    ($setups:ident $field:ident) => {
        $setups.$field.clone()
    };
}

table! {
    "bootstrap-signer-controller", "bootstrap-signer", 1 [""] => bootstrap_signer::BootstrapSigner;
    "certificatesigningrequest-approving-controller", "certificate-controller", 5 [""] => csr_approver::CsrApprover;
    "certificatesigningrequest-cleaner-controller", "certificate-controller", 1 [""] => csr_cleaner::CsrCleaner;
    "certificatesigningrequest-signing-controller", "certificate-controller", 5 [""] => csr_signer::CsrSigner, in csr_signer;
    "clusterrole-aggregation-controller", "clusterrole-aggregation-controller", 5 [""] => clusterrole_aggregation::ClusterRoleAggregation;
    "cronjob-controller", "cronjob-controller", 5 ["concurrent-cron-job-syncs"] => cronjob::CronJob;
    "daemonset-controller", "daemon-set-controller", 2 ["concurrent-daemonset-syncs"] => daemonset::DaemonSet;
    "deployment-controller", "deployment-controller", 5 ["concurrent-deployment-syncs"] => deployment::Deployment;
    "device-taint-eviction-controller", "device-taint-eviction-controller", 10 ["concurrent-device-taint-eviction-syncs"] =>
        device_taint_eviction::DeviceTaintEviction;
    "disruption-controller", "disruption-controller", 1 [""] => disruption::Disruption;
    "endpoints-controller", "endpoint-controller", 5 ["concurrent-endpoint-syncs"] => endpoints::Endpoints;
    "endpointslice-controller", "endpointslice-controller", 5 ["concurrent-service-endpoint-syncs"] => endpointslice::EndpointSlice, in endpointslice;
    "endpointslice-mirroring-controller", "endpointslicemirroring-controller", 5 ["mirroring-concurrent-service-endpoint-syncs"] => endpointslice_mirroring::EndpointSliceMirroring;
    "ephemeral-volume-controller", "ephemeral-volume-controller", 5 ["concurrent-ephemeralvolume-syncs"] => ephemeral_volume::EphemeralVolume;
    "horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler", 5 ["concurrent-horizontal-pod-autoscaler-syncs"] =>
        horizontal_pod_autoscaler::HorizontalPodAutoscaler, in horizontal_pod_autoscaler;
    "job-controller", "job-controller", 5 ["concurrent-job-syncs"] => job::Job;
    "kube-apiserver-serving-clustertrustbundle-publisher-controller", "kube-apiserver-serving-clustertrustbundle-publisher", 1 [""] =>
        trust_bundle::TrustBundlePublisher, in trust_bundle;
    "legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner", 1 [""] =>
        legacy_token_cleaner::LegacyTokenCleaner, in legacy_token_cleaner;
    "node-ipam-controller", "node-controller", 1 [""] => node_ipam::NodeIpam, in node_ipam;
    "node-lifecycle-controller", "node-controller", 8 [""] => node_lifecycle::NodeLifecycle, in node_lifecycle;
    "persistentvolume-attach-detach-controller", "attachdetach-controller", 5 [""] => attach_detach::AttachDetach;
    "persistentvolume-binder-controller", "persistent-volume-binder", 5 [""] => pv_binder::PersistentVolumeBinder;
    "persistentvolume-expander-controller", "expand-controller", 1 [""] => pv_expander::Expander;
    "persistentvolume-protection-controller", "pv-protection-controller", 1 [""] => pv_protection::VolumeProtection;
    "persistentvolumeclaim-protection-controller", "pvc-protection-controller", 1 [""] => pvc_protection::ClaimProtection;
    "pod-garbage-collector-controller", "pod-garbage-collector", 5 [""] => podgc::PodGc, in podgc;
    "replicaset-controller", "replicaset-controller", 5 ["concurrent-replicaset-syncs"] => replicaset::ReplicaSet;
    "replicationcontroller-controller", "replication-controller", 5 ["concurrent-rc-syncs"] =>
        replicationcontroller::ReplicationController;
    "resourceclaim-controller", "resource-claim-controller", 50 ["concurrent-resourceclaim-syncs"] => resource_claim::ResourceClaim;
    "resourcequota-controller", "resourcequota-controller", 5 ["concurrent-resource-quota-syncs"] => resourcequota::ResourceQuota;
    "root-ca-certificate-publisher-controller", "root-ca-cert-publisher", 1 [""] => root_ca::RootCaPublisher, in root_ca;
    "service-cidr-controller", "service-cidrs-controller", 1 [""] => service_cidr::ServiceCidr;
    "service-lb-controller", "service-controller", 1 [""] => service_lb::ServiceLb, in service_lb;
    "serviceaccount-controller", "service-account-controller", 1 [""] => serviceaccount::ServiceAccount;
    "serviceaccount-token-controller", "tokens-controller", 5 ["concurrent-serviceaccount-token-syncs"] => serviceaccount_token::ServiceAccountToken, in serviceaccount_token;
    "statefulset-controller", "statefulset-controller", 5 ["concurrent-statefulset-syncs"] => statefulset::StatefulSet;
    "storage-version-migrator-controller", "storage-version-migrator-controller", 1 [""] =>
        storage_version_migrator::StorageVersionMigrator;
    "taint-eviction-controller", "node-controller", 8 [""] => taint_eviction::TaintEviction;
    "token-cleaner-controller", "token-cleaner", 1 [""] => token_cleaner::TokenCleaner;
    "ttl-after-finished-controller", "ttl-after-finished-controller", 5 ["concurrent-ttl-after-finished-syncs"] =>
        ttl_after_finished::TtlAfterFinished;
    "ttl-controller", "ttl-controller", 5 [""] => node_ttl::NodeTtl;
    "validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status-controller", 5 ["concurrent-validating-admission-policy-status-syncs"] =>
        validating_admission_policy_status::ValidatingAdmissionPolicyStatus;
    "volumeattributesclass-protection-controller", "volumeattributesclass-protection-controller", 1 [""] => vac_protection::AttributesClassProtection;
}

/// The controllers that read objects of every kind.
pub static SWEEPERS: [Row; 2] = [
    Row {
        name: "garbage-collector-controller",
        account: "generic-garbage-collector",
        workers_flag: "concurrent-gc-syncs",
        workers: 20,
    },
    Row {
        name: "namespace-controller",
        account: "namespace-controller",
        workers_flag: "concurrent-namespace-syncs",
        workers: 10,
    },
];

/// All upstream controllers, with their names in older versions.
pub const KNOWN: &[(&str, &str)] = &[
    ("bootstrap-signer-controller", "bootstrapsigner"),
    ("certificatesigningrequest-approving-controller", "csrapproving"),
    ("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    ("certificatesigningrequest-signing-controller", "csrsigning"),
    ("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
    ("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    ("cronjob-controller", "cronjob"),
    ("daemonset-controller", "daemonset"),
    ("deployment-controller", "deployment"),
    ("device-taint-eviction-controller", ""),
    ("disruption-controller", "disruption"),
    ("endpoints-controller", "endpoint"),
    ("endpointslice-controller", "endpointslice"),
    ("endpointslice-mirroring-controller", "endpointslicemirroring"),
    ("ephemeral-volume-controller", "ephemeral-volume"),
    ("garbage-collector-controller", "garbagecollector"),
    ("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"),
    ("job-controller", "job"),
    ("kube-apiserver-serving-clustertrustbundle-publisher-controller", ""),
    ("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    ("namespace-controller", "namespace"),
    ("node-ipam-controller", "nodeipam"),
    ("node-lifecycle-controller", "nodelifecycle"),
    ("node-route-controller", "route"),
    ("persistentvolume-attach-detach-controller", "attachdetach"),
    ("persistentvolume-binder-controller", "persistentvolume-binder"),
    ("persistentvolume-expander-controller", "persistentvolume-expander"),
    ("persistentvolume-protection-controller", "pv-protection"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection"),
    ("pod-garbage-collector-controller", "podgc"),
    ("podcertificaterequest-cleaner-controller", ""),
    ("replicaset-controller", "replicaset"),
    ("replicationcontroller-controller", "replicationcontroller"),
    ("resourceclaim-controller", "resource-claim-controller"),
    ("resourcequota-controller", "resourcequota"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("selinux-warning-controller", ""),
    ("service-cidr-controller", ""),
    ("service-lb-controller", "service"),
    ("serviceaccount-controller", "serviceaccount"),
    ("serviceaccount-token-controller", "serviceaccount-token"),
    ("statefulset-controller", "statefulset"),
    ("storage-version-migrator-controller", ""),
    ("storageversion-garbage-collector-controller", "storage-version-gc"),
    ("taint-eviction-controller", ""),
    ("token-cleaner-controller", "tokencleaner"),
    ("ttl-after-finished-controller", "ttl-after-finished"),
    ("ttl-controller", "ttl"),
    ("validatingadmissionpolicy-status-controller", ""),
    ("volumeattributesclass-protection-controller", ""),
];

/// Upstream controllers that are not implemented, with the reason.
pub const ABSENT: &[(&str, &str)] = &[
    ("cloud-node-lifecycle-controller", CLOUD),
    ("node-route-controller", CLOUD),
    ("podcertificaterequest-cleaner-controller", OFF),
    ("selinux-warning-controller", "it warns of SELinux labels, which nodes here do not set"),
    ("storageversion-garbage-collector-controller", OFF),
];

const CLOUD: &str = "it needs a cloud, whose own controller manager runs it";
const OFF: &str = "it belongs to a feature that is off unless somebody asks for it";

/// Controllers that run only if they are named explicitly.
const ON_REQUEST: &[&str] = &[
    "bootstrap-signer-controller",
    // Upstream runs this one and the migrator only with a feature gate that is off by default.
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "selinux-warning-controller",
    "storage-version-migrator-controller",
    "token-cleaner-controller",
];

/// The value of `--controllers`: `*`, `name`, `-name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice(Vec<String>);

/// `--controllers` names an unknown controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not in the list of known controllers")]
pub struct Unknown(pub String);

impl Choice {
    /// Parses `--controllers`. Names of older versions are accepted.
    pub fn of(items: &[String]) -> Result<Self, Unknown> {
        let read = |item: &String| {
            if item == "*" {
                return Ok(item.clone());
            }
            let (sign, name) = item.strip_prefix('-').map_or(("", item.as_str()), |name| ("-", name));
            let known = KNOWN.iter().find(|(new, old)| *new == name || (!old.is_empty() && *old == name));
            known.map(|(name, _)| format!("{sign}{name}")).ok_or_else(|| Unknown(name.to_owned()))
        };
        Ok(Self(items.iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Whether the controller is enabled by its name.
    pub fn names(&self, name: &str) -> bool {
        self.0.iter().any(|item| item == name)
    }

    /// Whether the controller runs: the first item that names it decides, then `*`.
    pub fn includes(&self, name: &str) -> bool {
        for item in &self.0 {
            if item == name {
                return true;
            }
            if item.strip_prefix('-') == Some(name) {
                return false;
            }
        }
        self.0.iter().any(|item| item == "*") && !ON_REQUEST.contains(&name)
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn row_names_are_upstream_names_and_unique() {
        let names: BTreeSet<&str> = ROWS.iter().chain(&SWEEPERS).map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len() + SWEEPERS.len());
        for name in names {
            assert!(KNOWN.iter().any(|(known, _)| *known == name), "{name}");
        }
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn every_upstream_controller_is_implemented_or_listed_as_absent() {
        let here: BTreeSet<&str> = ROWS.iter().chain(&SWEEPERS).map(|row| row.name).collect();
        for (name, _) in KNOWN {
            let absent = ABSENT.iter().any(|(absent, _)| absent == name);
            assert!(here.contains(name) != absent, "{name}");
        }
        assert!(ABSENT.iter().all(|(absent, _)| KNOWN.iter().any(|(name, _)| name == absent)));
    }

    #[test]
    fn every_controller_reads_and_writes_kinds_that_exist() {
        struct Check;
        impl Visitor for Check {
            fn visit<C: Controller>(&mut self, row: &'static Row, _: Setup<C>) {
                let writes = C::WRITES.iter().filter(|write| **write != controller::ANYTHING).map(|(kind, _)| kind);
                for kind in C::READS.iter().chain(writes) {
                    assert!(api::resources::preferred_version(*kind).is_some(), "{}: {kind}", row.name);
                }
            }

            fn visit_sweeper<S: GlobalController>(&mut self, row: &'static Row) {
                assert_eq!(S::NAME, row.name);
            }
        }
        each(&Setups::default(), &mut Check);
    }

    #[test]
    fn first_item_that_names_a_controller_decides() {
        let check = |items: &str, name: &str, expect: bool| {
            let items: Vec<String> = items.split(',').map(str::to_owned).collect();
            assert_eq!(Choice::of(&items).unwrap().includes(name), expect, "{items:?} {name}");
        };
        check("*", "job-controller", true);
        check("*", "token-cleaner-controller", false);
        check("*,tokencleaner", "token-cleaner-controller", true);
        check("*,-job", "job-controller", false);
        check("-job-controller,job-controller,*", "job-controller", false);
        check("job-controller", "job-controller", true);
        check("job-controller", "deployment-controller", false);
        assert_eq!(Choice::of(&["*".into(), "-nonsense".into()]), Err(Unknown("nonsense".into())));
    }
}
