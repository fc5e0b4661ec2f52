//! CRI PodSandboxConfig of a pod.

use std::collections::HashMap;

use apimachinery::{Object, Value};
use node_api::cri::v1;

use crate::dns::{self, Names};
use crate::pod::Pod;
use crate::runtime_status::labels;
use crate::{resources, security};

/// The parts of a PodSandboxConfig that do not come from the pod.
pub struct Inputs<'a> {
    pub names: &'a Names,
    pub log_directory: String,
    pub cgroup: String,
    /// Number of previous sandboxes of the pod.
    pub attempt: u32,
    /// User namespace mappings; `None` for the host's users.
    pub users: Option<v1::UserNamespace>,
}

/// Builds the PodSandboxConfig of a pod.
pub fn config(pod: Pod<'_>, inputs: &Inputs<'_>) -> v1::PodSandboxConfig {
    let host_network = pod.flag("hostNetwork");
    // A host-network pod has the host's name; runtimes reject a hostname for it.
    let hostname = if host_network {
        String::new()
    } else {
        let (name, domain) = (dns::hostname(pod), dns::domain(pod, &inputs.names.cluster_domain));
        if pod.flag("setHostnameAsFQDN") && !domain.is_empty() { format!("{name}.{domain}") } else { name }
    };
    let mut security = security::of_sandbox(pod);
    security.namespace_options.get_or_insert_default().userns_options.clone_from(&inputs.users);
    let (resources, overhead) = resources::of_sandbox(pod);
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.name().to_owned(),
            uid: pod.uid().to_owned(),
            namespace: pod.namespace().to_owned(),
            attempt: inputs.attempt,
        }),
        hostname,
        log_directory: inputs.log_directory.clone(),
        dns_config: Some(dns::resolver(pod, inputs.names)),
        port_mappings: if host_network { Vec::new() } else { ports(pod) },
        labels: pod_labels(pod),
        annotations: texts(pod.meta().annotations()),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: inputs.cgroup.clone(),
            security_context: Some(security),
            sysctls: sysctls(pod),
            overhead: Some(overhead),
            resources: Some(resources),
        }),
        windows: None,
    }
}

/// Returns the pod's labels and those by which the kubelet finds its sandboxes.
fn pod_labels(pod: Pod<'_>) -> HashMap<String, String> {
    let mut all = texts(pod.meta().labels());
    all.extend([
        (labels::POD_NAME.to_owned(), pod.name().to_owned()),
        (labels::POD_NAMESPACE.to_owned(), pod.namespace().to_owned()),
        (labels::POD_UID.to_owned(), pod.uid().to_owned()),
    ]);
    all
}

fn texts(entries: Option<&Object>) -> HashMap<String, String> {
    let entries = entries.into_iter().flat_map(Object::iter);
    entries.filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned()))).collect()
}

fn sysctls(pod: Pod<'_>) -> HashMap<String, String> {
    let list = pod.spec()["securityContext"]["sysctls"].as_array().unwrap_or_default();
    let text = |sysctl: &Value, field: &str| sysctl.str_at(&[field]).unwrap_or_default().to_owned();
    list.iter().map(|sysctl| (text(sysctl, "name").replace('/', "."), text(sysctl, "value"))).collect()
}

fn ports(pod: Pod<'_>) -> Vec<v1::PortMapping> {
    let containers = pod.init_containers().chain(pod.app_containers());
    let ports = containers.flat_map(|container| container.spec["ports"].as_array().unwrap_or_default());
    let number =
        |port: &Value, field: &str| port[field].as_int().and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
    ports
        .map(|port| v1::PortMapping {
            protocol: match port.str_at(&["protocol"]) {
                Some("UDP") => v1::Protocol::Udp,
                Some("SCTP") => v1::Protocol::Sctp,
                _ => v1::Protocol::Tcp,
            }
            .into(),
            container_port: number(port, "containerPort"),
            host_port: number(port, "hostPort"),
            host_ip: port.str_at(&["hostIP"]).unwrap_or_default().to_owned(),
        })
        .collect()
}
