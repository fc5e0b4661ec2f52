//! Kubelet configuration: defaults, a KubeletConfiguration file, and flags that override it.

mod effective;
mod field;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use apimachinery::{Object, Value, yaml};
use component_base::TlsSettings;
use http::{HeaderName, HeaderValue, Uri};

use crate::images::providers::config::ProviderConfig;
use crate::images::{AllowlistEntry, Verification};
use crate::memory::allocator::Amount;
use crate::topology::{Policy, Scope, Topology};
use api::amounts::{self, Amounts};
use field::Field;

/// The settings of a kubelet.
#[derive(Clone, Debug)]
pub struct Config {
    pub node_name: String,
    /// Detected if empty.
    pub node_ips: Vec<IpAddr>,
    /// Reported in the node's status. Upstream leaves this to cloud providers.
    pub external_ips: Vec<IpAddr>,
    /// Directory of all kubelet state.
    pub root_dir: PathBuf,
    /// Directory of container logs.
    pub pod_logs_dir: PathBuf,
    /// URL of static pod manifests.
    pub static_pod_url: Option<Uri>,
    /// HTTP headers sent to `static_pod_url`.
    pub static_pod_headers: Vec<(HeaderName, HeaderValue)>,
    /// Polling interval of `static_pod_url`.
    pub static_pod_url_every: Duration,
    pub cert_dir: PathBuf,
    /// Directory or file of static pod manifests.
    pub static_pod_path: Option<PathBuf>,
    /// IP addresses of the cluster's DNS servers.
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// Path of the node's resolv.conf.
    pub resolv_conf: PathBuf,
    pub max_pods: u32,
    /// Whether the kubelet runs without an API server: it runs only pods from files and from a URL.
    pub standalone: bool,
    /// Whether the kubelet creates its Node object.
    pub register_node: bool,
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the Node object at its creation.
    pub taints: Vec<Value>,
    /// The Node's `spec.providerID`.
    pub provider_id: String,
    /// Sysctls allowed in addition to the safe ones; a trailing `*` matches any suffix.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Sum of `kubeReserved` and `systemReserved`.
    pub reserved: Amounts,
    /// Whether the CPU manager policy is `static`.
    pub exclusive_cpus: bool,
    /// CPUs that are never allocated exclusively.
    pub reserved_cpus: BTreeSet<u32>,
    /// Whether the memory manager policy is `Static`.
    pub memory_by_nodes: bool,
    /// Memory that is never allocated, by NUMA node and kind.
    pub reserved_memory: BTreeMap<u32, BTreeMap<String, Amount>>,
    /// The topology manager policy; its NUMA nodes are those of the host.
    pub topology: Topology,
    /// Hard eviction thresholds by signal, such as `memory.available`.
    pub eviction_hard: BTreeMap<String, String>,
    /// Soft eviction thresholds by signal.
    pub eviction_soft: BTreeMap<String, String>,
    /// Grace periods of soft eviction thresholds by signal.
    pub eviction_soft_grace: BTreeMap<String, Duration>,
    /// Amount to reclaim beyond a threshold, by signal.
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    /// Maximum grace period of a pod evicted by a soft threshold.
    pub eviction_max_pod_grace_seconds: i64,
    /// Minimum duration of a pressure condition after the pressure has ended.
    pub eviction_pressure_transition: Duration,
    /// Whether containers without a seccomp profile run with `RuntimeDefault`.
    pub seccomp_default: bool,
    /// Maximum number of PIDs per pod.
    pub pod_pids_max: Option<i64>,
    /// Parent cgroup of pod cgroups.
    pub cgroup_root: String,
    /// Whether CPU limits are enforced with CFS quotas.
    pub cpu_quotas: bool,
    /// Whether pods have cgroups.
    pub cgroups_per_qos: bool,
    /// Whether the node's allocatable resources limit the cgroup of all pods.
    pub enforce_allocatable: bool,
    /// Whether the OOM killer kills a single process of a container instead of all.
    pub single_process_oom_kill: bool,
    /// Whether the cgroup driver is systemd.
    pub systemd_groups: bool,
    /// Whether the kubelet runs pods without the limits that need missing cgroup controllers; if false, it does not
    /// start.
    pub allow_missing_controllers: bool,
    /// The kubelet's own `oom_score_adj`.
    pub oom_score_adj: i32,
    /// The images for which pull credentials are verified when they are already present.
    pub image_verification: Verification,
    /// Maximum number of concurrent image pulls.
    pub parallel_pulls: usize,
    /// Duration of the node lease in seconds.
    pub lease_seconds: i64,
    /// Interval of status updates if the status does not change.
    pub status_report: Duration,
    /// Interval at which the node status is computed.
    pub status_update: Duration,
    /// Maximum number of images in the node status; negative for no limit.
    pub status_images_max: i64,
    /// Listen address of the server.
    pub address: IpAddr,
    /// Port of the server; zero selects a free one.
    pub port: u16,
    /// Port of healthz on the loopback interface; zero disables it.
    pub healthz_port: u16,
    pub tls: TlsSettings,
    /// Idle timeout of exec, attach and port-forward streams; zero disables it.
    pub streaming_idle: Duration,
    /// Whether the kubelet fails at start if kernel parameters differ from its expectations.
    pub protect_kernel_defaults: bool,
    /// Serving certificate and key; generated if absent.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// Whether the serving certificate is signed through a CertificateSigningRequest.
    pub server_tls_bootstrap: bool,
    /// CA bundle for client certificates of the server.
    pub client_ca: Option<PathBuf>,
    /// Whether anonymous requests are allowed.
    pub anonymous: bool,
    /// Whether bearer tokens are authenticated with TokenReview.
    pub token_webhook: bool,
    /// Whether requests are authorized with SubjectAccessReview; if false, all are allowed.
    pub authorization_webhook: bool,
    /// Maximum backoff of a crash-looping container.
    pub crash_loop_max: Duration,
    /// Size at which a container log is rotated.
    pub log_bytes_max: u64,
    /// Maximum number of log files per container.
    pub log_files_max: usize,
    /// Disk usage above which images are garbage collected, in percent.
    pub image_gc_high: u64,
    /// Disk usage at which image garbage collection stops, in percent.
    pub image_gc_low: u64,
    /// Minimum age of an unused image before it is garbage collected.
    pub image_gc_min_age: Duration,
    /// Maximum age of an unused image; zero for no limit.
    pub image_gc_max_age: Duration,
    /// Whether the swap behavior is `LimitedSwap`.
    pub limited_swap: bool,
    /// Whether the kubelet renews its client certificate.
    pub rotate_certificates: bool,
    /// Total time for terminating pods at node shutdown.
    pub shutdown_grace: Duration,
    /// The part of `shutdown_grace` that is reserved for critical pods.
    pub shutdown_grace_critical: Duration,
    /// Shutdown grace periods as (lowest priority, seconds). Replaces the two fields above.
    pub shutdown_grace_by_priority: Vec<(i64, u64)>,
    /// Plugins that return registry credentials.
    pub credential_providers: Vec<ProviderConfig>,
    /// The KubeletConfiguration as given: `/configz` also returns fields without effect.
    pub given: Value,
}

/// A configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration is not valid YAML")]
    Syntax(#[from] yaml::Error),
    /// The document has another apiVersion or kind.
    #[error("the configuration is {0}, not kubelet.config.k8s.io/v1beta1 KubeletConfiguration")]
    Kind(String),
    /// A field has an invalid value.
    #[error("{field}: {problem}")]
    Field { field: String, problem: String },
}

/// Default hard eviction thresholds.
const EVICTION_HARD: [(&str, &str); 5] = [
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

/// Fields of a KubeletConfiguration that are accepted without effect.
const WITHOUT_EFFECT: &[&str] = &[
    "configMapAndSecretChangeDetectionStrategy",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "containerRuntimeEndpoint",
    "contentType",
    "cpuCFSQuotaPeriod",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "enableContentionProfiling",
    "enableControllerAttachDetach",
    "enableDebugFlagsHandler",
    "enableDebuggingHandlers",
    "enableProfilingHandler",
    "enableServer",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "eventBurst",
    "eventRecordQPS",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "fileCheckFrequency",
    "hairpinMode",
    "healthzBindAddress",
    "imageServiceEndpoint",
    "iptablesDropBit",
    "iptablesMasqueradeBit",
    "kernelMemcgNotification",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "kubeReservedCgroup",
    "kubeletCgroups",
    "localStorageCapacityIsolation",
    "logging",
    "makeIPTablesUtilChains",
    "maxOpenFiles",
    "memoryThrottlingFactor",
    "podCIDR",
    "podsPerCore",
    "qosReserved",
    "readOnlyPort",
    "registryBurst",
    "registryPullQPS",
    "runOnce",
    "runtimeRequestTimeout",
    "showHiddenMetricsForVersion",
    "syncFrequency",
    "systemCgroups",
    "systemReservedCgroup",
    "topologyManagerPolicyOptions",
    "tracing",
    "userNamespaces",
    "volumePluginDir",
    "volumeStatsAggPeriod",
];

/// Minimum polling interval of `static_pod_url`.
const URL_EVERY_MIN: Duration = Duration::from_secs(1);

impl Config {
    /// Returns upstream's defaults for a node.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            node_ips: Vec::new(),
            external_ips: Vec::new(),
            root_dir: "/var/lib/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            cert_dir: "/var/lib/kubelet/pki".into(),
            static_pod_path: None,
            static_pod_url: None,
            static_pod_headers: Vec::new(),
            static_pod_url_every: Duration::from_secs(20),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            max_pods: 110,
            standalone: false,
            register_node: true,
            node_labels: BTreeMap::new(),
            taints: Vec::new(),
            provider_id: String::new(),
            allowed_unsafe_sysctls: Vec::new(),
            reserved: Amounts::new(),
            exclusive_cpus: false,
            reserved_cpus: BTreeSet::new(),
            memory_by_nodes: false,
            reserved_memory: BTreeMap::new(),
            topology: Topology::default(),
            eviction_hard: EVICTION_HARD.map(|(signal, limit)| (signal.to_owned(), limit.to_owned())).into(),
            eviction_soft: BTreeMap::new(),
            eviction_soft_grace: BTreeMap::new(),
            eviction_minimum_reclaim: BTreeMap::new(),
            eviction_max_pod_grace_seconds: 0,
            eviction_pressure_transition: Duration::from_secs(300),
            seccomp_default: false,
            pod_pids_max: None,
            cgroup_root: "/".to_owned(),
            cpu_quotas: true,
            cgroups_per_qos: true,
            enforce_allocatable: true,
            single_process_oom_kill: false,
            systemd_groups: false,
            allow_missing_controllers: false,
            oom_score_adj: -999,
            image_verification: Verification::default(),
            parallel_pulls: 1,
            lease_seconds: 40,
            status_report: Duration::from_secs(300),
            status_update: Duration::from_secs(10),
            status_images_max: 50,
            address: IpAddr::from([0, 0, 0, 0]),
            port: 10250,
            healthz_port: 10248,
            tls: TlsSettings::default(),
            streaming_idle: Duration::from_secs(4 * 60 * 60),
            protect_kernel_defaults: false,
            serving: None,
            server_tls_bootstrap: false,
            client_ca: None,
            anonymous: false,
            token_webhook: true,
            authorization_webhook: true,
            crash_loop_max: Duration::from_secs(300),
            log_bytes_max: 10 << 20,
            log_files_max: 5,
            image_gc_high: 85,
            image_gc_low: 80,
            image_gc_min_age: Duration::from_secs(120),
            image_gc_max_age: Duration::ZERO,
            limited_swap: false,
            rotate_certificates: false,
            shutdown_grace: Duration::ZERO,
            shutdown_grace_critical: Duration::ZERO,
            shutdown_grace_by_priority: Vec::new(),
            credential_providers: Vec::new(),
            given: Value::object(),
        }
    }

    /// Applies a KubeletConfiguration. Returns the names of its fields that have no effect.
    pub fn apply(&mut self, text: &str) -> Result<Vec<String>, ConfigError> {
        let value = yaml::parse(text)?;
        let text_of = |field: &str| value.str_at(&[field]).unwrap_or_default();
        let (version, kind) = (text_of("apiVersion"), text_of("kind"));
        if (version, kind) != ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration") {
            return Err(ConfigError::Kind(format!("{version} {kind}")));
        }
        let mut vain = Vec::new();
        for (field, value) in value.as_object().into_iter().flat_map(Object::iter) {
            let field = Field { name: field, value };
            if value.is_null() || matches!(field.name, "apiVersion" | "kind") || self.take(&field)? {
                continue;
            }
            if !WITHOUT_EFFECT.contains(&field.name) {
                return Err(field.bad("unknown field"));
            }
            vain.push(field.name.to_owned());
        }
        self.take_verification(&value)?;
        self.given = value;
        self.check()?;
        Ok(vain)
    }

    /// Validates combinations of fields.
    fn check(&self) -> Result<(), ConfigError> {
        let bad = |field: &str, problem: String| Err(ConfigError::Field { field: field.to_owned(), problem });
        if let Some(signal) = self.eviction_soft.keys().find(|signal| !self.eviction_soft_grace.contains_key(*signal)) {
            return bad(
                "evictionSoftGracePeriod",
                format!("grace period must be specified for the soft eviction threshold {signal}"),
            );
        }
        if self.shutdown_grace_critical > self.shutdown_grace {
            return bad("shutdownGracePeriodCriticalPods", "must not be longer than shutdownGracePeriod".to_owned());
        }
        if !self.shutdown_grace.is_zero() && !self.shutdown_grace_by_priority.is_empty() {
            return bad(
                "shutdownGracePeriodByPodPriority",
                "must not be set together with shutdownGracePeriod".to_owned(),
            );
        }
        Ok(())
    }

    /// Applies one field. Returns false if the field is unknown or has no effect.
    fn take(&mut self, field: &Field<'_>) -> Result<bool, ConfigError> {
        Ok(self.take_server(field)?
            || self.take_upkeep(field)?
            || self.take_node(field)?
            || self.take_placement(field)?
            || self.take_manifests(field)?)
    }

    /// Applies the image verification policy and its allowlist, which only `NeverVerifyAllowlistedImages` accepts.
    fn take_verification(&mut self, value: &Value) -> Result<(), ConfigError> {
        let [policy, list] = ["imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist"]
            .map(|name| Field { name, value: &value[name] });
        let entries = if list.value.is_null() { Vec::new() } else { list.texts()? };
        let word = policy.value.as_str().unwrap_or_default();
        if word != "NeverVerifyAllowlistedImages" && !entries.is_empty() {
            return Err(list.bad("needs imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages"));
        }
        let listed = entries.iter().map(|entry| AllowlistEntry::parse(entry)).collect::<Result<_, _>>();
        self.image_verification = match word {
            "" if policy.value.is_null() => return Ok(()),
            "NeverVerify" => Verification::Never,
            "NeverVerifyPreloadedImages" => Verification::UnlessPreloaded,
            "NeverVerifyAllowlistedImages" => Verification::UnlessListed(listed.map_err(|cause| list.bad(cause))?),
            "AlwaysVerify" => Verification::Always,
            _ => {
                return Err(policy.bad(
                    "must be NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify",
                ));
            }
        };
        Ok(())
    }

    /// Applies fields of the server: addresses, TLS, authentication and authorization.
    fn take_server(&mut self, field: &Field<'_>) -> Result<bool, ConfigError> {
        match field.name {
            "address" => self.address = field.parse()?,
            "authentication" => {
                let at = |keys: &[&str]| field.value.at(keys).and_then(Value::as_bool);
                self.anonymous = at(&["anonymous", "enabled"]).unwrap_or(self.anonymous);
                self.token_webhook = at(&["webhook", "enabled"]).unwrap_or(self.token_webhook);
                let ca = field.value.str_at(&["x509", "clientCAFile"]).filter(|file| !file.is_empty());
                self.client_ca = ca.map(PathBuf::from).or(self.client_ca.take());
            }
            "authorization" => {
                if let Some(mode) = field.value.str_at(&["mode"]) {
                    self.authorization_webhook =
                        authorization_mode(mode).ok_or_else(|| field.bad("mode must be AlwaysAllow or Webhook"))?;
                }
            }
            "healthzPort" => self.healthz_port = field.number()?,
            "port" => self.port = field.number()?,
            "serverTLSBootstrap" => self.server_tls_bootstrap = field.bool()?,
            "rotateCertificates" => self.rotate_certificates = field.bool()?,
            "streamingConnectionIdleTimeout" => self.streaming_idle = field.duration()?,
            "tlsCipherSuites" => self.tls.cipher_suites = field.texts()?,
            "tlsMinVersion" => self.tls.min_version = field.parse()?,
            "tlsCertFile" => self.serving.get_or_insert_default().0 = field.text()?.into(),
            "tlsPrivateKeyFile" => self.serving.get_or_insert_default().1 = field.text()?.into(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies fields of logs, images, eviction and other housekeeping.
    fn take_upkeep(&mut self, field: &Field<'_>) -> Result<bool, ConfigError> {
        match field.name {
            "containerLogMaxFiles" => self.log_files_max = field.number()?,
            "containerLogMaxSize" => self.log_bytes_max = field.quantity()?.value().max(0).unsigned_abs(),
            "crashLoopBackOff" => {
                let longest = Field {
                    name: "crashLoopBackOff.maxContainerRestartPeriod",
                    value: &field.value["maxContainerRestartPeriod"],
                };
                if !longest.value.is_null() {
                    self.crash_loop_max = longest.duration()?;
                }
            }
            "evictionHard" => self.eviction_hard = field.thresholds()?,
            "evictionMaxPodGracePeriod" => self.eviction_max_pod_grace_seconds = field.number()?,
            "evictionMinimumReclaim" => self.eviction_minimum_reclaim = field.thresholds()?,
            "evictionPressureTransitionPeriod" => self.eviction_pressure_transition = field.duration()?,
            "evictionSoft" => self.eviction_soft = field.thresholds()?,
            "evictionSoftGracePeriod" => self.eviction_soft_grace = field.durations()?,
            "imageGCHighThresholdPercent" => self.image_gc_high = field.number()?,
            "imageGCLowThresholdPercent" => self.image_gc_low = field.number()?,
            "imageMaximumGCAge" => self.image_gc_max_age = field.duration()?,
            "imageMinimumGCAge" => self.image_gc_min_age = field.duration()?,
            // Both fields are read together by `take_verification`.
            "imagePullCredentialsVerificationPolicy" | "preloadedImagesVerificationAllowlist" => {}
            "mergeDefaultEvictionSettings" => {
                for (signal, limit) in EVICTION_HARD.into_iter().filter(|_| field.value.as_bool() == Some(true)) {
                    self.eviction_hard.entry(signal.to_owned()).or_insert_with(|| limit.to_owned());
                }
            }
            "shutdownGracePeriod" => self.shutdown_grace = field.duration()?,
            "shutdownGracePeriodByPodPriority" => self.shutdown_grace_by_priority = field.priorities()?,
            "shutdownGracePeriodCriticalPods" => self.shutdown_grace_critical = field.duration()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies fields of the node and of its pods.
    fn take_node(&mut self, field: &Field<'_>) -> Result<bool, ConfigError> {
        match field.name {
            "protectKernelDefaults" => self.protect_kernel_defaults = field.bool()?,
            "allowedUnsafeSysctls" => self.allowed_unsafe_sysctls = field.texts()?,
            "cgroupDriver" => {
                self.systemd_groups = match field.text()? {
                    "systemd" => true,
                    "" | "cgroupfs" => false,
                    _ => return Err(field.bad("must be cgroupfs or systemd")),
                };
            }
            "cgroupRoot" => self.cgroup_root = field.text()?.to_owned(),
            "cgroupsPerQOS" => self.cgroups_per_qos = field.bool()?,
            "clusterDNS" => self.cluster_dns = field.texts()?,
            "clusterDomain" => self.cluster_domain = field.text()?.to_owned(),
            "kubeReserved" | "systemReserved" => {
                let amounts = field.map()?.into_iter().map(|(name, text)| {
                    text.parse().map(|amount| (name.into(), amount)).map_err(|_| field.bad("has an invalid quantity"))
                });
                amounts::add(&mut self.reserved, &amounts.collect::<Result<_, _>>()?);
            }
            "maxParallelImagePulls" => self.parallel_pulls = field.number()?,
            "maxPods" => self.max_pods = field.number()?,
            "memorySwap" => {
                self.limited_swap = match field.value.str_at(&["swapBehavior"]).unwrap_or_default() {
                    "LimitedSwap" => true,
                    "" | "NoSwap" => false,
                    _ => return Err(field.bad("swapBehavior must be NoSwap or LimitedSwap")),
                };
            }
            "nodeLeaseDurationSeconds" => self.lease_seconds = field.number()?,
            "nodeStatusMaxImages" => self.status_images_max = field.number()?,
            "nodeStatusReportFrequency" => self.status_report = field.duration()?,
            "nodeStatusUpdateFrequency" => self.status_update = field.duration()?,
            "podLogsDir" => self.pod_logs_dir = field.text()?.into(),
            // Zero and negative values mean no limit.
            "podPidsLimit" => self.pod_pids_max = Some(field.number()?).filter(|most| *most > 0),
            "providerID" => self.provider_id = field.text()?.to_owned(),
            "registerNode" => self.register_node = field.bool()?,
            "registerWithTaints" => self.taints = field.value.as_array().unwrap_or_default().to_vec(),
            "resolvConf" => self.resolv_conf = field.text()?.into(),
            "seccompDefault" => self.seccomp_default = field.bool()?,
            "serializeImagePulls" => {
                if !field.bool()? && self.parallel_pulls == 1 {
                    self.parallel_pulls = usize::MAX >> 8;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies fields of cgroups and of the CPU, memory and topology managers.
    fn take_placement(&mut self, field: &Field<'_>) -> Result<bool, ConfigError> {
        match field.name {
            // DEVIATION: enforceNodeAllocatable enforces `pods` only. `kube-reserved` and `system-reserved` are
            // accepted without effect, since this kubelet does not place processes in those cgroups.
            "enforceNodeAllocatable" => self.enforce_allocatable = field.texts()?.iter().any(|who| who == "pods"),
            "oomScoreAdj" => {
                self.oom_score_adj = field.number()?;
                if !(-1000..=1000).contains(&self.oom_score_adj) {
                    return Err(field.bad("must be between -1000 and 1000"));
                }
            }
            "singleProcessOOMKill" => self.single_process_oom_kill = field.bool()?,
            "cpuCFSQuota" => self.cpu_quotas = field.bool()?,
            "cpuManagerPolicy" => {
                self.exclusive_cpus = match field.text()? {
                    "static" => true,
                    "" | "none" => false,
                    _ => return Err(field.bad("must be none or static")),
                };
            }
            "memoryManagerPolicy" => {
                self.memory_by_nodes = match field.text()? {
                    "Static" => true,
                    "" | "None" => false,
                    _ => return Err(field.bad("must be None or Static")),
                };
            }
            "reservedMemory" => self.reserved_memory = field.amounts_by_node()?,
            "reservedSystemCPUs" => {
                let cpus = crate::cpus::parse_list(field.text()?);
                self.reserved_cpus = cpus.ok_or_else(|| field.bad("must be a list of CPUs"))?;
            }
            "topologyManagerPolicy" => {
                let policy = Policy::named(field.text()?);
                self.topology.policy =
                    policy.ok_or_else(|| field.bad("must be none, best-effort, restricted or single-numa-node"))?;
            }
            "topologyManagerScope" => {
                let scope = Scope::named(field.text()?);
                self.topology.scope = scope.ok_or_else(|| field.bad("must be container or pod"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies fields of static pods.
    fn take_manifests(&mut self, field: &Field<'_>) -> Result<bool, ConfigError> {
        match field.name {
            "httpCheckFrequency" => self.static_pod_url_every = field.duration()?.max(URL_EVERY_MIN),
            "staticPodPath" => {
                self.static_pod_path = Some(field.text()?.into()).filter(|path: &PathBuf| !path.as_os_str().is_empty());
            }
            "staticPodURL" => {
                let url = Some(field.text()?).filter(|url| !url.is_empty());
                let parsed = url.map(|url| url.parse::<Uri>().ok().filter(|url| url.host().is_some()));
                self.static_pod_url = parsed.map(|url| url.ok_or_else(|| field.bad("must be a URL"))).transpose()?;
            }
            "staticPodURLHeader" => self.static_pod_headers = field.headers()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether an authorization mode uses the API server; `None` for an unknown mode.
pub fn authorization_mode(mode: &str) -> Option<bool> {
    match mode {
        "Webhook" => Some(true),
        "AlwaysAllow" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_applied_and_fields_without_effect_are_returned() {
        let mut config = Config::new("n");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.96.0.10]\n\
            maxPods: 7\nnodeStatusUpdateFrequency: 20s\nauthentication: {anonymous: {enabled: true}}\nhairpinMode: none\n";
        assert_eq!(config.apply(text).unwrap(), ["hairpinMode"]);
        assert_eq!((config.max_pods, config.anonymous), (7, true));
        assert_eq!(config.status_update, Duration::from_secs(20));
    }

    #[test]
    fn invalid_fields_are_rejected_by_name() {
        let check = |line: &str, expect: &str| {
            let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{line}\n");
            assert_eq!(Config::new("n").apply(&text).unwrap_err().to_string(), expect);
        };
        check("maxPods: -1", "maxPods: must be a number in the valid range");
        check("maxPodz: 1", "maxPodz: unknown field");
        check("evictionHard: {memory.free: 1Gi}", "evictionHard: unknown eviction signal memory.free");
        check(
            "evictionSoft: {memory.available: 1Gi}",
            "evictionSoftGracePeriod: grace period must be specified for the soft eviction threshold memory.available",
        );
        check(
            "shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s",
            "shutdownGracePeriodCriticalPods: must not be longer than shutdownGracePeriod",
        );
        check("memoryManagerPolicy: static", "memoryManagerPolicy: must be None or Static");
        check(
            "topologyManagerPolicy: near",
            "topologyManagerPolicy: must be none, best-effort, restricted or single-numa-node",
        );
        check("topologyManagerScope: node", "topologyManagerScope: must be container or pod");
        check("reservedMemory: [{numaNode: 0, limits: {memory: much}}]", "reservedMemory: has an invalid quantity");
        check(
            "reservedMemory: [{numaNode: 0, limits: {}}, {numaNode: 0, limits: {}}]",
            "reservedMemory: each item must have a unique numaNode and limits",
        );
        check(
            "preloadedImagesVerificationAllowlist: [r.example/a]",
            "preloadedImagesVerificationAllowlist: needs imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages",
        );
        check(
            "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [a*]",
            "preloadedImagesVerificationAllowlist: not a valid wildcard pattern, only patterns ending with '/*' are allowed",
        );
        check("oomScoreAdj: -1001", "oomScoreAdj: must be between -1000 and 1000");
        check("cgroupDriver: other", "cgroupDriver: must be cgroupfs or systemd");
        assert!(matches!(Config::new("n").apply("kind: Pod"), Err(ConfigError::Kind(_))));
    }
}
