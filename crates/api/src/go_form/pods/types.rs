//! Fields of upstream's internal pod types, in order.
//!
//! Each line is a type with its fields. The mark after a field name gives the value printed if the field is absent: `$`
//! empty string, `#` 0, `?` false, `%` quantity 0; or its type: `.` struct, `*` pointer to struct, `[` list of structs.
//! `~` marks a field shared by all versions, `^` such a field of embedded metadata. A field without a mark is null if
//! absent. `=` gives an API name that differs in more than case.

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// The Go name.
    pub(super) name: &'static str,
    /// The API name, if it differs in more than case.
    pub(super) json: Option<&'static str>,
    pub(super) holds: FieldType,
    /// The type, if the field holds a struct.
    pub(super) of: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    Nullable,
    Text,
    Number,
    Bool,
    Quantity,
    Struct,
    Pointer,
    List,
    /// A field of a type shared by all versions: it keeps its API name and is omitted if absent.
    Shared,
    /// Such a field of metadata, which the internal type embeds.
    Metadata,
}

/// Returns the fields of a type; none if the table lacks the type.
pub(super) fn fields(of: &str) -> impl Iterator<Item = Field> {
    let line = TYPES.lines().find(|line| line.split(' ').next() == Some(of)).unwrap_or_default();
    line.split(' ').skip(1).map(field)
}

fn field(text: &'static str) -> Field {
    let (text, json) = match text.split_once('=') {
        Some((text, json)) => (text, Some(json)),
        None => (text, None),
    };
    let at = text.find(['$', '#', '?', '%', '.', '*', '[', '~', '^']);
    let (name, rest) = at.map_or((text, ""), |at| text.split_at(at));
    let holds = match rest.chars().next() {
        None => FieldType::Nullable,
        Some('$') => FieldType::Text,
        Some('#') => FieldType::Number,
        Some('?') => FieldType::Bool,
        Some('%') => FieldType::Quantity,
        Some('.') => FieldType::Struct,
        Some('*') => FieldType::Pointer,
        Some('[') => FieldType::List,
        Some('~') => FieldType::Shared,
        Some(_) => FieldType::Metadata,
    };
    Field { name, json, holds, of: rest.get(1..).unwrap_or_default() }
}

const TYPES: &str = "\
PodTemplateSpec name^ generateName^ namespace^ uid^ labels^ annotations^ ownerReferences^ finalizers^ Spec.PodSpec
PodSpec Volumes[Volume InitContainers[Container Containers[Container EphemeralContainers[EphemeralContainer RestartPolicy$ TerminationGracePeriodSeconds ActiveDeadlineSeconds DNSPolicy$ NodeSelector ServiceAccountName$ AutomountServiceAccountToken NodeName$ SecurityContext*PodSecurityContext ImagePullSecrets[LocalObjectReference Hostname$ Subdomain$ SetHostnameAsFQDN Affinity*Affinity SchedulerName$ Tolerations[Toleration HostAliases[HostAlias PriorityClassName$ Priority PreemptionPolicy DNSConfig*PodDNSConfig ReadinessGates[PodReadinessGate RuntimeClassName Overhead EnableServiceLinks TopologySpreadConstraints[TopologySpreadConstraint OS*PodOS SchedulingGates[PodSchedulingGate ResourceClaims[PodResourceClaim Resources*ResourceRequirements HostnameOverride SchedulingGroup*PodSchedulingGroup
Container Name$ Image$ Command Args WorkingDir$ Ports[ContainerPort EnvFrom[EnvFromSource Env[EnvVar Resources.ResourceRequirements ResizePolicy[ContainerResizePolicy RestartPolicy RestartPolicyRules[ContainerRestartRule VolumeMounts[VolumeMount VolumeDevices[VolumeDevice LivenessProbe*Probe ReadinessProbe*Probe StartupProbe*Probe Lifecycle*Lifecycle TerminationMessagePath$ TerminationMessagePolicy$ ImagePullPolicy$ SecurityContext*SecurityContext Stdin? StdinOnce? TTY?
EphemeralContainer Name$ Image$ Command Args WorkingDir$ Ports[ContainerPort EnvFrom[EnvFromSource Env[EnvVar Resources.ResourceRequirements ResizePolicy[ContainerResizePolicy RestartPolicy RestartPolicyRules[ContainerRestartRule VolumeMounts[VolumeMount VolumeDevices[VolumeDevice LivenessProbe*Probe ReadinessProbe*Probe StartupProbe*Probe Lifecycle*Lifecycle TerminationMessagePath$ TerminationMessagePolicy$ ImagePullPolicy$ SecurityContext*SecurityContext Stdin? StdinOnce? TTY? TargetContainerName$
ContainerPort Name$ HostPort# ContainerPort# Protocol$ HostIP$
EnvFromSource Prefix$ ConfigMapRef*OptionalReference SecretRef*OptionalReference
OptionalReference Name$ Optional
EnvVar Name$ Value$ ValueFrom*EnvVarSource
EnvVarSource FieldRef*ObjectFieldSelector ResourceFieldRef*ResourceFieldSelector ConfigMapKeyRef*KeySelector SecretKeyRef*KeySelector FileKeyRef*FileKeySelector
ObjectFieldSelector APIVersion$ FieldPath$
ResourceFieldSelector ContainerName$ Resource$ Divisor%
KeySelector Name$ Key$ Optional
FileKeySelector VolumeName$ Path$ Key$ Optional
ResourceRequirements Limits Requests Claims[ResourceClaim
ResourceClaim Name$ Request$
ContainerResizePolicy ResourceName$ RestartPolicy$
ContainerRestartRule Action$ ExitCodes*ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes Operator$ Values
VolumeMount Name$ ReadOnly? RecursiveReadOnly MountPath$ SubPath$ MountPropagation SubPathExpr$
VolumeDevice Name$ DevicePath$
Probe Exec*ExecAction HTTPGet*HTTPGetAction TCPSocket*TCPSocketAction GRPC*GRPCAction InitialDelaySeconds# TimeoutSeconds# PeriodSeconds# SuccessThreshold# FailureThreshold# TerminationGracePeriodSeconds
ExecAction Command
HTTPGetAction Path$ Port# Host$ Scheme$ HTTPHeaders[HTTPHeader
HTTPHeader Name$ Value$
TCPSocketAction Port# Host$
GRPCAction Port# Service
SleepAction Seconds#
Lifecycle PostStart*LifecycleHandler PreStop*LifecycleHandler StopSignal
LifecycleHandler Exec*ExecAction HTTPGet*HTTPGetAction TCPSocket*TCPSocketAction Sleep*SleepAction
SecurityContext Capabilities*Capabilities Privileged SELinuxOptions*SELinuxOptions WindowsOptions*WindowsOptions RunAsUser RunAsGroup RunAsNonRoot ReadOnlyRootFilesystem AllowPrivilegeEscalation ProcMount SeccompProfile*SeccompProfile AppArmorProfile*SeccompProfile
Capabilities Add Drop
SELinuxOptions User$ Role$ Type$ Level$
WindowsOptions GMSACredentialSpecName GMSACredentialSpec RunAsUserName HostProcess
SeccompProfile Type$ LocalhostProfile
PodSecurityContext HostNetwork? HostPID? HostIPC? ShareProcessNamespace HostUsers SELinuxOptions*SELinuxOptions WindowsOptions*WindowsOptions RunAsUser RunAsGroup RunAsNonRoot SupplementalGroups SupplementalGroupsPolicy FSGroup FSGroupChangePolicy Sysctls[Sysctl SeccompProfile*SeccompProfile AppArmorProfile*SeccompProfile SELinuxChangePolicy
Sysctl Name$ Value$
LocalObjectReference Name$
Affinity NodeAffinity*NodeAffinity PodAffinity*PodAffinity PodAntiAffinity*PodAffinity
NodeAffinity RequiredDuringSchedulingIgnoredDuringExecution*NodeSelector PreferredDuringSchedulingIgnoredDuringExecution[PreferredSchedulingTerm
NodeSelector NodeSelectorTerms[NodeSelectorTerm
NodeSelectorTerm MatchExpressions[NodeSelectorRequirement MatchFields[NodeSelectorRequirement
NodeSelectorRequirement Key$ Operator$ Values
PreferredSchedulingTerm Weight# Preference.NodeSelectorTerm
PodAffinity RequiredDuringSchedulingIgnoredDuringExecution[PodAffinityTerm PreferredDuringSchedulingIgnoredDuringExecution[WeightedPodAffinityTerm
PodAffinityTerm LabelSelector*LabelSelector Namespaces TopologyKey$ NamespaceSelector*LabelSelector MatchLabelKeys MismatchLabelKeys
LabelSelector matchLabels~ matchExpressions~
WeightedPodAffinityTerm Weight# PodAffinityTerm.PodAffinityTerm
Toleration Key$ Operator$ Value$ Effect$ TolerationSeconds
HostAlias IP$ Hostnames
PodDNSConfig Nameservers Searches Options[PodDNSConfigOption
PodDNSConfigOption Name$ Value
PodReadinessGate ConditionType$
TopologySpreadConstraint MaxSkew# TopologyKey$ WhenUnsatisfiable$ LabelSelector*LabelSelector MinDomains NodeAffinityPolicy NodeTaintsPolicy MatchLabelKeys
PodOS Name$
PodSchedulingGate Name$
PodResourceClaim Name$ ResourceClaimName ResourceClaimTemplateName
PodSchedulingGroup PodGroupName
Volume Name$ HostPath*HostPath EmptyDir*EmptyDir GCEPersistentDisk*GCEPersistentDisk AWSElasticBlockStore*AWSElasticBlockStore GitRepo*GitRepo Secret*SecretVolume NFS*NFS ISCSI*ISCSI Glusterfs*Glusterfs PersistentVolumeClaim*ClaimVolume RBD*RBD Quobyte*Quobyte FlexVolume*FlexVolume Cinder*Cinder CephFS*CephFS Flocker*Flocker DownwardAPI*DownwardAPIVolume FC*FC AzureFile*AzureFile ConfigMap*ConfigMapVolume VsphereVolume*VsphereVolume AzureDisk*AzureDisk PhotonPersistentDisk*Photon Projected*Projected PortworxVolume*Portworx ScaleIO*ScaleIO StorageOS*StorageOS CSI*CSI Ephemeral*Ephemeral Image*ImageVolume
HostPath Path$ Type
EmptyDir Medium$ SizeLimit
GCEPersistentDisk PDName$ FSType$ Partition# ReadOnly?
AWSElasticBlockStore VolumeID$ FSType$ Partition# ReadOnly?
GitRepo Repository$ Revision$ Directory$
SecretVolume SecretName$ Items[KeyToPath DefaultMode Optional
KeyToPath Key$ Path$ Mode
NFS Server$ Path$ ReadOnly?
ISCSI TargetPortal$ IQN$ Lun# ISCSIInterface$ FSType$ ReadOnly? Portals DiscoveryCHAPAuth?=chapAuthDiscovery SessionCHAPAuth?=chapAuthSession SecretRef*LocalObjectReference InitiatorName
Glusterfs EndpointsName$=endpoints Path$ ReadOnly?
ClaimVolume ClaimName$ ReadOnly?
RBD CephMonitors=monitors RBDImage$=image FSType$ RBDPool$=pool RadosUser$=user Keyring$ SecretRef*LocalObjectReference ReadOnly?
Quobyte Registry$ Volume$ ReadOnly? User$ Group$ Tenant$
FlexVolume Driver$ FSType$ SecretRef*LocalObjectReference ReadOnly? Options
Cinder VolumeID$ FSType$ ReadOnly? SecretRef*LocalObjectReference
CephFS Monitors Path$ User$ SecretFile$ SecretRef*LocalObjectReference ReadOnly?
Flocker DatasetName$ DatasetUUID$
DownwardAPIVolume Items[DownwardAPIVolumeFile DefaultMode
DownwardAPIVolumeFile Path$ FieldRef*ObjectFieldSelector ResourceFieldRef*ResourceFieldSelector Mode
FC TargetWWNs Lun FSType$ ReadOnly? WWIDs
AzureFile SecretName$ ShareName$ ReadOnly?
ConfigMapVolume Name$ Items[KeyToPath DefaultMode Optional
VsphereVolume VolumePath$ FSType$ StoragePolicyName$ StoragePolicyID$
AzureDisk DiskName$ DataDiskURI$=diskURI CachingMode FSType ReadOnly Kind
Photon PdID$ FSType$
Projected Sources[VolumeProjection DefaultMode
VolumeProjection Secret*KeysProjection DownwardAPI*DownwardAPIProjection ConfigMap*KeysProjection ServiceAccountToken*ServiceAccountToken ClusterTrustBundle PodCertificate
KeysProjection Name$ Items[KeyToPath Optional
DownwardAPIProjection Items[DownwardAPIVolumeFile
ServiceAccountToken Audience$ ExpirationSeconds# Path$
Portworx VolumeID$ FSType$ ReadOnly?
ScaleIO Gateway$ System$ SecretRef*LocalObjectReference SSLEnabled? ProtectionDomain$ StoragePool$ StorageMode$ VolumeName$ FSType$ ReadOnly?
StorageOS VolumeName$ VolumeNamespace$ FSType$ ReadOnly? SecretRef*LocalObjectReference
CSI Driver$ ReadOnly FSType VolumeAttributes NodePublishSecretRef*LocalObjectReference
Ephemeral VolumeClaimTemplate*ClaimTemplate
ClaimTemplate name^ generateName^ namespace^ uid^ labels^ annotations^ ownerReferences^ finalizers^ Spec.ClaimSpec
ClaimSpec AccessModes Selector*LabelSelector Resources.VolumeResources VolumeName$ StorageClassName VolumeMode DataSource*DataSource DataSourceRef*DataSourceRef VolumeAttributesClassName
VolumeResources Limits Requests
DataSource APIGroup Kind$ Name$
DataSourceRef APIGroup Kind$ Name$ Namespace
ImageVolume Reference$ PullPolicy$";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_a_field_names_is_in_the_table() {
        for line in TYPES.lines() {
            let of = line.split(' ').next().unwrap_or_default();
            for field in fields(of) {
                assert!(
                    field.of.is_empty() || fields(field.of).next().is_some(),
                    "{of}.{}: no {}",
                    field.name,
                    field.of
                );
            }
        }
    }
}
