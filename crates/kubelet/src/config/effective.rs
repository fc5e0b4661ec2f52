//! The effective KubeletConfiguration for `/configz`, with defaults and flags.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::{Object, Value, value};

use super::Config;
use crate::images::Verification;
use crate::topology::{Policy, Scope};

impl Config {
    /// Returns every field that has an effect with its effective value, and the given value of other fields.
    pub fn effective(&self) -> Value {
        let mut all = self.given.as_object().cloned().unwrap_or_default();
        all.remove("apiVersion");
        all.remove("kind");
        // Header values may be credentials.
        all.remove("staticPodURLHeader");
        for part in [self.server(), self.upkeep(), self.node(), self.pods(), fixed()] {
            for (field, value) in part.as_object().into_iter().flat_map(Object::iter) {
                all.insert(field, value.clone());
            }
        }
        if !self.reserved.is_empty() && !all.contains_key("kubeReserved") && !all.contains_key("systemReserved") {
            let reserved: Object =
                self.reserved.iter().map(|(name, amount)| (name.as_str(), amount.to_string())).collect();
            all.insert("systemReserved", reserved);
        }
        Value::Object(all)
    }

    fn server(&self) -> Value {
        let x509 = match &self.client_ca {
            Some(file) => value!({"clientCAFile": (file.display().to_string())}),
            None => value!({}),
        };
        let mode = if self.authorization_webhook { "Webhook" } else { "AlwaysAllow" };
        let mut fields = value!({
            "address": (self.address.to_string()), "port": (u32::from(self.port)),
            "authentication": {"x509": x509, "webhook": {"enabled": (self.token_webhook)},
                "anonymous": {"enabled": (self.anonymous)}},
            "authorization": {"mode": mode},
            "healthzPort": (u32::from(self.healthz_port)), "healthzBindAddress": "127.0.0.1",
            "rotateCertificates": (self.rotate_certificates), "serverTLSBootstrap": (self.server_tls_bootstrap),
            "streamingConnectionIdleTimeout": (go(self.streaming_idle)),
            "tlsCipherSuites": (texts(&self.tls.cipher_suites)),
        });
        if let (Some((certificate, key)), Some(fields)) = (&self.serving, fields.as_object_mut()) {
            fields.insert("tlsCertFile", certificate.display().to_string());
            fields.insert("tlsPrivateKeyFile", key.display().to_string());
        }
        fields
    }

    fn upkeep(&self) -> Value {
        let verification = match &self.image_verification {
            Verification::Never => "NeverVerify",
            Verification::UnlessPreloaded => "NeverVerifyPreloadedImages",
            Verification::UnlessListed(_) => "NeverVerifyAllowlistedImages",
            Verification::Always => "AlwaysVerify",
        };
        let grace: Object =
            self.eviction_soft_grace.iter().map(|(signal, grace)| (signal.as_str(), go(*grace))).collect();
        let by_priority = self.shutdown_grace_by_priority.iter().map(|(priority, seconds)| {
            value!({"priority": (*priority), "shutdownGracePeriodSeconds": (i64::try_from(*seconds).unwrap_or(i64::MAX))})
        });
        value!({
            "containerLogMaxFiles": (i64::try_from(self.log_files_max).unwrap_or(i64::MAX)),
            "containerLogMaxSize": (bytes(self.log_bytes_max)),
            "crashLoopBackOff": {"maxContainerRestartPeriod": (go(self.crash_loop_max))},
            "evictionHard": (map(&self.eviction_hard)), "evictionSoft": (map(&self.eviction_soft)),
            "evictionSoftGracePeriod": grace, "evictionMinimumReclaim": (map(&self.eviction_minimum_reclaim)),
            "evictionMaxPodGracePeriod": (self.eviction_max_pod_grace_seconds),
            "evictionPressureTransitionPeriod": (go(self.eviction_pressure_transition)),
            "imageGCHighThresholdPercent": (number(self.image_gc_high)),
            "imageGCLowThresholdPercent": (number(self.image_gc_low)),
            "imageMaximumGCAge": (go(self.image_gc_max_age)), "imageMinimumGCAge": (go(self.image_gc_min_age)),
            "imagePullCredentialsVerificationPolicy": verification,
            "shutdownGracePeriod": (go(self.shutdown_grace)),
            "shutdownGracePeriodCriticalPods": (go(self.shutdown_grace_critical)),
            "shutdownGracePeriodByPodPriority": (by_priority.collect::<Vec<Value>>()),
        })
    }

    fn node(&self) -> Value {
        let swap = if self.limited_swap { "LimitedSwap" } else { "NoSwap" };
        let mut fields = value!({
            "allowedUnsafeSysctls": (texts(&self.allowed_unsafe_sysctls)),
            "cgroupDriver": (if self.systemd_groups { "systemd" } else { "cgroupfs" }),
            "cgroupRoot": (self.cgroup_root.as_str()), "cgroupsPerQOS": (self.cgroups_per_qos),
            "clusterDNS": (texts(&self.cluster_dns)), "clusterDomain": (self.cluster_domain.as_str()),
            "enforceNodeAllocatable": (if self.enforce_allocatable { texts(&["pods".to_owned()]) } else { Vec::new() }),
            "maxPods": (self.max_pods), "memorySwap": {"swapBehavior": swap},
            "nodeLeaseDurationSeconds": (self.lease_seconds), "nodeStatusMaxImages": (self.status_images_max),
            "nodeStatusReportFrequency": (go(self.status_report)),
            "nodeStatusUpdateFrequency": (go(self.status_update)),
            "oomScoreAdj": (i64::from(self.oom_score_adj)), "podLogsDir": (self.pod_logs_dir.display().to_string()),
            "podPidsLimit": (self.pod_pids_max.unwrap_or(-1)), "protectKernelDefaults": (self.protect_kernel_defaults),
            "providerID": (self.provider_id.as_str()), "registerNode": (self.register_node),
            "registerWithTaints": (self.taints.clone()), "resolvConf": (self.resolv_conf.display().to_string()),
            "seccompDefault": (self.seccomp_default), "serializeImagePulls": (self.parallel_pulls == 1),
            "singleProcessOOMKill": (self.single_process_oom_kill),
        });
        if let Some(fields) = fields.as_object_mut() {
            // An unlimited count is omitted, as upstream.
            if self.parallel_pulls < usize::MAX >> 8 {
                fields.insert("maxParallelImagePulls", i64::try_from(self.parallel_pulls).unwrap_or(i64::MAX));
            }
            if !self.reserved_cpus.is_empty() {
                let cpus: Vec<String> = self.reserved_cpus.iter().map(ToString::to_string).collect();
                fields.insert("reservedSystemCPUs", cpus.join(","));
            }
        }
        fields
    }

    fn pods(&self) -> Value {
        let policy = match self.topology.policy {
            Policy::None => "none",
            Policy::BestEffort => "best-effort",
            Policy::Restricted => "restricted",
            Policy::SingleNode => "single-numa-node",
        };
        let scope = match self.topology.scope {
            Scope::Container => "container",
            Scope::Pod => "pod",
        };
        let mut fields = value!({
            "cpuCFSQuota": (self.cpu_quotas),
            "cpuManagerPolicy": (if self.exclusive_cpus { "static" } else { "none" }),
            "memoryManagerPolicy": (if self.memory_by_nodes { "Static" } else { "None" }),
            "topologyManagerPolicy": policy, "topologyManagerScope": scope,
            "httpCheckFrequency": (go(self.static_pod_url_every)),
        });
        if let Some(fields) = fields.as_object_mut() {
            if let Some(path) = &self.static_pod_path {
                fields.insert("staticPodPath", path.display().to_string());
            }
            if let Some(url) = &self.static_pod_url {
                fields.insert("staticPodURL", url.to_string());
            }
        }
        fields
    }
}

/// Returns the fields that have a fixed value in this kubelet.
fn fixed() -> Value {
    value!({
        "configMapAndSecretChangeDetectionStrategy": "Watch", "cpuCFSQuotaPeriod": "100ms",
        "enableControllerAttachDetach": true, "enableDebuggingHandlers": true, "enableServer": true,
        "failSwapOn": false, "failCgroupV1": false, "localStorageCapacityIsolation": true, "readOnlyPort": 0,
    })
}

fn go(duration: Duration) -> String {
    apimachinery::time::Duration::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

fn bytes(count: u64) -> String {
    let (count, format) = (i64::try_from(count).unwrap_or(i64::MAX), apimachinery::quantity::Format::BinarySI);
    apimachinery::quantity::Quantity::new(count, format).to_string()
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn texts(list: &[String]) -> Vec<Value> {
    list.iter().map(|text| Value::from(text.as_str())).collect()
}

fn map(pairs: &BTreeMap<String, String>) -> Object {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_configuration_contains_defaults_and_given_fields() {
        let mut config = Config::new("n");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\nhairpinMode: none\n\
            systemReserved: {memory: 1Gi}\nevictionHard: {memory.available: 5%}\nstaticPodURLHeader: {Authorization: [secret]}\n";
        config.apply(text).unwrap();
        config.oom_score_adj = -998;
        let effective = config.effective();
        let check = |path: &[&str], expect: Value| assert_eq!(effective.at(path), Some(&expect), "{path:?}");
        check(&["maxPods"], 7.into());
        check(&["hairpinMode"], "none".into());
        check(&["systemReserved"], value!({"memory": "1Gi"}));
        check(&["evictionHard"], value!({"memory.available": "5%"}));
        check(&["oomScoreAdj"], (-998).into());
        check(&["nodeStatusReportFrequency"], "5m0s".into());
        check(&["containerLogMaxSize"], "10Mi".into());
        check(&["authorization", "mode"], "Webhook".into());
        check(&["shutdownGracePeriod"], "0s".into());
        check(&["podPidsLimit"], (-1).into());
        assert!(effective.get("kind").is_none() && effective.get("staticPodURLHeader").is_none());
    }

    #[test]
    fn effective_configuration_can_be_applied_again() {
        let mut config = Config::new("n");
        let effective = config.effective();
        let mut again = effective.as_object().cloned().unwrap();
        again.insert("apiVersion", "kubelet.config.k8s.io/v1beta1");
        again.insert("kind", "KubeletConfiguration");
        config.apply(&apimachinery::json::to_string(&Value::Object(again))).unwrap();
        assert_eq!(config.effective(), effective);
    }
}
