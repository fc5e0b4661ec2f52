//! Built-in resources as constants: the names by which code refers to a kind.
//!
//! `PODS` is the group and plural name, which identify a kind in any version. [`versioned::PODS`] also has the preferred
//! version, the kind and the scope, which a request needs.

use apimachinery::{GroupResource, Resource};

macro_rules! resources {
    ($($group:literal { $($name:ident = $scope:ident($version:literal, $plural:literal, $kind:literal);)* })*) => {
        $($(
            #[doc = concat!("`", $plural, "` of group `", $group, "`.")]
            pub const $name: GroupResource = GroupResource::new($group, $plural);
        )*)*

        /// The resources in their preferred versions.
        pub mod versioned {
            use apimachinery::Resource;

            $($(
                #[doc = concat!("`", $plural, "` of `", $group, "/", $version, "`.")]
                pub static $name: Resource = Resource::$scope($group, $version, $plural, $kind);
            )*)*

            pub static ALL: &[&Resource] = &[$($(&$name),*),*];
        }
    };
}

resources! {
    "" {
        BINDINGS = namespaced("v1", "bindings", "Binding");
        COMPONENT_STATUSES = cluster("v1", "componentstatuses", "ComponentStatus");
        CONFIG_MAPS = namespaced("v1", "configmaps", "ConfigMap");
        ENDPOINTS = namespaced("v1", "endpoints", "Endpoints");
        EVENTS = namespaced("v1", "events", "Event");
        LIMIT_RANGES = namespaced("v1", "limitranges", "LimitRange");
        NAMESPACES = cluster("v1", "namespaces", "Namespace");
        NODES = cluster("v1", "nodes", "Node");
        PERSISTENT_VOLUME_CLAIMS = namespaced("v1", "persistentvolumeclaims", "PersistentVolumeClaim");
        PERSISTENT_VOLUMES = cluster("v1", "persistentvolumes", "PersistentVolume");
        PODS = namespaced("v1", "pods", "Pod");
        POD_TEMPLATES = namespaced("v1", "podtemplates", "PodTemplate");
        REPLICATION_CONTROLLERS = namespaced("v1", "replicationcontrollers", "ReplicationController");
        RESOURCE_QUOTAS = namespaced("v1", "resourcequotas", "ResourceQuota");
        SECRETS = namespaced("v1", "secrets", "Secret");
        SERVICE_ACCOUNTS = namespaced("v1", "serviceaccounts", "ServiceAccount");
        SERVICES = namespaced("v1", "services", "Service");
    }
    "apiregistration.k8s.io" {
        API_SERVICES = cluster("v1", "apiservices", "APIService");
    }
    "apps" {
        CONTROLLER_REVISIONS = namespaced("v1", "controllerrevisions", "ControllerRevision");
        DAEMON_SETS = namespaced("v1", "daemonsets", "DaemonSet");
        DEPLOYMENTS = namespaced("v1", "deployments", "Deployment");
        REPLICA_SETS = namespaced("v1", "replicasets", "ReplicaSet");
        STATEFUL_SETS = namespaced("v1", "statefulsets", "StatefulSet");
    }
    "events.k8s.io" {
        EVENTS_K8S_IO = namespaced("v1", "events", "Event");
    }
    "authentication.k8s.io" {
        SELF_SUBJECT_REVIEWS = cluster("v1", "selfsubjectreviews", "SelfSubjectReview");
        TOKEN_REVIEWS = cluster("v1", "tokenreviews", "TokenReview");
    }
    "authorization.k8s.io" {
        LOCAL_SUBJECT_ACCESS_REVIEWS = namespaced("v1", "localsubjectaccessreviews", "LocalSubjectAccessReview");
        SELF_SUBJECT_ACCESS_REVIEWS = cluster("v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview");
        SELF_SUBJECT_RULES_REVIEWS = cluster("v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview");
        SUBJECT_ACCESS_REVIEWS = cluster("v1", "subjectaccessreviews", "SubjectAccessReview");
    }
    "autoscaling" {
        HORIZONTAL_POD_AUTOSCALERS = namespaced("v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler");
    }
    "batch" {
        CRON_JOBS = namespaced("v1", "cronjobs", "CronJob");
        JOBS = namespaced("v1", "jobs", "Job");
    }
    "certificates.k8s.io" {
        CERTIFICATE_SIGNING_REQUESTS = cluster("v1", "certificatesigningrequests", "CertificateSigningRequest");
        CLUSTER_TRUST_BUNDLES = cluster("v1beta1", "clustertrustbundles", "ClusterTrustBundle");
        POD_CERTIFICATE_REQUESTS = namespaced("v1beta1", "podcertificaterequests", "PodCertificateRequest");
    }
    "networking.k8s.io" {
        INGRESS_CLASSES = cluster("v1", "ingressclasses", "IngressClass");
        INGRESSES = namespaced("v1", "ingresses", "Ingress");
        IP_ADDRESSES = cluster("v1", "ipaddresses", "IPAddress");
        NETWORK_POLICIES = namespaced("v1", "networkpolicies", "NetworkPolicy");
        SERVICE_CIDRS = cluster("v1", "servicecidrs", "ServiceCIDR");
    }
    "policy" {
        POD_DISRUPTION_BUDGETS = namespaced("v1", "poddisruptionbudgets", "PodDisruptionBudget");
    }
    "rbac.authorization.k8s.io" {
        CLUSTER_ROLE_BINDINGS = cluster("v1", "clusterrolebindings", "ClusterRoleBinding");
        CLUSTER_ROLES = cluster("v1", "clusterroles", "ClusterRole");
        ROLE_BINDINGS = namespaced("v1", "rolebindings", "RoleBinding");
        ROLES = namespaced("v1", "roles", "Role");
    }
    "storage.k8s.io" {
        CSI_DRIVERS = cluster("v1", "csidrivers", "CSIDriver");
        CSI_NODES = cluster("v1", "csinodes", "CSINode");
        CSI_STORAGE_CAPACITIES = namespaced("v1", "csistoragecapacities", "CSIStorageCapacity");
        STORAGE_CLASSES = cluster("v1", "storageclasses", "StorageClass");
        VOLUME_ATTACHMENTS = cluster("v1", "volumeattachments", "VolumeAttachment");
        VOLUME_ATTRIBUTES_CLASSES = cluster("v1", "volumeattributesclasses", "VolumeAttributesClass");
    }
    "admissionregistration.k8s.io" {
        MUTATING_ADMISSION_POLICIES = cluster("v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy");
        MUTATING_ADMISSION_POLICY_BINDINGS = cluster("v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding");
        MUTATING_WEBHOOK_CONFIGURATIONS = cluster("v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration");
        VALIDATING_ADMISSION_POLICIES = cluster("v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy");
        VALIDATING_ADMISSION_POLICY_BINDINGS = cluster("v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding");
        VALIDATING_WEBHOOK_CONFIGURATIONS = cluster("v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration");
    }
    "apiextensions.k8s.io" {
        CUSTOM_RESOURCE_DEFINITIONS = cluster("v1", "customresourcedefinitions", "CustomResourceDefinition");
    }
    "scheduling.k8s.io" {
        POD_GROUPS = namespaced("v1alpha2", "podgroups", "PodGroup");
        PRIORITY_CLASSES = cluster("v1", "priorityclasses", "PriorityClass");
        WORKLOADS = namespaced("v1alpha2", "workloads", "Workload");
    }
    "coordination.k8s.io" {
        LEASE_CANDIDATES = namespaced("v1beta1", "leasecandidates", "LeaseCandidate");
        LEASES = namespaced("v1", "leases", "Lease");
    }
    "node.k8s.io" {
        RUNTIME_CLASSES = cluster("v1", "runtimeclasses", "RuntimeClass");
    }
    "discovery.k8s.io" {
        ENDPOINT_SLICES = namespaced("v1", "endpointslices", "EndpointSlice");
    }
    "resource.k8s.io" {
        DEVICE_CLASSES = cluster("v1", "deviceclasses", "DeviceClass");
        DEVICE_TAINT_RULES = cluster("v1beta2", "devicetaintrules", "DeviceTaintRule");
        RESOURCE_CLAIMS = namespaced("v1", "resourceclaims", "ResourceClaim");
        RESOURCE_CLAIM_TEMPLATES = namespaced("v1", "resourceclaimtemplates", "ResourceClaimTemplate");
        RESOURCE_POOL_STATUS_REQUESTS = cluster("v1alpha3", "resourcepoolstatusrequests", "ResourcePoolStatusRequest");
        RESOURCE_SLICES = cluster("v1", "resourceslices", "ResourceSlice");
    }
    "flowcontrol.apiserver.k8s.io" {
        FLOW_SCHEMAS = cluster("v1", "flowschemas", "FlowSchema");
        PRIORITY_LEVEL_CONFIGURATIONS = cluster("v1", "prioritylevelconfigurations", "PriorityLevelConfiguration");
    }
    "internal.apiserver.k8s.io" {
        STORAGE_VERSIONS = cluster("v1alpha1", "storageversions", "StorageVersion");
    }
    "storagemigration.k8s.io" {
        STORAGE_VERSION_MIGRATIONS = cluster("v1beta1", "storageversionmigrations", "StorageVersionMigration");
    }
}

/// Returns the resource in its preferred version; `None` if it is not built in.
pub fn preferred_version(resource: GroupResource) -> Option<&'static Resource> {
    versioned::ALL.iter().find(|have| have.is(resource)).copied()
}

/// Returns the built-in resource with a name such as `pods` or `deployments.apps`.
pub fn by_name(name: &str) -> Option<&'static Resource> {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    versioned::ALL.iter().find(|have| have.plural == plural && have.group == group).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn constants_are_the_built_in_kinds_in_their_preferred_versions() {
        let of_kinds = kinds::all().into_iter().map(|kind| {
            let (group, plural, version) = (kind.group.clone(), kind.plural.clone(), kind.versions[0].name.clone());
            Resource { group, version, plural, kind: kind.kind.clone(), scope: kind.scope }
        });
        let sorted = |mut all: Vec<Resource>| {
            all.sort_by_key(ToString::to_string);
            all
        };
        let constants = versioned::ALL.iter().map(|resource| (*resource).clone());
        assert_eq!(sorted(constants.collect()), sorted(of_kinds.collect()));
    }

    #[test]
    fn resource_is_found_by_its_name_and_by_its_group_and_plural() {
        for resource in versioned::ALL {
            assert!(std::ptr::eq(by_name(&resource.to_string()).unwrap(), *resource), "{resource}");
        }
        assert!(std::ptr::eq(preferred_version(DEPLOYMENTS).unwrap(), &versioned::DEPLOYMENTS));
        assert_eq!(DEPLOYMENTS.to_string(), versioned::DEPLOYMENTS.to_string());
        assert!(by_name("nothing").is_none());
        assert!(preferred_version(GroupResource::new("example.org", "pods")).is_none());
    }
}
