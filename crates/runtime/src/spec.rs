//! A container's description for the OCI runtime, from what CRI says and what the image says.

mod devices;
mod mounts;
mod resources;
mod security;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cri::v1;
use serde_json::{Value, json};

use crate::ulimit::Ulimit;
use crate::user::User;

pub use devices::{DeviceError, take_outside};
pub use mounts::{MountError, bind, check_propagation, host_source, weaker};
pub use resources::resources;
pub use security::{SecurityError, capabilities};

/// Why a container cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Neither CRI nor the image says what to run.
    #[error("no command specified")]
    NoCommand,
    /// A mount is bad.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A device is bad.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A profile is bad.
    #[error(transparent)]
    Security(#[from] SecurityError),
}

/// Everything that a description depends on.
pub struct Inputs<'a> {
    /// The container as CRI has it.
    pub config: &'a v1::ContainerConfig,
    /// Its sandbox as CRI has it.
    pub sandbox: &'a v1::PodSandboxConfig,
    /// The image's own wishes.
    pub image: &'a image::Config,
    /// Who it runs as.
    pub user: &'a User,
    /// Its root directory.
    pub rootfs: &'a Path,
    /// Its cgroup.
    pub cgroup: &'a str,
    /// Where that is in each hierarchy, by name; nothing where there is one hierarchy, or where another runtime finds out itself.
    pub groups: &'a BTreeMap<String, PathBuf>,
    /// The sandbox's process, whose namespaces it joins.
    pub pause: i32,
    /// The process whose PID namespace it joins, for debugging.
    pub target: Option<i32>,
    /// Files that the sandbox provides: hosts, resolv.conf, hostname, shm.
    pub provided: &'a BTreeMap<&'static str, PathBuf>,
    /// Sources that were mounted for it beforehand, by their index among the container's mounts.
    pub prepared: &'a BTreeMap<usize, PathBuf>,
    /// The sandbox has a user namespace.
    pub users: bool,
    /// It is run by another runtime than the one inside.
    pub foreign: bool,
    /// Limits of its processes; without any they are the runtime's own.
    pub ulimits: &'a [Ulimit],
}

/// Describes a container.
pub fn build(inputs: &Inputs<'_>) -> Result<Value, SpecError> {
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

/// A process to run later in a container: the first one with another command and perhaps a terminal.
pub fn exec(spec: &Value, command: &[String], terminal: bool) -> Value {
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

    /// How the sandbox shares the network; a container cannot choose otherwise.
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
    // Without one, the container would inherit that of the runtime, which is killed last.
    let resources = config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    process["oomScoreAdj"] = json!(resources.map_or(0, |resources| resources.oom_score_adj));
    if !inputs.ulimits.is_empty() {
        process["rlimits"] = inputs.ulimits.iter().map(Ulimit::shown).collect();
    }
    if let Some(profile) = security::apparmor(security)? {
        process["apparmorProfile"] = json!(profile);
    }
    Ok(process)
}

fn command(config: &v1::ContainerConfig, image: &image::Config) -> Result<Vec<String>, SpecError> {
    let (mut words, mut rest) = (config.command.clone(), config.args.clone());
    if words.is_empty() {
        if rest.is_empty() {
            rest.clone_from(&image.cmd);
        }
        words.clone_from(&image.entrypoint);
    }
    words.append(&mut rest);
    if words.is_empty() { Err(SpecError::NoCommand) } else { Ok(words) }
}

/// The image's variables, then ours, then CRI's; a name that comes again replaces the earlier one in its place.
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
    if container::cgroup::Cgroup::is_unified() && !inputs.security().privileged {
        list.push(json!({"type": "cgroup"}));
    }
    list
}

#[cfg(test)]
mod tests;
