//! What is mounted in a container.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use cri::v1;
use serde_json::{Value, json};

use super::Inputs;

/// Where a container finds its control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Why something cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Its source cannot be used.
    #[error("cannot mount {path}")]
    Source {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Mounts cannot propagate to or from its source.
    #[error("path {path:?} is mounted on {point:?} but it is not {needs} mount: make it one with `mount --make-rshared {}`", point.display())]
    Propagation {
        /// Its source.
        path: PathBuf,
        /// The mount that its source is on.
        point: PathBuf,
        /// What that would have to be.
        needs: &'static str,
    },
    /// A destination that is none.
    #[error("mount destination {0:?} is not an absolute path")]
    Destination(String),
    /// Recursive read-only needs more than that.
    #[error("mount {path}: recursive_read_only needs {needs}")]
    Recursive {
        /// Which mount.
        path: String,
        /// What is missing.
        needs: &'static str,
    },
}

/// The mounts, in order, and how the root passes them on.
pub struct Prepared {
    pub list: Vec<Value>,
    pub root_propagation: Option<&'static str>,
}

/// Everything that is mounted, shorter paths first.
pub fn all(inputs: &Inputs<'_>) -> Result<Prepared, MountError> {
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
        // Another runtime sees to each mount; what it does for the root by itself lets nothing out.
        (v1::MountPropagation::PropagationPrivate, true) => None,
        (v1::MountPropagation::PropagationHostToContainer, true) => Some("rslave"),
        (v1::MountPropagation::PropagationBidirectional, true) => Some("rshared"),
        (v1::MountPropagation::PropagationPrivate, false) => Some("private"),
        (v1::MountPropagation::PropagationHostToContainer, false) => Some("slave"),
        (v1::MountPropagation::PropagationBidirectional, false) => Some("shared"),
    };
    Ok(Prepared { list, root_propagation })
}

/// The mounts that let less through than another of the same container, and how much: the runtime inside knows one
/// propagation for a container, which is the strongest, so that these are bound elsewhere first and have their own there.
pub fn weaker(mounts: &[v1::Mount]) -> BTreeMap<usize, v1::MountPropagation> {
    let strongest = strongest(mounts);
    let all = mounts.iter().enumerate().map(|(n, mount)| (n, mount.propagation()));
    all.filter(|(_, propagation)| *propagation != strongest).collect()
}

/// Checks that mounts can propagate as a mount asks for: without that, what the container or the node mounts later would silently not
/// be seen by the other.
pub fn check_propagation(mount: &v1::Mount) -> Result<(), MountError> {
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
    // CRI counts them by strength.
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

/// A source that is missing becomes a directory, as other runtimes do; links are followed now, not in the container.
pub fn host_source(path: &Path) -> Result<PathBuf, MountError> {
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

/// A bind mount as the OCI specification has it.
pub fn bind(destination: &Path, source: &Path, options: &[&str]) -> Value {
    json!({"destination": destination, "type": "bind", "source": source, "options": options})
}

/// The container's own groups, one hierarchy beside the other. The runtime inside could mount them by itself, but looks for the
/// machine's processes by the numbers that they have in the container, which are others where it shares its processes, and
/// lets everybody write there.
fn groups(places: &BTreeMap<String, PathBuf>, privileged: bool) -> Vec<Value> {
    if places.is_empty() {
        return Vec::new();
    }
    let writable = if privileged { "rw" } else { "ro" };
    let root = Path::new(GROUPS);
    let holder = json!({"destination": root, "type": "tmpfs", "source": "tmpfs",
        "options": ["nosuid", "noexec", "nodev", "mode=755"]});
    let options = ["rbind", "rprivate", "nosuid", "noexec", "nodev", writable];
    let each = places.iter().map(|(name, place)| bind(&root.join(name), place, &options));
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
