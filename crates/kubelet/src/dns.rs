//! Pod DNS: resolv.conf, hostname and hosts file of a pod.

use std::fmt::Write as _;

use apimachinery::Value;
use node_api::cri::v1;

use crate::pod::Pod;

/// DNS settings of the node and of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// IP addresses of the cluster's DNS servers.
    pub cluster_dns: Vec<String>,
    /// Such as `cluster.local`.
    pub cluster_domain: String,
    /// The node's resolv.conf.
    pub host: Resolver,
}

/// A parsed resolv.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    /// Options such as `ndots:5`.
    pub options: Vec<String>,
}

impl Resolver {
    /// Parses a resolv.conf; ignores unknown lines.
    pub fn read(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            let mut tokens = line.split_whitespace().map(str::to_owned);
            match tokens.next().as_deref() {
                Some("nameserver") => resolver.servers.extend(tokens.next()),
                // Later entries override earlier ones.
                Some("search") => resolver.searches = tokens.collect(),
                Some("options") => resolver.options = tokens.collect(),
                _ => {}
            }
        }
        resolver
    }
}

/// Returns a pod's DNS configuration according to its `dnsPolicy` and `dnsConfig`.
pub fn resolver(pod: Pod<'_>, names: &Names) -> v1::DnsConfig {
    let policy = pod.spec().str_at(&["dnsPolicy"]).unwrap_or("ClusterFirst");
    let cluster = !names.cluster_dns.is_empty()
        && match policy {
            "ClusterFirst" => !pod.flag("hostNetwork"),
            "ClusterFirstWithHostNet" => true,
            _ => false,
        };
    let mut resolver = match policy {
        "None" => Resolver::default(),
        _ if cluster => {
            let domain = &names.cluster_domain;
            let searches = [format!("{}.svc.{domain}", pod.namespace()), format!("svc.{domain}"), domain.clone()];
            let all = searches.into_iter().filter(|_| !domain.is_empty()).chain(names.host.searches.iter().cloned());
            Resolver {
                servers: names.cluster_dns.clone(),
                searches: all.collect(),
                options: vec!["ndots:5".to_owned()],
            }
        }
        _ => names.host.clone(),
    };
    if let Some(config) = pod.spec().get("dnsConfig") {
        merge(&mut resolver, config);
    }
    v1::DnsConfig { servers: resolver.servers, searches: resolver.searches, options: resolver.options }
}

fn merge(resolver: &mut Resolver, config: &Value) {
    let texts = |field: &str| {
        let list = config[field].as_array().unwrap_or_default();
        list.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    for (have, more) in [(&mut resolver.servers, texts("nameservers")), (&mut resolver.searches, texts("searches"))] {
        for one in more {
            if !have.contains(&one) {
                have.push(one);
            }
        }
    }
    for option in config["options"].as_array().unwrap_or_default() {
        let name = option.str_at(&["name"]).unwrap_or_default();
        let value = option.str_at(&["value"]).unwrap_or_default();
        resolver.options.retain(|have| have.split(':').next() != Some(name));
        resolver.options.push(if value.is_empty() { name.to_owned() } else { format!("{name}:{value}") });
    }
}

/// Returns a pod's hostname, truncated to 63 bytes, the maximum length of a DNS label.
pub fn hostname(pod: Pod<'_>) -> String {
    let name = [&pod.spec()["hostnameOverride"], &pod.spec()["hostname"]].into_iter().find_map(Value::as_str);
    let mut name = name.filter(|name| !name.is_empty()).unwrap_or(pod.name());
    if name.len() > 63 {
        name = &name[..name.floor_char_boundary(63)];
    }
    name.trim_end_matches(['-', '.']).to_owned()
}

/// Returns the DNS domain of a pod with a subdomain, without its hostname; empty for other pods.
pub fn domain(pod: Pod<'_>, cluster_domain: &str) -> String {
    match pod.spec().str_at(&["subdomain"]).filter(|name| !name.is_empty()) {
        Some(subdomain) => format!("{subdomain}.{}.svc.{cluster_domain}", pod.namespace()),
        None => String::new(),
    }
}

/// Returns the hosts file of a pod with a pod network.
pub fn hosts(pod: Pod<'_>, ips: &[String], cluster_domain: &str) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let (hostname, domain) = (hostname(pod), domain(pod, cluster_domain));
    for ip in ips {
        if domain.is_empty() {
            let _ = writeln!(text, "{ip}\t{hostname}");
        } else {
            let _ = writeln!(text, "{ip}\t{hostname}.{domain}\t{hostname}");
        }
    }
    text.push_str(&aliases(pod));
    text
}

/// Returns the hosts file of a host-network pod: the node's hosts file and the pod's aliases.
pub fn host_network_hosts(pod: Pod<'_>, of_node: &str) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{of_node}{}", aliases(pod))
}

fn aliases(pod: Pod<'_>) -> String {
    let list = pod.list("hostAliases");
    if list.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in list {
        let names: Vec<&str> =
            alias["hostnames"].as_array().unwrap_or_default().iter().filter_map(Value::as_str).collect();
        let _ = writeln!(text, "{}\t{}", alias.str_at(&["ip"]).unwrap_or_default(), names.join("\t"));
    }
    text
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn resolv_conf_follows_the_dns_policy() {
        let names = Names {
            cluster_dns: vec!["10.96.0.10".into()],
            cluster_domain: "cluster.local".into(),
            host: Resolver::read("# c\nnameserver 1.1.1.1\nsearch a.example\noptions edns0\n"),
        };
        let check = |spec: Value, expect: &str| {
            let pod = value!({"metadata": {"namespace": "n"}, "spec": (spec.clone())});
            let found = resolver(Pod(&pod), &names);
            let text = [found.servers.join(","), found.searches.join(","), found.options.join(",")].join(" ");
            assert_eq!(text, expect, "{spec:?}");
        };
        check(value!({}), "10.96.0.10 n.svc.cluster.local,svc.cluster.local,cluster.local,a.example ndots:5");
        check(value!({"hostNetwork": true}), "1.1.1.1 a.example edns0");
        check(value!({"dnsPolicy": "Default"}), "1.1.1.1 a.example edns0");
        let config =
            value!({"nameservers": ["9.9.9.9"], "searches": ["x"], "options": [{"name": "ndots", "value": "2"}]});
        check(value!({"dnsPolicy": "None", "dnsConfig": (config.clone())}), "9.9.9.9 x ndots:2");
        check(value!({"dnsPolicy": "Default", "dnsConfig": config}), "1.1.1.1,9.9.9.9 a.example,x edns0,ndots:2");
    }

    #[test]
    fn hosts_file_contains_the_pod_and_its_host_aliases() {
        let pod = value!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"hostname": "h", "subdomain": "s",
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]}});
        let text = hosts(Pod(&pod), &["10.0.0.1".into()], "cluster.local");
        assert!(text.contains("\n10.0.0.1\th.s.n.svc.cluster.local\th\n"), "{text}");
        assert!(text.ends_with("\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"), "{text}");
        assert!(
            host_network_hosts(Pod(&pod), "127.0.0.1 x\n")
                .starts_with("# Kubernetes-managed hosts file (host network).\n127.0.0.1 x\n")
        );
    }
}
