//! OCI runtime specification of a container, from the CRI configuration and the image.

mod devices;
mod mounts;
mod resources;
mod security;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use node_api::cri::v1;
use serde_json::{Value, json};

use crate::ulimit::Ulimit;
use crate::user::User;

pub(crate) use devices::{DeviceError, take_outside};
pub(crate) use mounts::{MountError, bind, check_propagation, host_source, weaker};
pub(crate) use resources::resources;
pub(crate) use security::{SecurityError, capabilities};

/// The OCI specification could not be built.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Neither CRI nor the image specifies a command.
    #[error("no command specified")]
    NoCommand,
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Security(#[from] SecurityError),
}

/// The inputs of an OCI specification.
pub(crate) struct Inputs<'a> {
    pub config: &'a v1::ContainerConfig,
    pub sandbox: &'a v1::PodSandboxConfig,
    /// The image's configuration.
    pub image: &'a image_store::Config,
    pub user: &'a User,
    pub rootfs: &'a Path,
    pub cgroup: &'a str,
    /// cgroup v1: the directory of the cgroup in each hierarchy, by name. Empty for cgroup v2 and for other OCI
    /// runtimes.
    pub groups: &'a BTreeMap<String, PathBuf>,
    /// PID of the sandbox's process, whose namespaces the container joins.
    pub pause: i32,
    /// PID of the process whose PID namespace the container joins, for debugging.
    pub target: Option<i32>,
    /// Files that the sandbox provides: hosts, resolv.conf, hostname, shm.
    pub provided: &'a BTreeMap<&'static str, PathBuf>,
    /// Sources of mounts that were prepared, by index among the container's mounts.
    pub prepared: &'a BTreeMap<usize, PathBuf>,
    /// Whether the sandbox has a user namespace.
    pub users: bool,
    /// Whether another OCI runtime than the built-in one runs the container.
    pub foreign: bool,
    /// Resource limits of the processes; if empty, they inherit those of the runtime.
    pub ulimits: &'a [Ulimit],
}

/// Builds the OCI specification of a container.
pub(crate) fn build(inputs: &Inputs<'_>) -> Result<Value, SpecError> {
    let security = inputs.security();
    let privileged = security.privileged;
    let mounts = mounts::all(inputs)?;
    let linux_config = inputs.config.linux.clone().unwrap_or_default();
    let (devices, mut rules) = devices::all(&inputs.config.devices, privileged)?;
    let mut resources = resources(linux_config.resources.as_ref().unwrap_or(&Default::default()));
    rules.splice(0..0, [json!({"allow": privileged, "access": "rwm"})]);
    resources["devices"] = Value::Array(rules);
    let mut linux = json!({
        "cgroupsPath": inputs.cgroup,
        "namespaces": namespaces(inputs),
        "devices": devices,
        "resources": resources,
        "maskedPaths": if privileged { &[][..] } else { &security.masked_paths },
        "readonlyPaths": if privileged { &[][..] } else { &security.readonly_paths },
    });
    if let Some(propagation) = mounts.root_propagation {
        linux["rootfsPropagation"] = json!(propagation);
    }
    let process = process(inputs, &security)?;
    if let Some(profile) = security::seccomp(&security)? {
        linux["seccomp"] = profile;
    }
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": process,
        "root": {"path": inputs.rootfs, "readonly": security.readonly_rootfs},
        "mounts": mounts.list,
        "linux": linux,
        "annotations": inputs.config.annotations,
    }))
}

/// Returns the OCI process of an exec: the container's process with another command and optionally a terminal.
pub(crate) fn exec(spec: &Value, command: &[String], terminal: bool) -> Value {
    let mut process = spec["process"].clone();
    process["args"] = json!(command);
    process["terminal"] = json!(terminal);
    if terminal && let Some(env) = process["env"].as_array_mut() {
        let has_term = env.iter().any(|pair| pair.as_str().is_some_and(|pair| pair.starts_with("TERM=")));
        if !has_term {
            env.push(json!("TERM=xterm"));
        }
    }
    process
}

impl Inputs<'_> {
    fn security(&self) -> v1::LinuxContainerSecurityContext {
        let linux = self.config.linux.as_ref();
        linux.and_then(|linux| linux.security_context.clone()).unwrap_or_default()
    }

    /// Whether the sandbox uses the host network; containers cannot choose otherwise.
    fn host_network(&self) -> bool {
        let linux = self.sandbox.linux.as_ref();
        let security = linux.and_then(|linux| linux.security_context.as_ref());
        let options = security.and_then(|security| security.namespace_options.as_ref());
        options.is_some_and(|options| options.network() == v1::NamespaceMode::Node)
    }
}

fn process(inputs: &Inputs<'_>, security: &v1::LinuxContainerSecurityContext) -> Result<Value, SpecError> {
    let (config, image) = (inputs.config, inputs.image);
    let working_dir = [&config.working_dir, &image.working_dir].into_iter().find(|dir| !dir.is_empty());
    let capabilities = capabilities(security);
    let mut process = json!({
        "terminal": config.tty,
        "user": {"uid": inputs.user.uid, "gid": inputs.user.gid, "additionalGids": inputs.user.groups, "umask": 0o22},
        "args": command(config, image)?,
        "env": environment(inputs),
        "cwd": working_dir.map_or("/", String::as_str),
        "capabilities": capabilities,
        "noNewPrivileges": security.no_new_privs,
    });
    // Otherwise the container would inherit the low score of the runtime.
    let resources = config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    process["oomScoreAdj"] = json!(resources.map_or(0, |resources| resources.oom_score_adj));
    if !inputs.ulimits.is_empty() {
        process["rlimits"] = inputs.ulimits.iter().map(Ulimit::to_oci).collect();
    }
    if let Some(profile) = security::apparmor(security)? {
        process["apparmorProfile"] = json!(profile);
    }
    Ok(process)
}

fn command(config: &v1::ContainerConfig, image: &image_store::Config) -> Result<Vec<String>, SpecError> {
    let (mut argv, mut rest) = (config.command.clone(), config.args.clone());
    if argv.is_empty() {
        if rest.is_empty() {
            rest.clone_from(&image.cmd);
        }
        argv.clone_from(&image.entrypoint);
    }
    argv.append(&mut rest);
    if argv.is_empty() { Err(SpecError::NoCommand) } else { Ok(argv) }
}

/// Returns the runtime's default environment variables, then the image's, then CRI's. A later value replaces an earlier
/// one at its position.
fn environment(inputs: &Inputs<'_>) -> Vec<String> {
    let mut pairs: Vec<(String, String)> =
        vec![("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned())];
    let mut set = |name: &str, value: &str| match pairs.iter_mut().find(|(known, _)| known == name) {
        Some(pair) => pair.1 = value.to_owned(),
        None => pairs.push((name.to_owned(), value.to_owned())),
    };
    set("HOSTNAME", &inputs.sandbox.hostname);
    if inputs.config.tty {
        set("TERM", "xterm");
    }
    for pair in &inputs.image.env {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        set(name, value);
    }
    for pair in &inputs.config.envs {
        set(&pair.key, &String::from_utf8_lossy(&pair.value));
    }
    pairs.retain(|(name, value)| name != "HOSTNAME" || !value.is_empty());
    pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn namespaces(inputs: &Inputs<'_>) -> Vec<Value> {
    let options = inputs.security().namespace_options.unwrap_or_default();
    let of = |pid: i32, name: &str| format!("/proc/{pid}/ns/{name}");
    let mut list = vec![json!({"type": "mount"})];
    if !inputs.host_network() {
        list.push(json!({"type": "network", "path": of(inputs.pause, "net")}));
        list.push(json!({"type": "uts", "path": of(inputs.pause, "uts")}));
    }
    if options.ipc() != v1::NamespaceMode::Node {
        list.push(json!({"type": "ipc", "path": of(inputs.pause, "ipc")}));
    }
    match options.pid() {
        v1::NamespaceMode::Node => {}
        v1::NamespaceMode::Container => list.push(json!({"type": "pid"})),
        v1::NamespaceMode::Pod => list.push(json!({"type": "pid", "path": of(inputs.pause, "pid")})),
        v1::NamespaceMode::Target => {
            list.push(json!({"type": "pid", "path": of(inputs.target.unwrap_or(inputs.pause), "pid")}));
        }
    }
    if inputs.users {
        list.push(json!({"type": "user", "path": of(inputs.pause, "user")}));
    }
    if cgroups::Cgroup::is_unified() && !inputs.security().privileged {
        list.push(json!({"type": "cgroup"}));
    }
    list
}

#[cfg(test)]
mod tests;
