//! How a kubelet is set up: defaults, a KubeletConfiguration, and whatever flags change afterwards.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use machinery::quantity::Quantity;
use machinery::{Object, Value, yaml};

use crate::resources::Amounts;

/// How a kubelet is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of its node.
    pub node_name: String,
    /// The addresses of its node; found out if empty.
    pub node_ips: Vec<IpAddr>,
    /// Everything it keeps.
    pub root_dir: PathBuf,
    /// Where containers' logs are.
    pub pod_logs_dir: PathBuf,
    /// Where its certificates are.
    pub cert_dir: PathBuf,
    /// Pods that run without an API server.
    pub static_pod_path: Option<PathBuf>,
    /// Name servers of the cluster.
    pub cluster_dns: Vec<String>,
    /// Domain of the cluster.
    pub cluster_domain: String,
    /// The node's resolv.conf.
    pub resolv_conf: PathBuf,
    /// How many pods the node takes.
    pub max_pods: u32,
    /// Whether it makes its Node object.
    pub register_node: bool,
    /// Labels of the Node object.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the Node object when it is made.
    pub taints: Vec<Value>,
    /// What a cloud calls the node.
    pub provider_id: String,
    /// What pods may set in the kernel besides what is safe; `*` at an end stands for anything.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// What is kept from pods for Kubernetes and for the system.
    pub reserved: Amounts,
    /// When pods are put out at once: `memory.available` and the like.
    pub eviction_hard: BTreeMap<String, String>,
    /// How long the node stays under pressure after it was.
    pub eviction_pressure_transition: Duration,
    /// Where the groups of pods are.
    pub cgroup_root: String,
    /// Whether pods have groups at all.
    pub cgroups_per_qos: bool,
    /// How many images are pulled at once.
    pub parallel_pulls: usize,
    /// How long a lease of the node lasts, in seconds.
    pub lease_seconds: i64,
    /// How often a status that did not change is written all the same.
    pub status_report: Duration,
    /// How often the node is looked at.
    pub status_update: Duration,
    /// How many images are listed in the node's status; negative for all.
    pub status_images_max: i64,
    /// Where the server listens.
    pub address: IpAddr,
    /// The port of the server; zero chooses one.
    pub port: u16,
    /// The port of healthz on the loopback interface; zero for none.
    pub healthz_port: u16,
    /// The server's certificate and key; made if absent.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// Who vouches for clients of the server.
    pub client_ca: Option<PathBuf>,
    /// Whether those who prove nothing may ask.
    pub anonymous: bool,
    /// Whether tokens are shown to the API server.
    pub token_webhook: bool,
    /// Whether the API server is asked who may what; otherwise everybody may everything.
    pub authorization_webhook: bool,
    /// The longest wait of a container that fails again and again.
    pub crash_loop_max: Duration,
    /// How large a log grows before it is set aside.
    pub log_bytes_max: u64,
    /// How many logs of a container are kept.
    pub log_files_max: usize,
    /// Above this much of its disk, images are removed; in percent.
    pub image_gc_high: u64,
    /// Down to this much.
    pub image_gc_low: u64,
    /// The youngest image that may be removed.
    pub image_gc_min_age: Duration,
    /// Whether the kubelet's own certificate is renewed.
    pub rotate_certificates: bool,
    /// How long pods may take when the machine is shut down.
    pub shutdown_grace: Duration,
    /// The configuration as given, for `/configz`.
    pub given: Value,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is no YAML.
    #[error("it is not YAML")]
    Syntax(#[from] yaml::Error),
    /// It is something else.
    #[error("it is {0}, not kubelet.config.k8s.io/v1beta1 KubeletConfiguration")]
    Kind(String),
    /// A field says something that cannot be.
    #[error("{field}: {problem}")]
    Field {
        /// Which one.
        field: String,
        /// What is wrong.
        problem: String,
    },
}

/// Fields of a KubeletConfiguration that change nothing here.
const WITHOUT_EFFECT: &[&str] = &[
    "configMapAndSecretChangeDetectionStrategy",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "containerRuntimeEndpoint",
    "contentType",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "cpuManagerPolicy",
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
    "enforceNodeAllocatable",
    "eventBurst",
    "eventRecordQPS",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "fileCheckFrequency",
    "hairpinMode",
    "healthzBindAddress",
    "httpCheckFrequency",
    "imageMaximumGCAge",
    "imagePullCredentialsVerificationPolicy",
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
    "memoryManagerPolicy",
    "memorySwap",
    "memoryThrottlingFactor",
    "mergeDefaultEvictionSettings",
    "oomScoreAdj",
    "podCIDR",
    "podPidsLimit",
    "podsPerCore",
    "preloadedImagesVerificationAllowlist",
    "protectKernelDefaults",
    "qosReserved",
    "readOnlyPort",
    "registryBurst",
    "registryPullQPS",
    "reservedMemory",
    "reservedSystemCPUs",
    "runOnce",
    "runtimeRequestTimeout",
    "seccompDefault",
    "serverTLSBootstrap",
    "showHiddenMetricsForVersion",
    "shutdownGracePeriodByPodPriority",
    "shutdownGracePeriodCriticalPods",
    "singleProcessOOMKill",
    "staticPodURL",
    "staticPodURLHeader",
    "streamingConnectionIdleTimeout",
    "syncFrequency",
    "systemCgroups",
    "systemReservedCgroup",
    "tlsCipherSuites",
    "tlsMinVersion",
    "topologyManagerPolicy",
    "topologyManagerPolicyOptions",
    "topologyManagerScope",
    "tracing",
    "userNamespaces",
    "volumePluginDir",
    "volumeStatsAggPeriod",
];

impl Config {
    /// Upstream's defaults for a node of that name.
    pub fn new(node_name: impl Into<String>) -> Self {
        let eviction_hard = [
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
            ("imagefs.inodesFree", "5%"),
        ];
        Self {
            node_name: node_name.into(),
            node_ips: Vec::new(),
            root_dir: "/var/lib/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            cert_dir: "/var/lib/kubelet/pki".into(),
            static_pod_path: None,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            max_pods: 110,
            register_node: true,
            node_labels: BTreeMap::new(),
            taints: Vec::new(),
            provider_id: String::new(),
            allowed_unsafe_sysctls: Vec::new(),
            reserved: Amounts::new(),
            eviction_hard: eviction_hard.map(|(signal, limit)| (signal.to_owned(), limit.to_owned())).into(),
            eviction_pressure_transition: Duration::from_secs(300),
            cgroup_root: "/".to_owned(),
            cgroups_per_qos: true,
            parallel_pulls: 1,
            lease_seconds: 40,
            status_report: Duration::from_secs(300),
            status_update: Duration::from_secs(10),
            status_images_max: 50,
            address: IpAddr::from([0, 0, 0, 0]),
            port: 10250,
            healthz_port: 10248,
            serving: None,
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
            rotate_certificates: false,
            shutdown_grace: Duration::ZERO,
            given: Value::object(),
        }
    }

    /// Takes over what a KubeletConfiguration says; gives back the fields that it names in vain.
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
        self.given = value;
        Ok(vain)
    }

    /// Takes one field over; false if it is none that has an effect.
    fn take(&mut self, field: &Field<'_>) -> Result<bool, ConfigError> {
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
                        authorization_mode(mode).ok_or_else(|| field.bad("mode is neither AlwaysAllow nor Webhook"))?;
                }
            }
            "allowedUnsafeSysctls" => self.allowed_unsafe_sysctls = field.texts()?,
            "cgroupDriver" if field.text()? != "cgroupfs" => {
                return Err(field.bad("the cgroup driver is cgroupfs"));
            }
            "cgroupDriver" => {}
            "cgroupRoot" => self.cgroup_root = field.text()?.to_owned(),
            "cgroupsPerQOS" => self.cgroups_per_qos = field.bool()?,
            "clusterDNS" => self.cluster_dns = field.texts()?,
            "clusterDomain" => self.cluster_domain = field.text()?.to_owned(),
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
            "evictionHard" => self.eviction_hard = field.map()?,
            "evictionPressureTransitionPeriod" => self.eviction_pressure_transition = field.duration()?,
            "healthzPort" => self.healthz_port = field.number()?,
            "imageGCHighThresholdPercent" => self.image_gc_high = field.number()?,
            "imageGCLowThresholdPercent" => self.image_gc_low = field.number()?,
            "imageMinimumGCAge" => self.image_gc_min_age = field.duration()?,
            "kubeReserved" | "systemReserved" => {
                let amounts = field.map()?.into_iter().map(|(name, text)| {
                    text.parse().map(|amount| (name, amount)).map_err(|_| field.bad("has an amount that is none"))
                });
                crate::resources::add(&mut self.reserved, &amounts.collect::<Result<_, _>>()?);
            }
            "maxParallelImagePulls" => self.parallel_pulls = field.number()?,
            "maxPods" => self.max_pods = field.number()?,
            "nodeLeaseDurationSeconds" => self.lease_seconds = field.number()?,
            "nodeStatusMaxImages" => self.status_images_max = field.number()?,
            "nodeStatusReportFrequency" => self.status_report = field.duration()?,
            "nodeStatusUpdateFrequency" => self.status_update = field.duration()?,
            "podLogsDir" => self.pod_logs_dir = field.text()?.into(),
            "port" => self.port = field.number()?,
            "providerID" => self.provider_id = field.text()?.to_owned(),
            "registerNode" => self.register_node = field.bool()?,
            "registerWithTaints" => self.taints = field.value.as_array().unwrap_or_default().to_vec(),
            "resolvConf" => self.resolv_conf = field.text()?.into(),
            "rotateCertificates" => self.rotate_certificates = field.bool()?,
            "serializeImagePulls" => {
                if !field.bool()? && self.parallel_pulls == 1 {
                    self.parallel_pulls = usize::MAX >> 8;
                }
            }
            "shutdownGracePeriod" => self.shutdown_grace = field.duration()?,
            "staticPodPath" => {
                self.static_pod_path = Some(field.text()?.into()).filter(|path: &PathBuf| !path.as_os_str().is_empty());
            }
            "tlsCertFile" => self.serving.get_or_insert_default().0 = field.text()?.into(),
            "tlsPrivateKeyFile" => self.serving.get_or_insert_default().1 = field.text()?.into(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether the API server is asked; `None` if there is no such mode.
pub fn authorization_mode(mode: &str) -> Option<bool> {
    match mode {
        "Webhook" => Some(true),
        "AlwaysAllow" => Some(false),
        _ => None,
    }
}

/// A field and what it says.
struct Field<'a> {
    name: &'a str,
    value: &'a Value,
}

impl Field<'_> {
    fn bad(&self, problem: &str) -> ConfigError {
        ConfigError::Field { field: self.name.to_owned(), problem: problem.to_owned() }
    }

    fn text(&self) -> Result<&str, ConfigError> {
        self.value.as_str().ok_or_else(|| self.bad("must be a string"))
    }

    fn bool(&self) -> Result<bool, ConfigError> {
        self.value.as_bool().ok_or_else(|| self.bad("must be true or false"))
    }

    fn number<N: TryFrom<i64>>(&self) -> Result<N, ConfigError> {
        let number = self.value.as_int().and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| self.bad("must be a number in its range"))
    }

    fn parse<T: std::str::FromStr>(&self) -> Result<T, ConfigError> {
        self.text()?.parse().map_err(|_| self.bad("cannot be read"))
    }

    fn quantity(&self) -> Result<Quantity, ConfigError> {
        self.parse()
    }

    fn duration(&self) -> Result<Duration, ConfigError> {
        let duration: machinery::time::Duration = self.parse()?;
        u64::try_from(duration.nanos()).map(Duration::from_nanos).map_err(|_| self.bad("must not be negative"))
    }

    fn texts(&self) -> Result<Vec<String>, ConfigError> {
        let list = self.value.as_array().ok_or_else(|| self.bad("must be a list"))?;
        list.iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| self.bad("must be a list of strings")))
            .collect()
    }

    fn map(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        let map = self.value.as_object().ok_or_else(|| self.bad("must be a map"))?;
        let entry = |(key, value): (&str, &Value)| {
            let text = value.as_str().map(str::to_owned).or_else(|| value.as_int().map(|number| number.to_string()));
            text.map(|text| (key.to_owned(), text)).ok_or_else(|| self.bad("must be a map of strings"))
        };
        map.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_changes_what_it_names_and_says_what_it_names_in_vain() {
        let mut config = Config::new("n");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.96.0.10]\n\
            maxPods: 7\nnodeStatusUpdateFrequency: 20s\nauthentication: {anonymous: {enabled: true}}\nhairpinMode: none\n";
        assert_eq!(config.apply(text).unwrap(), ["hairpinMode"]);
        assert_eq!((config.max_pods, config.anonymous), (7, true));
        assert_eq!(config.status_update, Duration::from_secs(20));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        let check = |line: &str, expect: &str| {
            let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{line}\n");
            assert_eq!(Config::new("n").apply(&text).unwrap_err().to_string(), expect);
        };
        check("maxPods: -1", "maxPods: must be a number in its range");
        check("maxPodz: 1", "maxPodz: unknown field");
        check("cgroupDriver: systemd", "cgroupDriver: the cgroup driver is cgroupfs");
        assert!(matches!(Config::new("n").apply("kind: Pod"), Err(ConfigError::Kind(_))));
    }
}
