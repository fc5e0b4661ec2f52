//! Components of a cluster and their flags, as if each were started alone.

mod kubelet_flags;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;

use ::store::client::RemoteConfig;

use anyhow::{Context, Result};
use auth::User;
use auth::node::component;
use clap::ArgMatches;
use pki::{CertificateAuthority, Pki, Subject, Usage};

use super::{Options, preflight};
use crate::component::ProcessContext;
use crate::{
    apiserver, controller_manager, dns, etcd, ingress, kubelet, local_path, manifests, metrics_server,
    mounted_dashboard, network, proxy, scheduler,
};

/// Client port of a store member.
pub(crate) const STORE_PORT: u16 = 2379;
/// Peer port of a store member.
pub(crate) const STORE_PEER_PORT: u16 = 2380;
/// Port that is never given to LoadBalancer Services, so that hosts stay reachable.
const SSH_PORT: u16 = 22;
/// User of the API server's client certificate for kubelets.
pub(crate) const KUBELET_CLIENT_USER: &str = "kube-apiserver-kubelet-client";
/// Name of the metrics server for `--disable`. Its objects are deleted if it is disabled.
pub(crate) const METRICS: &str = "metrics";
/// Name of the ingress controller for `--disable`. Its IngressClass is deleted if it is disabled.
pub(crate) const INGRESS: &str = "ingress";
/// Name of the component that applies the manifests directory, for `--disable`.
pub(crate) const MANIFESTS: &str = "manifests";
/// Prefix of the names of the servers' ApplySets.
const MANIFESTS_OF: &str = "knarr-manifests-";

/// The future of a running component. It completes only when the component stops.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The store of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Store {
    /// Embedded in the API server's process.
    #[default]
    Embedded,
    /// A member of a replicated store, in the same process as the API server.
    Member {
        /// Value of `--initial-cluster`, `name=url`. Empty if the member has run before.
        initial: Vec<String>,
        /// Host of another member that adds this one.
        via: Option<String>,
    },
    /// An external etcd. The strings are flags of the API server.
    External(Vec<String>),
}

/// Hosts on which a component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Servers with a store member.
    Store,
    /// All servers.
    Server,
    /// All nodes, including servers.
    Node,
}

pub(crate) struct Row {
    /// Name for `--disable`. Empty if the component is required.
    pub part: &'static str,
    /// Name of the command that runs the component alone.
    pub name: &'static str,
    pub role: Placement,
    /// Argument of `knarr up` that adds a flag to the component.
    pub own_flags: &'static str,
    /// Name of the component's kubeconfig, which is its identity.
    pub kubeconfig: &'static str,
    /// Computes the component's flags.
    flags: fn(&Options, &Layout, &Pki) -> Vec<String>,
    pub arguments: fn(clap::Command) -> clap::Command,
    pub run: fn(ArgMatches, ProcessContext) -> Running,
}

/// All components in start order.
pub(crate) const ROWS: &[Row] = &[
    Row {
        part: "",
        name: "etcd",
        role: Placement::Store,
        own_flags: "etcd-arg",
        kubeconfig: "admin",
        flags: store_flags,
        arguments: etcd::arguments,
        run: |matches, _| Box::pin(async move { etcd::start(&matches).await }),
    },
    Row {
        part: "",
        name: "kube-apiserver",
        role: Placement::Server,
        own_flags: "kube-apiserver-arg",
        kubeconfig: "admin",
        flags: server_flags,
        arguments: apiserver::arguments,
        run: |matches, shared| Box::pin(async move { apiserver::start(&matches, shared.in_process.as_ref()).await }),
    },
    Row {
        part: "controller-manager",
        name: "kube-controller-manager",
        role: Placement::Server,
        own_flags: "kube-controller-manager-arg",
        kubeconfig: "controller-manager",
        flags: manager_flags,
        arguments: controller_manager::arguments,
        run: |matches, shared| {
            Box::pin(async move { controller_manager::start(&matches, shared.in_process.as_ref()).await })
        },
    },
    Row {
        part: "scheduler",
        name: "kube-scheduler",
        role: Placement::Server,
        own_flags: "kube-scheduler-arg",
        kubeconfig: "scheduler",
        flags: scheduler_flags,
        arguments: scheduler::arguments,
        run: |matches, shared| Box::pin(async move { scheduler::start(&matches, shared.in_process.as_ref()).await }),
    },
    Row {
        part: "kubelet",
        name: "kubelet",
        role: Placement::Node,
        own_flags: "kubelet-arg",
        kubeconfig: "kubelet",
        flags: kubelet_flags::of,
        arguments: kubelet::arguments,
        run: |matches, shared| Box::pin(async move { kubelet::start(&matches, &shared).await }),
    },
    Row {
        part: "proxy",
        name: "kube-proxy",
        role: Placement::Node,
        own_flags: "kube-proxy-arg",
        kubeconfig: "proxy",
        flags: proxy_flags,
        arguments: proxy::arguments,
        run: |matches, shared| {
            Box::pin(async move { proxy::start(&matches, shared.in_process.as_ref(), shared.trace).await })
        },
    },
    Row {
        part: "network",
        name: "network",
        role: Placement::Node,
        own_flags: "network-arg",
        kubeconfig: "network",
        flags: network_flags,
        arguments: network::arguments,
        run: |matches, shared| Box::pin(async move { network::start(&matches, &shared).await }),
    },
    Row {
        part: "dns",
        name: "dns",
        role: Placement::Node,
        own_flags: "dns-arg",
        kubeconfig: "dns",
        flags: dns_flags,
        arguments: dns::arguments,
        run: |matches, shared| Box::pin(async move { dns::start(&matches, shared.in_process.as_ref()).await }),
    },
    Row {
        part: "local-path",
        name: "local-path",
        role: Placement::Node,
        own_flags: "local-path-arg",
        kubeconfig: "local-path",
        flags: local_path_flags,
        arguments: local_path::arguments,
        run: |matches, shared| Box::pin(async move { local_path::start(&matches, shared.in_process.as_ref()).await }),
    },
    Row {
        part: METRICS,
        name: "metrics-server",
        role: Placement::Server,
        own_flags: "metrics-server-arg",
        kubeconfig: "metrics",
        flags: metrics_flags,
        arguments: metrics_server::arguments,
        run: |matches, shared| {
            Box::pin(async move { metrics_server::start(&matches, shared.in_process.as_ref()).await })
        },
    },
    Row {
        part: INGRESS,
        name: "ingress",
        role: Placement::Server,
        own_flags: "ingress-arg",
        kubeconfig: "ingress",
        flags: ingress_flags,
        arguments: ingress::arguments,
        run: |matches, shared| Box::pin(async move { ingress::start(&matches, shared.in_process.as_ref()).await }),
    },
    Row {
        part: MANIFESTS,
        name: "manifests",
        role: Placement::Server,
        own_flags: "manifests-arg",
        kubeconfig: "manifests",
        flags: manifests_flags,
        arguments: manifests::arguments,
        run: |matches, shared| Box::pin(async move { manifests::start(&matches, shared.in_process.as_ref()).await }),
    },
    Row {
        part: "dashboard",
        name: "dashboard",
        role: Placement::Server,
        own_flags: "dashboard-arg",
        // Only the address and the CA of the server are used. Requests have the credentials of their users.
        kubeconfig: "admin",
        flags: dashboard_flags,
        arguments: mounted_dashboard::arguments,
        run: |matches, shared| Box::pin(async move { mounted_dashboard::start(&matches, &shared).await }),
    },
];

/// Returns the names that `--disable` accepts.
pub(crate) fn parts() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.part).filter(|part| !part.is_empty())
}

/// Returns the placements of the components that run on a server.
pub(crate) const fn placements(store: &Store) -> &'static [Placement] {
    match store {
        Store::Member { .. } => &[Placement::Store, Placement::Server, Placement::Node],
        Store::Embedded | Store::External(_) => &[Placement::Server, Placement::Node],
    }
}

/// Returns the enabled components with one of these placements, and their flags, in start order.
pub(crate) fn of(
    placements: &[Placement],
    options: &Options,
    layout: &Layout,
    pki: &Pki,
) -> Vec<(&'static Row, Vec<String>)> {
    let is_enabled =
        |row: &&Row| placements.contains(&row.role) && !options.disable.iter().any(|disabled| disabled == row.part);
    let planned = |row: &'static Row| {
        let own = options.own_flags.get(row.name).into_iter().flatten();
        (row, overridden((row.flags)(options, layout, pki), own))
    };
    ROWS.iter().filter(is_enabled).map(planned).collect()
}

/// Paths, names, addresses and ports of a host.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub data_dir: PathBuf,
    pub node_name: String,
    /// Primary address of the host.
    pub address: IpAddr,
    /// All addresses of the host, at most one per IP family.
    pub addresses: Vec<IpAddr>,
    /// Address at which nodes and pods reach the API server of this host.
    pub advertised: IpAddr,
    /// External addresses of the node, at most one per IP family.
    pub external_addresses: Vec<IpAddr>,
    /// Further names and addresses of the API server.
    pub server_names: Vec<String>,
    /// Name of the cluster, and of its context in kubeconfigs.
    pub cluster_name: String,
    /// Address at which this host's components reach its API server.
    pub own_server: IpAddr,
    /// Port of the API server.
    pub port: u16,
    /// First address of each service CIDR: the cluster IPs of the `kubernetes` Service.
    pub first_services: Vec<IpAddr>,
    /// Tenth address of each service CIDR: the cluster IPs of the DNS Service.
    pub dns_services: Vec<IpAddr>,
    /// Port of the DNS server on this host.
    pub dns_port: u16,
    /// Whether the control plane runs in static pods.
    pub static_pods: bool,
    /// Whether this host has a store member.
    pub has_member: bool,
    /// Port of the metrics server on this host.
    pub metrics_port: u16,
}

impl Layout {
    pub(crate) fn of(options: &Options, addresses: Vec<IpAddr>) -> Result<Self> {
        let node_name = options.node_name.clone().unwrap_or_else(preflight::host_name);
        let nth = |number| nth(&options.service_cidr, number);
        let bound = options.bind_address;
        let address = *addresses.first().context("this host has no address")?;
        Ok(Self {
            data_dir: options.data_dir.clone(),
            node_name,
            address,
            advertised: options.server_reach.advertise_address.unwrap_or(address),
            external_addresses: options.node_reach.node_external_ip.clone(),
            server_names: options.server_reach.tls_san.clone(),
            cluster_name: options.cluster_name.clone(),
            addresses,
            own_server: if bound.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { bound },
            port: options.secure_port,
            first_services: nth(1)?,
            dns_services: nth(10)?,
            dns_port: options.dns_port,
            static_pods: options.static_pods,
            has_member: matches!(options.store, Store::Member { .. }),
            metrics_port: options.metrics_port,
        })
    }

    /// Returns the directory of keys and certificates.
    pub(crate) fn pki(&self) -> PathBuf {
        self.data_dir.join("pki")
    }

    /// Returns the path of a component's kubeconfig.
    pub(crate) fn kubeconfig(&self, name: &str) -> PathBuf {
        self.data_dir.join(format!("{name}.kubeconfig"))
    }

    /// Returns the URL of the API server for components on this host.
    pub(crate) fn server(&self) -> String {
        format!("https://{}", SocketAddr::new(self.own_server, self.port))
    }

    /// Returns the addresses of the DNS server on this host.
    pub(crate) fn dns_servers(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().map(|address| SocketAddr::new(*address, self.dns_port))
    }

    fn has_family_of(&self, other: &IpAddr) -> bool {
        self.addresses.iter().any(|address| address.is_ipv4() == other.is_ipv4())
    }

    /// Replaces an unspecified address by `::` if the host has IPv6.
    fn everywhere(&self, bound: IpAddr) -> IpAddr {
        let has_six = self.addresses.iter().any(IpAddr::is_ipv6);
        if bound.is_unspecified() && has_six { Ipv6Addr::UNSPECIFIED.into() } else { bound }
    }

    /// Returns the certificates that do not belong to a kubeconfig.
    pub(crate) fn certificates(&self) -> Vec<Subject> {
        // A role allows this user to call kubelets. The certificate needs no group.
        let kubelet_client = Subject::client("apiserver-kubelet-client", KUBELET_CLIENT_USER, "");
        let front = Subject {
            by: CertificateAuthority::FrontProxy,
            ..Subject::client("front-proxy-client", "front-proxy-client", "")
        };
        let mut names: Vec<String> =
            ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
                .map(str::to_owned)
                .to_vec();
        names.extend(["localhost".to_owned(), self.node_name.clone()]);
        let own = [Ipv4Addr::LOCALHOST.into(), self.own_server, self.advertised];
        let own = own.iter().chain(&self.addresses).chain(&self.external_addresses);
        let addresses: BTreeSet<&IpAddr> = own.chain(&self.first_services).collect();
        names.extend(addresses.into_iter().map(ToString::to_string));
        let further: BTreeSet<&String> = self.server_names.iter().filter(|name| !names.contains(name)).collect();
        names.extend(further.into_iter().cloned());
        let server = Subject {
            name: "apiserver".to_owned(),
            by: CertificateAuthority::Cluster,
            common_name: "kube-apiserver".to_owned(),
            organization: String::new(),
            usage: Usage::Server,
            names,
        };
        let metrics = Subject {
            name: "metrics-server".to_owned(),
            common_name: "metrics-server".to_owned(),
            names: vec!["metrics-server.kube-system.svc".to_owned()],
            ..server.clone()
        };
        let mut subjects = vec![server, kubelet_client, front, metrics];
        if self.has_member || self.static_pods {
            subjects.extend(self.member());
        }
        subjects
    }

    /// Returns the certificates of a store member, and the API server's client certificate for it.
    fn member(&self) -> [Subject; 3] {
        let named = ["localhost".to_owned(), "127.0.0.1".to_owned(), self.node_name.clone()];
        let names: Vec<String> = named.into_iter().chain(self.addresses.iter().map(ToString::to_string)).collect();
        let member = |name: &str, usage| Subject {
            name: name.to_owned(),
            by: CertificateAuthority::Store,
            common_name: self.node_name.clone(),
            organization: String::new(),
            usage,
            names: names.clone(),
        };
        [member("etcd-server", Usage::Server), member("etcd-peer", Usage::Peer), Self::store_client()]
    }

    /// Returns the API server's client certificate for the store.
    pub(crate) fn store_client() -> Subject {
        Subject {
            by: CertificateAuthority::Store,
            ..Subject::client("apiserver-etcd-client", "kube-apiserver-etcd-client", "")
        }
    }

    /// Returns the client connection to the store member on a host.
    pub(crate) fn store_at(&self, host: &str) -> RemoteConfig {
        let file = |name: &str| self.pki().join(name);
        RemoteConfig {
            servers: vec![format!("https://{host}:{STORE_PORT}")],
            ca_file: Some(file("etcd-ca.crt")),
            identity: Some((file("apiserver-etcd-client.crt"), file("apiserver-etcd-client.key"))),
        }
    }

    /// Returns the peer URL of this host's store member.
    pub(crate) fn peer_url(&self) -> String {
        format!("https://{}", SocketAddr::new(self.address, STORE_PEER_PORT))
    }

    /// Returns user and group of a kubeconfig.
    pub(crate) fn subject(&self, kubeconfig: &str) -> Option<(String, String)> {
        let file = self.kubeconfig(kubeconfig);
        let (_, user, group) = self.kubeconfigs().into_iter().find(|(found, _, _)| *found == file)?;
        Some((user, group))
    }

    /// Returns the authenticated user of a kubeconfig.
    pub(crate) fn user(&self, kubeconfig: &str) -> Option<User> {
        let (user, group) = self.subject(kubeconfig)?;
        Some(User::authenticated(user, (!group.is_empty()).then(|| group.into())))
    }

    /// Returns all kubeconfigs: file, user, group.
    pub(crate) fn kubeconfigs(&self) -> Vec<(PathBuf, String, String)> {
        let row = |name: &str, user: &str, group: &str| (self.kubeconfig(name), user.to_owned(), group.to_owned());
        let component = |name: &str, group: &str| row(name, &component::user_name(group, &self.node_name), group);
        vec![
            row("admin", "kubernetes-admin", "system:masters"),
            row("controller-manager", "system:kube-controller-manager", ""),
            row("scheduler", "system:kube-scheduler", ""),
            row("kubelet", &format!("system:node:{}", self.node_name), "system:nodes"),
            row("proxy", "system:kube-proxy", "system:node-proxier"),
            component("network", component::NETWORK),
            component("dns", component::DNS),
            component("local-path", component::LOCAL_PATH),
            row("metrics", "knarr:metrics", ""),
            row("ingress", "knarr:ingress", ""),
            row("manifests", "knarr:manifests", ""),
        ]
    }
}

fn store_flags(options: &Options, layout: &Layout, pki: &Pki) -> Vec<String> {
    let file = |name: &str| path(layout.pki().join(name));
    let ca = path(pki.ca_certificate(CertificateAuthority::Store));
    let client_url = format!("https://{}", SocketAddr::new(layout.address, STORE_PORT));
    let mut flags = flags(&[
        ("name", layout.node_name.clone()),
        ("data-dir", path(layout.data_dir.join("etcd"))),
        ("listen-client-urls", format!("https://127.0.0.1:{STORE_PORT},{client_url}")),
        ("advertise-client-urls", client_url),
        ("listen-peer-urls", layout.peer_url()),
        ("initial-advertise-peer-urls", layout.peer_url()),
        // Shorter than etcd's default of 1000 ms, so that clients can fail over to another server within two seconds.
        ("election-timeout", "800".into()),
        ("cert-file", file("etcd-server.crt")),
        ("key-file", file("etcd-server.key")),
        ("trusted-ca-file", ca.clone()),
        ("client-cert-auth", "true".into()),
        ("peer-cert-file", file("etcd-peer.crt")),
        ("peer-key-file", file("etcd-peer.key")),
        ("peer-trusted-ca-file", ca),
        ("peer-client-cert-auth", "true".into()),
    ]);
    if let Store::Member { initial, via } = &options.store {
        flags.push(format!("--initial-cluster={}", initial.join(",")));
        flags.push(format!("--initial-cluster-state={}", if via.is_some() { "existing" } else { "new" }));
    }
    flags
}

/// Returns the store flags of the API server.
fn store_of_server(options: &Options, layout: &Layout) -> Vec<String> {
    let file = |name: &str| path(layout.pki().join(name));
    match &options.store {
        Store::Embedded => flags(&[("data-dir", path(layout.data_dir.clone()))]),
        Store::Member { .. } => flags(&[
            ("etcd-servers", format!("https://127.0.0.1:{STORE_PORT}")),
            ("etcd-cafile", file("etcd-ca.crt")),
            ("etcd-certfile", file("apiserver-etcd-client.crt")),
            ("etcd-keyfile", file("apiserver-etcd-client.key")),
        ]),
        Store::External(flags) => flags.clone(),
    }
}

/// Value of `--leader-elect`: only clusters with a replicated store have several servers.
fn elects(options: &Options) -> String {
    (options.store != Store::Embedded).to_string()
}

fn server_flags(options: &Options, layout: &Layout, pki: &Pki) -> Vec<String> {
    let file = |name: &str| path(layout.pki().join(name));
    let front = path(pki.ca_certificate(CertificateAuthority::FrontProxy));
    let mut flags = flags(&[
        ("secure-port", options.secure_port.to_string()),
        ("bind-address", layout.everywhere(options.bind_address).to_string()),
        ("advertise-address", layout.advertised.to_string()),
        ("cert-dir", path(layout.pki())),
        ("tls-cert-file", file("apiserver.crt")),
        ("tls-private-key-file", file("apiserver.key")),
        ("client-ca-file", path(pki.ca_certificate(CertificateAuthority::Cluster))),
        ("authorization-mode", "Node,RBAC".into()),
        // Pods for node infrastructure, such as storage and network plugins, need to be privileged.
        ("allow-privileged", "true".into()),
        ("service-account-issuer", "https://kubernetes.default.svc.cluster.local".into()),
        ("service-account-signing-key-file", path(pki.service_account_key())),
        ("service-account-key-file", path(pki.service_account_key())),
        ("service-cluster-ip-range", options.service_cidr.clone()),
        ("enable-bootstrap-token-auth", "true".into()),
        ("enable-admission-plugins", "NodeRestriction".into()),
        ("enable-aggregator-routing", "true".into()),
        // Node names are usually not resolvable by this host.
        ("kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname".into()),
        ("kubelet-certificate-authority", path(pki.ca_certificate(CertificateAuthority::Cluster))),
        ("kubelet-client-certificate", file("apiserver-kubelet-client.crt")),
        ("kubelet-client-key", file("apiserver-kubelet-client.key")),
        ("requestheader-client-ca-file", front),
        ("requestheader-allowed-names", "front-proxy-client".into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
        ("proxy-client-cert-file", file("front-proxy-client.crt")),
        ("proxy-client-key-file", file("front-proxy-client.key")),
    ]);
    flags.extend(store_of_server(options, layout));
    flags
}

fn manager_flags(options: &Options, layout: &Layout, pki: &Pki) -> Vec<String> {
    let ca = pki.ca_pair(CertificateAuthority::Cluster);
    let mut args = flags(&[
        ("kubeconfig", path(layout.kubeconfig("controller-manager"))),
        ("leader-elect", elects(options)),
        ("secure-port", "0".into()),
        // No client-side limit: API Priority and Fairness limits the requests within the process.
        ("kube-api-qps", "-1".into()),
        ("use-service-account-credentials", "true".into()),
        ("service-account-private-key-file", path(pki.service_account_key())),
        ("root-ca-file", path(ca.certificate.clone())),
        ("cluster-signing-cert-file", path(ca.certificate)),
        ("cluster-signing-key-file", path(ca.key)),
        ("allocate-node-cidrs", "true".into()),
        ("cluster-cidr", options.pod_cidr.clone()),
        ("service-cluster-ip-range", options.service_cidr.clone()),
        ("controllers", "*,bootstrap-signer-controller,token-cleaner-controller".into()),
    ]);
    if options.load_balancer != "none" {
        args.push(format!("--load-balancer-addresses={}", options.load_balancer));
        let ports = [options.secure_port, options.kubelet_port, options.metrics_port, options.dns_port];
        let ports = [SSH_PORT, STORE_PORT, STORE_PEER_PORT].into_iter().chain(ports);
        let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
        args.push(format!("--load-balancer-reserved-ports={}", ports.join(",")));
    }
    args
}

fn scheduler_flags(options: &Options, layout: &Layout, _: &Pki) -> Vec<String> {
    flags(&[
        ("kubeconfig", path(layout.kubeconfig("scheduler"))),
        ("leader-elect", elects(options)),
        ("secure-port", "0".into()),
        ("kube-api-qps", "-1".into()),
    ])
}

fn proxy_flags(options: &Options, layout: &Layout, _: &Pki) -> Vec<String> {
    flags(&[
        ("kubeconfig", path(layout.kubeconfig("proxy"))),
        ("hostname-override", layout.node_name.clone()),
        ("cluster-cidr", options.pod_cidr.clone()),
        ("healthz-bind-address", "127.0.0.1:0".into()),
        ("metrics-bind-address", "127.0.0.1:0".into()),
    ])
}

fn network_flags(options: &Options, layout: &Layout, _: &Pki) -> Vec<String> {
    let mut args =
        flags(&[("kubeconfig", path(layout.kubeconfig("network"))), ("hostname-override", layout.node_name.clone())]);
    // Nodes need no announcement for their own addresses.
    if !["", "none", "nodes"].contains(&options.load_balancer.as_str()) {
        args.push(format!("--load-balancer-pool={}", options.load_balancer));
    }
    if !options.disable.iter().any(|part| part == "dns") {
        args.push(format!("--dns-service={}", list(&layout.dns_services)));
    }
    args
}

fn local_path_flags(_: &Options, layout: &Layout, _: &Pki) -> Vec<String> {
    flags(&[
        ("kubeconfig", path(layout.kubeconfig("local-path"))),
        ("hostname-override", layout.node_name.clone()),
        ("root", path(layout.data_dir.join("storage"))),
    ])
}

fn metrics_flags(_: &Options, layout: &Layout, pki: &Pki) -> Vec<String> {
    let file = |name: &str| path(layout.pki().join(name));
    flags(&[
        ("kubeconfig", path(layout.kubeconfig("metrics"))),
        ("bind-address", layout.address.to_string()),
        ("secure-port", layout.metrics_port.to_string()),
        ("tls-cert-file", file("metrics-server.crt")),
        ("tls-private-key-file", file("metrics-server.key")),
        ("kubelet-certificate-authority", path(pki.ca_certificate(CertificateAuthority::Cluster))),
        ("kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname".into()),
        ("kubelet-use-node-status-port", "true".into()),
        ("metric-resolution", "15s".into()),
    ])
}

fn ingress_flags(options: &Options, layout: &Layout, _: &Pki) -> Vec<String> {
    flags(&[
        ("kubeconfig", path(layout.kubeconfig("ingress"))),
        ("bind-address", list(&layout.addresses)),
        ("http-port", options.ingress_http_port.to_string()),
        ("https-port", options.ingress_https_port.to_string()),
        ("leader-elect", elects(options)),
    ])
}

fn manifests_flags(options: &Options, layout: &Layout, _: &Pki) -> Vec<String> {
    flags(&[
        ("kubeconfig", path(layout.kubeconfig("manifests"))),
        ("dir", path(layout.data_dir.join("manifests"))),
        // Each server has its own directory, and thus its own set.
        ("name", format!("{MANIFESTS_OF}{}", layout.node_name)),
        ("leader-elect", elects(options)),
    ])
}

fn dashboard_flags(_: &Options, layout: &Layout, _: &Pki) -> Vec<String> {
    flags(&[("kubeconfig", path(layout.kubeconfig("admin")))])
}

fn dns_flags(options: &Options, layout: &Layout, _: &Pki) -> Vec<String> {
    let mut args = flags(&[("kubeconfig", path(layout.kubeconfig("dns"))), ("cluster-cidr", options.pod_cidr.clone())]);
    args.extend(layout.dns_servers().map(|address| format!("--listen={address}")));
    args.extend(layout.dns_services.iter().map(|address| format!("--service-ip={address}")));
    args
}

fn list<'a>(addresses: impl IntoIterator<Item = &'a IpAddr>) -> String {
    addresses.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Formats flags from names and values.
pub(crate) fn flags(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

/// Replaces flags by those of `own` with the same name. A name that `own` has several times is kept several times.
pub(crate) fn overridden<'a>(mut flags: Vec<String>, own: impl Iterator<Item = &'a String>) -> Vec<String> {
    let own: Vec<String> = own.map(|flag| format!("--{}", flag.trim_start_matches('-'))).collect();
    let name = |flag: &str| flag.split('=').next().map(str::to_owned);
    flags.retain(|flag| !own.iter().any(|own| name(own) == name(flag)));
    flags.extend(own);
    flags
}

/// Formats a path as a flag's value.
pub(crate) fn path(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap_or_else(|path| path.to_string_lossy().into_owned())
}

/// Returns the address at index `number` of each CIDR.
fn nth(cidrs: &str, number: u32) -> Result<Vec<IpAddr>> {
    let nth = |cidr: &str| {
        let (first, _) = cidr.split_once('/')?;
        Some(match first.parse().ok()? {
            IpAddr::V4(first) => IpAddr::V4((u32::from(first) + number).into()),
            IpAddr::V6(first) => IpAddr::V6((u128::from(first) + u128::from(number)).into()),
        })
    };
    let all: Option<Vec<IpAddr>> = cidrs.split(',').map(nth).collect();
    all.with_context(|| format!("--service-cidr {cidrs:?} must be one CIDR, or one per IP family"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_flags_override_computed_flags() {
        let decided = flags(&[("port", "1".into()), ("portal", "2".into())]);
        let own = ["port=3".to_owned(), "--v=4".to_owned()];
        assert_eq!(overridden(decided, own.iter()), ["--portal=2", "--port=3", "--v=4"]);
    }

    #[test]
    fn node_components_have_a_per_node_identity() {
        let options = Options { node_name: Some("n1".to_owned()), ..Options::default() };
        let layout = Layout::of(&options, vec![IpAddr::from([192, 0, 2, 1])]).unwrap();
        for row in ROWS.iter().filter(|row| row.role == Placement::Node) {
            let user = layout.user(row.kubeconfig).unwrap();
            let is_component = component::of(&user).any(|found| found.node == "n1");
            // The role of kube-proxy is read-only upstream.
            assert!(is_component || user.node() == Some("n1") || user.name == "system:kube-proxy", "{user:?}");
        }
    }

    #[test]
    fn certificate_of_the_api_server_has_all_addresses_and_names_at_which_it_is_reached() {
        let mut options = Options::default();
        options.server_reach.tls_san = ["api.example.com", "192.0.2.1", "api.example.com"].map(str::to_owned).into();
        options.server_reach.advertise_address = Some([198, 51, 100, 7].into());
        options.node_reach.node_external_ip = vec![[203, 0, 113, 5].into()];
        let layout = Layout::of(&options, vec![IpAddr::from([192, 0, 2, 1])]).unwrap();
        let certificates = layout.certificates();
        let names = &certificates.iter().find(|subject| subject.name == "apiserver").unwrap().names;
        for name in ["api.example.com", "192.0.2.1", "198.51.100.7", "203.0.113.5", "127.0.0.1", "10.96.0.1"] {
            assert_eq!(names.iter().filter(|one| *one == name).count(), 1, "{name} in {names:?}");
        }
        let planned = of(&[Placement::Server, Placement::Node], &options, &layout, &Pki::at(&layout.pki()));
        let flags: Vec<String> = planned.into_iter().flat_map(|(_, flags)| flags).collect();
        for flag in ["--advertise-address=198.51.100.7", "--node-external-ip=203.0.113.5"] {
            assert!(flags.contains(&flag.to_owned()), "{flag} in {flags:?}");
        }
    }

    #[test]
    fn only_the_administrator_is_in_system_masters() {
        let layout = Layout::of(&Options::default(), vec![IpAddr::from([192, 0, 2, 1])]).unwrap();
        let kubeconfigs = layout.kubeconfigs().into_iter().map(|(_, user, group)| (user, group));
        let others = layout.certificates().into_iter().map(|subject| (subject.common_name, subject.organization));
        let masters: Vec<_> = kubeconfigs.chain(others).filter(|(_, group)| group == "system:masters").collect();
        assert_eq!(masters, [("kubernetes-admin".to_owned(), "system:masters".to_owned())]);
    }

    #[test]
    fn kubelets_serving_certificates_are_signed_by_the_cluster_and_verified() {
        let layout = Layout::of(&Options::default(), vec![IpAddr::from([192, 0, 2, 1])]).unwrap();
        let planned = of(&[Placement::Server, Placement::Node], &Options::default(), &layout, &Pki::at(&layout.pki()));
        let flags = |name: &str| planned.iter().find(|(row, _)| row.name == name).unwrap().1.clone();
        let verified = "--kubelet-certificate-authority=/var/lib/knarr/pki/ca.crt".to_owned();
        assert!(flags("kube-apiserver").contains(&verified));
        assert!(flags("metrics-server").contains(&verified));
        assert!(!flags("metrics-server").iter().any(|flag| flag.contains("insecure")));
        assert!(flags("kubelet").contains(&"--rotate-server-certificates=true".to_owned()));
    }

    #[test]
    fn kubelet_flags_set_eviction_thresholds_and_reservations() {
        let mut options = Options::default();
        options.offer.node_cpu = Some("500m".parse().unwrap());
        let layout = Layout::of(&options, vec![IpAddr::from([192, 0, 2, 1])]).unwrap();
        let kubelet = |options: &Options| kubelet_flags::of(options, &layout, &Pki::at(&layout.pki())).join(" ");
        let args = kubelet(&options);
        assert!(args.contains("nodefs.available<5%") && args.contains("imagefs.available<5%"), "{args}");
        assert!(args.contains("memory.available<100Mi"), "{args}");
        assert!(args.contains("--system-reserved=cpu="), "{args}");
        assert!(!kubelet(&Options::default()).contains("system-reserved"));
    }

    #[test]
    fn service_addresses_are_computed_by_index() {
        assert_eq!(list(&nth("10.96.0.0/16", 10).unwrap()), "10.96.0.10");
        assert_eq!(list(&nth("fd00::/108,10.96.0.0/16", 1).unwrap()), "fd00::1,10.96.0.1");
        assert!(nth("nonsense", 1).is_err());
    }

    #[test]
    fn flags_contain_the_ip_families_of_the_host() {
        let check = |services: &str, addresses: &[&str], expect: &[&str]| {
            let options = Options { service_cidr: services.to_owned(), ..Options::default() };
            let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
            let layout = Layout::of(&options, addresses).unwrap();
            let args = of(&[Placement::Server, Placement::Node], &options, &layout, &Pki::at(&layout.pki()));
            let args: Vec<String> = args.into_iter().flat_map(|(_, flags)| flags).collect();
            for flag in expect {
                assert!(args.iter().any(|one| one == flag), "{flag} is not in {args:#?}");
            }
        };
        let four = ["--listen=192.0.2.1:10053", "--cluster-dns=10.96.0.10", "--bind-address=0.0.0.0"];
        check("10.96.0.0/16", &["192.0.2.1"], &four);
        check("10.96.0.0/16,fd00:96::/108", &["192.0.2.1"], &four);
        let six = ["--listen=[2001:db8::1]:10053", "--cluster-dns=fd00:96::a", "--bind-address=::", "--address=::"];
        check("fd00:96::/108", &["2001:db8::1"], &six);
        let both = ["--listen=192.0.2.1:10053", six[0], "--cluster-dns=10.96.0.10,fd00:96::a", six[2], six[3]];
        check("10.96.0.0/16,fd00:96::/108", &["192.0.2.1", "2001:db8::1"], &both);
        check("10.96.0.0/16,fd00:96::/108", &["192.0.2.1", "2001:db8::1"], &["--node-ip=192.0.2.1,2001:db8::1"]);
    }
}
