//! Container mounts in the OCI specification.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use node_api::cri::v1;
use serde_json::{Value, json};

use super::Inputs;

/// Mount point of cgroups in a container.
const GROUPS: &str = "/sys/fs/cgroup";

/// A mount is not possible.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("cannot mount {path}")]
    Source {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The mount of the source does not allow the requested propagation.
    #[error("path {path:?} is mounted on {point:?} but it is not {needs} mount: make it one with `mount --make-rshared {}`", point.display())]
    Propagation {
        path: PathBuf,
        /// The mount point of the source.
        point: PathBuf,
        /// The required propagation of that mount.
        needs: &'static str,
    },
    #[error("mount destination {0:?} is not an absolute path")]
    Destination(String),
    #[error("mount {path}: recursive_read_only needs {needs}")]
    Recursive {
        path: String,
        /// The missing requirement.
        needs: &'static str,
    },
}

/// The mounts, in order, and the propagation of the root mount.
pub(super) struct PreparedMounts {
    pub list: Vec<Value>,
    pub root_propagation: Option<&'static str>,
}

/// Returns the runtime's own mounts, then the sandbox's files, then the container's mounts, parents before children.
pub(super) fn all(inputs: &Inputs<'_>) -> Result<PreparedMounts, MountError> {
    let given: BTreeSet<&str> = inputs.config.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
    let privileged = inputs.security().privileged;
    let mut list: Vec<Value> = base(privileged)
        .into_iter()
        .filter(|mount| inputs.groups.is_empty() || mount["type"] != "cgroup")
        .chain(groups(inputs.groups, privileged))
        .filter(|mount| !given.contains(mount["destination"].as_str().unwrap_or_default()))
        .collect();
    for (destination, source) in inputs.provided.iter().filter(|(path, _)| !given.contains(**path)) {
        let mut options = vec!["rbind", "rprivate"];
        if inputs.security().readonly_rootfs && *destination != "/dev/shm" {
            options.push("ro");
        }
        list.push(bind(Path::new(destination), source, &options));
    }
    let mut own: Vec<(usize, &v1::Mount)> = inputs.config.mounts.iter().enumerate().collect();
    own.sort_by_key(|(_, mount)| Path::new(&mount.container_path).components().count());
    for (n, mount) in own {
        list.push(one(mount, inputs.prepared.get(&n))?);
    }
    let root_propagation = match (strongest(&inputs.config.mounts), inputs.foreign) {
        // Other OCI runtimes apply the propagation of each mount, and their default for the root propagates nothing to
        // the host.
        (v1::MountPropagation::PropagationPrivate, true) => None,
        (v1::MountPropagation::PropagationHostToContainer, true) => Some("rslave"),
        (v1::MountPropagation::PropagationBidirectional, true) => Some("rshared"),
        (v1::MountPropagation::PropagationPrivate, false) => Some("private"),
        (v1::MountPropagation::PropagationHostToContainer, false) => Some("slave"),
        (v1::MountPropagation::PropagationBidirectional, false) => Some("shared"),
    };
    Ok(PreparedMounts { list, root_propagation })
}

/// Returns the mounts with a weaker propagation than another mount of the container. The built-in runtime applies one
/// propagation per container, the strongest. Weaker mounts are therefore first bind-mounted elsewhere, with their own
/// propagation.
pub(crate) fn weaker(mounts: &[v1::Mount]) -> BTreeMap<usize, v1::MountPropagation> {
    let strongest = strongest(mounts);
    let all = mounts.iter().enumerate().map(|(n, mount)| (n, mount.propagation()));
    all.filter(|(_, propagation)| *propagation != strongest).collect()
}

/// Checks that the source's mount allows the requested propagation. Otherwise later mounts of the container or of the
/// node would silently be invisible to the other.
pub(crate) fn check_propagation(mount: &v1::Mount) -> Result<(), MountError> {
    let propagation = mount.propagation();
    if propagation == v1::MountPropagation::PropagationPrivate || mount.image.is_some() {
        return Ok(());
    }
    let path = host_source(Path::new(&mount.host_path))?;
    let found = sys::mount_of(&path).map_err(|source| MountError::Source { path: path.clone(), source })?;
    let (fits, needs) = match propagation {
        v1::MountPropagation::PropagationBidirectional => (found.is_shared, "a shared"),
        _ => (found.is_shared || found.is_slave, "a shared or slave"),
    };
    if fits { Ok(()) } else { Err(MountError::Propagation { path, point: found.point, needs }) }
}

fn strongest(mounts: &[v1::Mount]) -> v1::MountPropagation {
    let all = mounts.iter().map(v1::Mount::propagation);
    // CRI's enum values are ordered by strength.
    all.max_by_key(|propagation| *propagation as i32).unwrap_or(v1::MountPropagation::PropagationPrivate)
}

fn one(mount: &v1::Mount, prepared: Option<&PathBuf>) -> Result<Value, MountError> {
    let destination = Path::new(&mount.container_path);
    if !destination.is_absolute() || destination.components().any(|part| part == Component::ParentDir) {
        return Err(MountError::Destination(mount.container_path.clone()));
    }
    let propagation = match mount.propagation() {
        v1::MountPropagation::PropagationPrivate => "rprivate",
        v1::MountPropagation::PropagationHostToContainer => "rslave",
        v1::MountPropagation::PropagationBidirectional => "rshared",
    };
    let needs = |needs| MountError::Recursive { path: mount.container_path.clone(), needs };
    let mut options = vec!["rbind", propagation];
    if mount.recursive_read_only {
        if !mount.readonly {
            return Err(needs("readonly"));
        }
        if propagation != "rprivate" {
            return Err(needs("private propagation"));
        }
        options.push("rro");
    } else if mount.readonly || mount.image.is_some() {
        options.push("ro");
    } else {
        options.push("rw");
    }
    if mount.image.is_some() {
        options.extend(["nosuid", "nodev", "noexec"]);
    }
    let source = match prepared {
        Some(path) => path.clone(),
        None => host_source(Path::new(&mount.host_path))?,
    };
    Ok(bind(destination, &source, &options))
}

/// Resolves a host path; a missing one is created as a directory, as in other runtimes. Symlinks are followed now, not
/// in the container.
pub(crate) fn host_source(path: &Path) -> Result<PathBuf, MountError> {
    let failed = |source| MountError::Source { path: path.to_owned(), source };
    if !path.is_absolute() {
        return Err(failed(io::Error::other("it is not an absolute path")));
    }
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path).map_err(failed)?;
            fs::canonicalize(path).map_err(failed)
        }
        found => found.map_err(failed),
    }
}

/// Returns an OCI bind mount.
pub(crate) fn bind(destination: &Path, source: &Path, options: &[&str]) -> Value {
    json!({"destination": destination, "type": "bind", "source": source, "options": options})
}

/// Returns the mounts of the container's own cgroups (v1), one per hierarchy. The built-in runtime's own mounts of them
/// are not used: they are writable, and they fail with a shared PID namespace, because the runtime looks up host PIDs
/// in it.
fn groups(places: &BTreeMap<String, PathBuf>, privileged: bool) -> Vec<Value> {
    if places.is_empty() {
        return Vec::new();
    }
    let writable = if privileged { "rw" } else { "ro" };
    let root = Path::new(GROUPS);
    let holder = json!({"destination": root, "type": "tmpfs", "source": "tmpfs",
        "options": ["nosuid", "noexec", "nodev", "mode=755"]});
    let options = ["rbind", "rprivate", "nosuid", "noexec", "nodev", writable];
    let each = places.iter().map(|(name, source)| bind(&root.join(name), source, &options));
    std::iter::once(holder).chain(each).collect()
}

fn base(privileged: bool) -> Vec<Value> {
    let writable = if privileged { "rw" } else { "ro" };
    vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
               "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
        json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts",
               "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]}),
        json!({"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
               "options": ["nosuid", "noexec", "nodev", writable]}),
        json!({"destination": GROUPS, "type": "cgroup", "source": "cgroup",
               "options": ["nosuid", "noexec", "nodev", "relatime", writable]}),
    ]
}
