//! The resources that controllers read and write, with their names in RBAC rules.

use apimachinery::Resource;

macro_rules! kinds {
    ($($name:ident = $scope:ident($group:literal, $version:literal, $plural:literal, $kind:literal);)*) => {
        $(
            #[doc = concat!("`", $plural, "` of `", $group, "/", $version, "`.")]
            pub static $name: Resource = Resource::$scope($group, $version, $plural, $kind);
        )*

        pub static ALL: &[&Resource] = &[$(&$name),*];
    };
}

kinds! {
    CONFIG_MAPS = namespaced("", "v1", "configmaps", "ConfigMap");
    ENDPOINTS = namespaced("", "v1", "endpoints", "Endpoints");
    EVENTS = namespaced("", "v1", "events", "Event");
    LIMIT_RANGES = namespaced("", "v1", "limitranges", "LimitRange");
    NAMESPACES = cluster("", "v1", "namespaces", "Namespace");
    NODES = cluster("", "v1", "nodes", "Node");
    PERSISTENT_VOLUME_CLAIMS = namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
    PERSISTENT_VOLUMES = cluster("", "v1", "persistentvolumes", "PersistentVolume");
    PODS = namespaced("", "v1", "pods", "Pod");
    REPLICATION_CONTROLLERS = namespaced("", "v1", "replicationcontrollers", "ReplicationController");
    RESOURCE_QUOTAS = namespaced("", "v1", "resourcequotas", "ResourceQuota");
    SECRETS = namespaced("", "v1", "secrets", "Secret");
    SERVICE_ACCOUNTS = namespaced("", "v1", "serviceaccounts", "ServiceAccount");
    SERVICES = namespaced("", "v1", "services", "Service");
    VALIDATING_ADMISSION_POLICIES =
        cluster("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy");
    CUSTOM_RESOURCE_DEFINITIONS =
        cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition");
    API_SERVICES = cluster("apiregistration.k8s.io", "v1", "apiservices", "APIService");
    CONTROLLER_REVISIONS = namespaced("apps", "v1", "controllerrevisions", "ControllerRevision");
    DAEMON_SETS = namespaced("apps", "v1", "daemonsets", "DaemonSet");
    DEPLOYMENTS = namespaced("apps", "v1", "deployments", "Deployment");
    REPLICA_SETS = namespaced("apps", "v1", "replicasets", "ReplicaSet");
    STATEFUL_SETS = namespaced("apps", "v1", "statefulsets", "StatefulSet");
    HORIZONTAL_POD_AUTOSCALERS =
        namespaced("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler");
    CRON_JOBS = namespaced("batch", "v1", "cronjobs", "CronJob");
    JOBS = namespaced("batch", "v1", "jobs", "Job");
    CERTIFICATE_SIGNING_REQUESTS =
        cluster("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest");
    CLUSTER_TRUST_BUNDLES = cluster("certificates.k8s.io", "v1beta1", "clustertrustbundles", "ClusterTrustBundle");
    LEASES = namespaced("coordination.k8s.io", "v1", "leases", "Lease");
    ENDPOINT_SLICES = namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");
    IP_ADDRESSES = cluster("networking.k8s.io", "v1", "ipaddresses", "IPAddress");
    SERVICE_CIDRS = cluster("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR");
    POD_DISRUPTION_BUDGETS = namespaced("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget");
    CLUSTER_ROLES = cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
    DEVICE_CLASSES = cluster("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");
    RESOURCE_CLAIMS = namespaced("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");
    RESOURCE_SLICES = cluster("resource.k8s.io", "v1", "resourceslices", "ResourceSlice");
    RESOURCE_CLAIM_TEMPLATES = namespaced("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate");
    PRIORITY_CLASSES = cluster("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass");
    CSI_DRIVERS = cluster("storage.k8s.io", "v1", "csidrivers", "CSIDriver");
    CSI_NODES = cluster("storage.k8s.io", "v1", "csinodes", "CSINode");
    CSI_STORAGE_CAPACITIES = namespaced("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity");
    STORAGE_CLASSES = cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass");
    VOLUME_ATTRIBUTES_CLASSES =
        cluster("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass");
    STORAGE_VERSION_MIGRATIONS =
        cluster("storagemigration.k8s.io", "v1beta1", "storageversionmigrations", "StorageVersionMigration");
    VOLUME_ATTACHMENTS = cluster("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment");
}

/// Returns the resource with a name such as `pods` or `deployments.apps`.
pub fn by_name(name: &str) -> Option<&'static Resource> {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    ALL.iter().find(|have| have.plural == plural && have.group == group).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_name_and_in_the_catalogue() {
        for kind in ALL {
            assert!(std::ptr::eq(by_name(&kind.to_string()).unwrap(), *kind), "{kind}");
            assert!(api::catalogue::schema(&kind.group_version_kind()).is_some(), "{kind}");
        }
        assert!(by_name("nothing").is_none());
    }
}
