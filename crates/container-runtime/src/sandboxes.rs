//! Sandbox operations: run, inspect, stop, remove.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cgroups::Cgroup;
use cgroups::systemd::{self, Systemd};
use container_shim::protocol::{self, NETNS};
use netlink::Protocol;
use node_api::cri::v1;
use pod_network::{Attachment, PortMapping};
use rustix::mount::MountFlags;

use crate::blocking;
use crate::cleanup::{remove_cgroup, remove_sandbox_dir};
use crate::error::Error;
use crate::ids::{new_id, now};
use crate::persisted::{self, Syncing};
use crate::rootfs;
use crate::state::{Runtime, Sandbox};
use crate::user_namespace;

/// Timeout of a shim's shutdown; killed processes exit sooner unless they are blocked in disk I/O.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Mount options of `/dev/shm`, with the size of other runtimes.
const SHM_OPTIONS: &std::ffi::CStr = c"mode=1777,size=65536k";

impl Runtime {
    /// Creates a sandbox: shim, process that holds the namespaces, files and network.
    pub(crate) async fn run_sandbox(
        self: &Arc<Runtime>,
        config: v1::PodSandboxConfig,
        handler: String,
    ) -> Result<String, Error> {
        if config.metadata.is_none() {
            return Err(Error::Invalid("metadata: required".to_owned()));
        }
        if !handler.is_empty() && !self.config.handlers.contains_key(&handler) {
            return Err(Error::Invalid(format!("runtime_handler: no runtime for {handler:?} is configured")));
        }
        user_namespace::mappings(&options(&config))?;
        let id = new_id();
        let dir = self.config.root.join("sandboxes").join(&id);
        let linux = config.linux.clone().unwrap_or_default();
        let parent = match linux.cgroup_parent.as_str() {
            "" => self.config.cgroup_parent.clone(),
            given if given.ends_with(".slice") => scope_in(given, &id)?,
            given => given.to_owned(),
        };
        let record = persisted::Sandbox {
            cgroup: format!("{}/{id}", parent.trim_end_matches('/')),
            id: id.clone(),
            config,
            handler,
            created_at: now(),
            ready: false,
            pause: 0,
            ips: Vec::new(),
            detached: false,
        };
        let syncing = blocking::in_place(|| {
            create_private(&dir, id_maps(&record.config).as_ref())?;
            persisted::create(&dir, &record)
        })
        .map_err(Error::io("write the sandbox's record"))?;
        let sandbox = Arc::new(Sandbox::new(&dir, record));
        let _changing = sandbox.changing.lock().await;
        match self.start_sandbox(&sandbox, syncing).await {
            Ok(()) => {
                self.emit(&id, &sandbox, v1::ContainerEventType::ContainerCreatedEvent);
                self.emit(&id, &sandbox, v1::ContainerEventType::ContainerStartedEvent);
                Ok(id)
            }
            Err(error) => {
                // Removes the partly created sandbox; the first error is returned.
                if let Err(error) = self.take_down(&sandbox).await {
                    tracing::warn!(id, error = error.describe(), "failed to stop a partly created sandbox");
                }
                if let Err(error) = blocking::in_place(|| clean_up(&sandbox)) {
                    tracing::warn!(id, error = error.describe(), "failed to remove a partly created sandbox");
                }
                self.drop_sandbox_record(&id);
                Err(error)
            }
        }
    }

    async fn start_sandbox(self: &Arc<Runtime>, sandbox: &Arc<Sandbox>, syncing: Syncing) -> Result<(), Error> {
        let record = sandbox.record();
        blocking::in_place(|| write_files(&sandbox.dir, &record.config))
            .map_err(Error::io("write the sandbox's files"))?;
        let args: Vec<&str> = self.config.shim.1.iter().map(String::as_str).collect();
        let shim = container_shim::spawn(&self.shim, &args, &sandbox.dir).await?;
        let setup = setup(&record);
        let own_network = setup.network;
        let running = shim.sandbox(setup).await?;
        let (_, events) = shim.follow().await?;
        sandbox.change(|record| record.pause = running.pid);
        self.add_sandbox(Arc::clone(sandbox), Some(events));
        syncing.finish().await.map_err(Error::io("sync the sandbox's record"))?;
        if own_network {
            let netns = sandbox.dir.join(NETNS);
            let ips = self.config.network.attach(&netns, &attachment(&record)).await?;
            sandbox.change(|record| record.ips = ips.iter().map(ToString::to_string).collect());
        }
        sandbox.change(|record| record.ready = true);
        Ok(())
    }

    /// Stops a sandbox and its containers. Idempotent.
    pub(crate) async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let _changing = sandbox.changing.lock().await;
        let was_ready = sandbox.record().ready;
        self.take_down(&sandbox).await?;
        if was_ready {
            let id = sandbox.record().id;
            self.emit(&id, &sandbox, v1::ContainerEventType::ContainerStoppedEvent);
        }
        Ok(())
    }

    /// Removes a sandbox and its containers. Idempotent.
    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let _changing = sandbox.changing.lock().await;
        let id = sandbox.record().id;
        self.take_down(&sandbox).await?;
        for container in self.containers_of(&id) {
            let container_id = container.record().id;
            self.remove_container(&container_id).await?;
        }
        blocking::in_place(|| clean_up(&sandbox))?;
        self.drop_sandbox_record(&id);
        self.emit(&id, &sandbox, v1::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    /// Terminates the processes and releases the network; files and records stay.
    async fn take_down(&self, sandbox: &Sandbox) -> Result<(), Error> {
        let record = sandbox.record();
        for container in self.containers_of(&record.id) {
            let container_id = container.record().id;
            self.stop_container(&container_id, Duration::ZERO).await?;
        }
        if !record.detached && has_network(&record.config) {
            let netns = sandbox.dir.join(NETNS);
            let netns = netns.exists().then_some(netns.as_path());
            self.config.network.detach(netns, &attachment(&record)).await?;
            sandbox.change(|record| record.detached = true);
        }
        sandbox.change(|record| record.ready = false);
        // Errors are ignored: an unreachable shim has exited, and a shim with blocked processes times out.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, sandbox.shim.shutdown()).await;
        Cgroup::at(&record.cgroup).kill();
        for name in [NETNS, "shm"] {
            rootfs::unmount_all(&sandbox.dir.join(name)).map_err(Error::io("unmount a sandbox's file"))?;
        }
        Ok(())
    }
}

impl Sandbox {
    /// Returns the sandbox's files by their path in containers.
    pub(crate) fn provided(&self) -> std::collections::BTreeMap<&'static str, std::path::PathBuf> {
        let host_ipc = options(&self.record().config).ipc() == v1::NamespaceMode::Node;
        let shm = if host_ipc { "/dev/shm".into() } else { self.dir.join("shm") };
        [
            ("/dev/shm", shm),
            ("/etc/hostname", self.dir.join("hostname")),
            ("/etc/hosts", self.dir.join("hosts")),
            ("/etc/resolv.conf", self.dir.join("resolv.conf")),
        ]
        .into()
    }

    pub(crate) fn status(&self) -> v1::PodSandboxStatus {
        let record = self.record();
        let mut ips = record.ips.iter();
        let network = v1::PodSandboxNetworkStatus {
            ip: ips.next().cloned().unwrap_or_default(),
            additional_ips: ips.map(|ip| v1::PodIp { ip: ip.clone() }).collect(),
        };
        let namespaces = v1::Namespace { options: Some(options(&record.config)) };
        v1::PodSandboxStatus {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            state: state(&record).into(),
            created_at: record.created_at,
            network: Some(network),
            linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(namespaces) }),
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
            runtime_handler: record.handler,
        }
    }

    pub(crate) fn summary(&self) -> v1::PodSandbox {
        let record = self.record();
        v1::PodSandbox {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            state: state(&record).into(),
            created_at: record.created_at,
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
            runtime_handler: record.handler,
        }
    }
}

pub(crate) fn state(record: &persisted::Sandbox) -> v1::PodSandboxState {
    if record.ready { v1::PodSandboxState::SandboxReady } else { v1::PodSandboxState::SandboxNotready }
}

/// Returns the requested namespaces of a sandbox.
pub(crate) fn options(config: &v1::PodSandboxConfig) -> v1::NamespaceOption {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    security.and_then(|security| security.namespace_options.clone()).unwrap_or_default()
}

pub(crate) fn has_network(config: &v1::PodSandboxConfig) -> bool {
    options(config).network() != v1::NamespaceMode::Node
}

/// Returns the ID mappings of an existing sandbox, whose request was validated at creation.
pub(crate) fn id_maps(config: &v1::PodSandboxConfig) -> Option<protocol::IdMaps> {
    user_namespace::mappings(&options(config)).ok().flatten()
}

/// Creates a directory that only root can enter. With a user namespace, the container's mounts are set up by the
/// namespace's root, an unprivileged user of the host. Its group may then traverse the directory but not list it.
pub(crate) fn create_private(dir: &Path, maps: Option<&protocol::IdMaps>) -> std::io::Result<()> {
    container_shim::private::create_dir(dir)?;
    let Some(maps) = maps else { return Ok(()) };
    let group = maps.gids.iter().find(|map| map.inside == 0).map(|map| map.outside);
    std::os::unix::fs::chown(dir, None, group)?;
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o710))
}

fn setup(record: &persisted::Sandbox) -> protocol::Sandbox {
    let options = options(&record.config);
    let own_network = has_network(&record.config);
    protocol::Sandbox {
        cgroup: record.cgroup.clone(),
        hostname: record.config.hostname.clone(),
        network: own_network,
        ipc: options.ipc() != v1::NamespaceMode::Node,
        uts: own_network,
        pid: options.pid() != v1::NamespaceMode::Node,
        users: id_maps(&record.config),
        sysctls: record.config.linux.clone().unwrap_or_default().sysctls.into_iter().collect(),
    }
}

fn attachment(record: &persisted::Sandbox) -> Attachment {
    let metadata = record.config.metadata.clone().unwrap_or_default();
    Attachment {
        id: record.id.clone(),
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        ports: record.config.port_mappings.iter().filter_map(port).collect(),
        annotations: record.config.annotations.clone().into_iter().collect(),
    }
}

/// Converts a host port mapping; `None` if it has no host port or is invalid.
fn port(port: &v1::PortMapping) -> Option<PortMapping> {
    let protocol = match port.protocol() {
        v1::Protocol::Tcp => Protocol::Tcp,
        v1::Protocol::Udp => Protocol::Udp,
        v1::Protocol::Sctp => Protocol::Sctp,
    };
    Some(PortMapping {
        protocol,
        host_port: u16::try_from(port.host_port).ok().filter(|port| *port > 0)?,
        container_port: u16::try_from(port.container_port).ok()?,
        host_ip: port.host_ip.parse().ok(),
    })
}

fn write_files(dir: &Path, config: &v1::PodSandboxConfig) -> std::io::Result<()> {
    let hostname = if config.hostname.is_empty() {
        fs::read_to_string("/proc/sys/kernel/hostname")?
    } else {
        format!("{}\n", config.hostname)
    };
    fs::write(dir.join("hostname"), hostname)?;
    fs::write(dir.join("hosts"), fs::read("/etc/hosts").unwrap_or_else(|_| b"127.0.0.1\tlocalhost\n".to_vec()))?;
    fs::write(dir.join("resolv.conf"), resolv_conf(config))?;
    fs::create_dir_all(dir.join("shm"))?;
    if options(config).ipc() != v1::NamespaceMode::Node {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("shm", dir.join("shm"), "tmpfs", flags, Some(SHM_OPTIONS))?;
    }
    if !config.log_directory.is_empty() {
        fs::create_dir_all(&config.log_directory)?;
    }
    Ok(())
}

fn resolv_conf(config: &v1::PodSandboxConfig) -> Vec<u8> {
    let Some(dns) = &config.dns_config else { return fs::read("/etc/resolv.conf").unwrap_or_default() };
    let mut lines = Vec::new();
    if !dns.searches.is_empty() {
        lines.push(format!("search {}", dns.searches.join(" ")));
    }
    lines.extend(dns.servers.iter().map(|server| format!("nameserver {server}")));
    if !dns.options.is_empty() {
        lines.push(format!("options {}", dns.options.join(" ")));
    }
    lines.push(String::new());
    lines.join("\n").into_bytes()
}

/// Returns the cgroup of a sandbox's scope in a slice that the kubelet has started. The containers are in the same
/// scope.
fn scope_in(slice: &str, sandbox: &str) -> Result<String, Error> {
    Systemd::of_machine().map_err(|error| Error::Invalid(format!("cgroup_parent: {slice:?} is a slice: {error}")))?;
    let path = systemd::path_of(slice)
        .ok_or_else(|| Error::Invalid(format!("cgroup_parent: {slice:?} is not a valid name of a slice")))?;
    Ok(format!("{path}/{}", systemd::scope_of(sandbox)))
}

fn clean_up(sandbox: &Sandbox) -> Result<(), Error> {
    let cgroup = Cgroup::at(&sandbox.record().cgroup);
    remove_cgroup(&cgroup)?;
    if let Some(scope) = cgroup.scope() {
        remove_cgroup(&scope)?;
    }
    remove_sandbox_dir(&sandbox.dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_has_searches_servers_and_options() {
        let dns = v1::DnsConfig {
            servers: vec!["10.96.0.10".into()],
            searches: vec!["a.local".into(), "b.local".into()],
            options: vec!["ndots:5".into()],
        };
        let config = v1::PodSandboxConfig { dns_config: Some(dns), ..Default::default() };
        let expect = "search a.local b.local\nnameserver 10.96.0.10\noptions ndots:5\n";
        assert_eq!(String::from_utf8(resolv_conf(&config)).unwrap(), expect);
    }
}
