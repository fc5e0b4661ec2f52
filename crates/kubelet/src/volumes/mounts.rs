//! Container mounts: volumes, subPaths, the hosts file and the termination message file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use apimachinery::Value;
use node_api::cri::v1;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::{VolumeError, VolumeLocation, make_dir};
use crate::environment::expand;
use crate::pod::Container;

/// Maximum size of a `fileKeyRef` file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The inputs of a container's mounts.
pub struct Inputs<'a> {
    pub pod_dir: &'a Path,
    /// Locations of the pod's volumes.
    pub locations: &'a BTreeMap<String, VolumeLocation>,
    /// Environment variables for `subPathExpr`.
    pub environment: &'a [(String, String)],
    /// Number of previous containers with this name.
    pub attempt: u32,
}

/// Returns all mounts of a container and creates the files they need.
pub fn all(container: Container<'_>, inputs: &Inputs<'_>) -> Result<Vec<v1::Mount>, VolumeError> {
    let mut mounts = Vec::new();
    for (n, mount) in container.spec["volumeMounts"].as_array().unwrap_or_default().iter().enumerate() {
        mounts.push(one(container, n, mount, inputs)?);
    }
    let taken = |mounts: &[v1::Mount], path: &str| mounts.iter().any(|mount| mount.container_path == path);
    let hosts = inputs.pod_dir.join("etc-hosts");
    if !taken(&mounts, "/etc/hosts") && hosts.is_file() {
        mounts.push(bind("/etc/hosts", &hosts, false));
    }
    let path = container.spec.str_at(&["terminationMessagePath"]).unwrap_or("/dev/termination-log");
    if !path.is_empty() && !taken(&mounts, path) {
        let dir = inputs.pod_dir.join("containers").join(container.name());
        make_dir(&dir, 0o750)?;
        let file = dir.join(format!("{:08x}", inputs.attempt));
        // The container's user is unknown here, so every user may write the file.
        let made = sys::write_container_file(&file, b"", 0o666);
        made.map_err(VolumeError::io(format!("make {}", file.display())))?;
        mounts.push(bind(path, &file, false));
    }
    Ok(mounts)
}

/// Returns the block devices of a container.
pub fn devices(
    container: Container<'_>,
    locations: &BTreeMap<String, VolumeLocation>,
) -> Result<Vec<v1::Device>, VolumeError> {
    let list = container.spec["volumeDevices"].as_array().unwrap_or_default().iter();
    let one = |device: &Value| {
        let text = |field: &str| device.str_at(&[field]).unwrap_or_default();
        let name = text("name");
        let Some(VolumeLocation::Device { path, read_only }) = locations.get(name) else {
            let message = format!("volume {name} has volumeMode Filesystem, but is specified in volumeDevices");
            return Err(VolumeError::Invalid(message));
        };
        Ok(v1::Device {
            container_path: text("devicePath").to_owned(),
            host_path: path.display().to_string(),
            permissions: if *read_only { "r" } else { "mrw" }.to_owned(),
        })
    };
    list.map(one).collect()
}

/// Reads a file of a volume. Symlinks are followed within the volume only. Returns `None` if the file cannot be read.
pub fn text_of(locations: &BTreeMap<String, VolumeLocation>, volume: &str, path: &str) -> Option<String> {
    let VolumeLocation::Path { path: volume, .. } = locations.get(volume)? else { return None };
    let file = sys::open_container_file_in(volume, Path::new(path)).ok()?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

fn bind(container_path: &str, host_path: &Path, readonly: bool) -> v1::Mount {
    v1::Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.display().to_string(),
        readonly,
        ..Default::default()
    }
}

fn one(container: Container<'_>, n: usize, mount: &Value, inputs: &Inputs<'_>) -> Result<v1::Mount, VolumeError> {
    let text = |field: &str| mount.str_at(&[field]).unwrap_or_default();
    let name = text("name");
    let location =
        inputs.locations.get(name).ok_or_else(|| VolumeError::Invalid(format!("there is no volume {name}")))?;
    let sub_path = match text("subPathExpr") {
        "" => text("subPath").to_owned(),
        expression => expanded(expression, inputs.environment)?,
    };
    let readonly = mount["readOnly"].as_bool().unwrap_or(false);
    let path = match text("mountPath") {
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        relative => format!("/{relative}"),
    };
    let mut made = match location {
        VolumeLocation::Image { reference, .. } => v1::Mount {
            container_path: path,
            image: Some(v1::ImageSpec { image: reference.clone(), ..Default::default() }),
            image_sub_path: sub_path,
            readonly: true,
            ..Default::default()
        },
        VolumeLocation::Device { .. } => {
            let message = format!("volume {name} has volumeMode Block, but is specified in volumeMounts");
            return Err(VolumeError::Invalid(message));
        }
        VolumeLocation::Path { path: volume, read_only } => {
            let source = match sub_path.as_str() {
                "" => volume.clone(),
                part => part_of(volume, part, inputs.pod_dir, name, container.name(), n)?,
            };
            bind(&path, &source, readonly || *read_only)
        }
    };
    made.set_propagation(match text("mountPropagation") {
        "HostToContainer" => v1::MountPropagation::PropagationHostToContainer,
        "Bidirectional" => v1::MountPropagation::PropagationBidirectional,
        _ => v1::MountPropagation::PropagationPrivate,
    });
    made.recursive_read_only = readonly && matches!(text("recursiveReadOnly"), "Enabled");
    Ok(made)
}

/// Expands a `subPathExpr`. Fails if a variable is missing, since the result would name another path or the entire
/// volume.
fn expanded(expression: &str, environment: &[(String, String)]) -> Result<String, VolumeError> {
    let missing = RefCell::new(BTreeSet::new());
    let part = expand(expression, |name| {
        let found = environment.iter().find(|(have, value)| have == name && !value.is_empty());
        if found.is_none() {
            missing.borrow_mut().insert(name.to_owned());
        }
        found.map(|(_, value)| value.clone())
    });
    let missing: Vec<String> = missing.into_inner().into_iter().collect();
    if missing.is_empty() {
        Ok(part)
    } else {
        Err(VolumeError::Invalid(format!("missing value for {}", missing.join(", "))))
    }
}

/// Bind-mounts a subPath to a separate path, so that later changes of symlinks by containers do not affect the mount.
fn part_of(
    volume: &Path,
    part: &str,
    pod_dir: &Path,
    name: &str,
    container: &str,
    n: usize,
) -> Result<PathBuf, VolumeError> {
    let parts: Vec<&str> = part.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if part.starts_with('/') || parts.contains(&"..") {
        return Err(VolumeError::Invalid(format!("subPath {part:?} must be a path below the volume")));
    }
    let relative: PathBuf = parts.iter().collect();
    let failed = |what: &str| VolumeError::io(format!("{what} subPath {part:?} of volume {name}"));
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, volume, flags, Mode::empty()).map_err(|error| failed("open")(error.into()))?;
    let open = || {
        rustix::fs::openat2(&root, &relative, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
    };
    let found = match open() {
        Err(rustix::io::Errno::NOENT) => {
            let mode = fs::metadata(volume).map_err(failed("find the mode for"))?.permissions().mode();
            make_below(&root, &parts, mode & 0o7777).map_err(failed("make"))?;
            open()
        }
        other => other,
    };
    let found = found.map_err(|error| failed("find")(error.into()))?;
    let target = pod_dir.join("volume-subpaths").join(name).join(container).join(n.to_string());
    let through = format!("/proc/self/fd/{}", found.as_raw_fd());
    prepare_target(&target, fs::metadata(&through).is_ok_and(|metadata| metadata.is_dir())).map_err(failed("bind"))?;
    rustix::mount::mount_bind_recursive(through.as_str(), &target).map_err(|error| failed("bind")(error.into()))?;
    Ok(target)
}

/// Creates nested directories, each relative to its parent and never through a symlink. The last directory gets exactly
/// the mode of the volume, so that the same users can write to it.
fn make_below(root: &rustix::fd::OwnedFd, parts: &[&str], mode: u32) -> std::io::Result<()> {
    let mut at = rustix::io::dup(root)?;
    let mut made = false;
    for part in parts {
        made = match rustix::fs::mkdirat(&at, *part, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        at =
            rustix::fs::openat2(&at, *part, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?;
    }
    if made {
        rustix::fs::fchmod(&at, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

fn prepare_target(target: &Path, directory: bool) -> std::io::Result<()> {
    // Removes the bind mount of the previous container.
    sys::unmount_below(target)?;
    if let Some(parent) = target.parent() {
        sys::create_dirs(parent, 0o750)?;
    }
    if directory {
        if target.is_file() {
            fs::remove_file(target)?;
        }
        return fs::create_dir_all(target);
    }
    if target.is_dir() {
        fs::remove_dir(target)?;
    }
    fs::File::create(target).map(drop)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::pod::Role;

    /// Returns the mount of a container with one volume.
    fn mounted(mount: &Value, volume: &Path, read_only: bool) -> Result<v1::Mount, String> {
        let spec = value!({"name": "c", "terminationMessagePath": "", "volumeMounts": [(mount.clone())]});
        let locations = BTreeMap::from([("v".to_owned(), VolumeLocation::Path { path: volume.to_owned(), read_only })]);
        let inputs = Inputs { pod_dir: Path::new("/nowhere"), locations: &locations, environment: &[], attempt: 0 };
        let mounts = all(Container { spec: &spec, role: Role::App }, &inputs).map_err(|error| error.describe())?;
        Ok(mounts.into_iter().next().unwrap())
    }

    #[test]
    fn read_only_volume_is_always_mounted_read_only() {
        let check = |specified: bool, must: bool, expect: bool| {
            let mount = value!({"name": "v", "mountPath": "/v", "readOnly": specified});
            assert_eq!(mounted(&mount, Path::new("/v"), must).unwrap().readonly, expect, "{specified} {must}");
        };
        check(false, false, false);
        check(true, false, true);
        check(false, true, true);
    }

    #[test]
    fn files_are_read_within_the_volume_only() {
        let top = tempfile::tempdir().unwrap();
        let volume = top.path().join("v");
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("file"), "text").unwrap();
        fs::write(top.path().join("secret"), "hidden").unwrap();
        std::os::unix::fs::symlink("../secret", volume.join("link")).unwrap();
        let locations = BTreeMap::from([("v".to_owned(), VolumeLocation::Path { path: volume, read_only: false })]);
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(text_of(&locations, "v", path).as_deref(), expect, "{path}");
        };
        check("file", Some("text"));
        check("link", None);
        check("../secret", None);
        check("absent", None);
        check(".", None);
    }

    #[test]
    fn volume_mode_decides_between_device_and_mount() {
        let path = PathBuf::from("/dev/disk");
        let locations = BTreeMap::from([
            ("disk".to_owned(), VolumeLocation::Device { path: path.clone(), read_only: false }),
            ("reads".to_owned(), VolumeLocation::Device { path: path.clone(), read_only: true }),
            ("files".to_owned(), VolumeLocation::Path { path, read_only: false }),
        ]);
        let check = |name: &str, expect: Result<&str, &str>| {
            let spec = value!({"name": "c", "volumeDevices": [{"name": name, "devicePath": "/dev/it"}]});
            let found =
                devices(Container { spec: &spec, role: Role::App }, &locations).map_err(|error| error.to_string());
            let describe = |one: &v1::Device| format!("{} {} {}", one.host_path, one.container_path, one.permissions);
            let found = found.map(|list| list.iter().map(describe).collect::<String>());
            assert_eq!(found.as_deref().map_err(String::as_str), expect, "{name}");
        };
        check("disk", Ok("/dev/disk /dev/it mrw"));
        check("reads", Ok("/dev/disk /dev/it r"));
        check("files", Err("volume files has volumeMode Filesystem, but is specified in volumeDevices"));
        let spec = value!({"name": "c", "volumeMounts": [{"name": "disk", "mountPath": "/v"}]});
        let inputs = Inputs { pod_dir: Path::new("/nowhere"), locations: &locations, environment: &[], attempt: 0 };
        let message = all(Container { spec: &spec, role: Role::App }, &inputs).unwrap_err().to_string();
        assert_eq!(message, "volume disk has volumeMode Block, but is specified in volumeMounts");
    }

    #[test]
    fn sub_path_expr_with_missing_variable_is_rejected() {
        let check = |expression: &str, expect: Result<&str, &str>| {
            let environment = [("A".to_owned(), "a".to_owned()), ("EMPTY".to_owned(), String::new())];
            let found = expanded(expression, &environment).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expect, "{expression}");
        };
        check("$(A)/x", Ok("a/x"));
        check("$$(B)", Ok("$(B)"));
        check("x/$(EMPTY)", Err("missing value for EMPTY"));
        check("$(C)/$(A)/$(B)", Err("missing value for B, C"));
    }

    #[test]
    fn sub_path_outside_the_volume_is_rejected() {
        let top = tempfile::tempdir().unwrap();
        let volume = top.path().join("v");
        fs::create_dir_all(volume.join("dir")).unwrap();
        fs::create_dir(top.path().join("secret")).unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, volume.join(name)).unwrap();
        link("/", "absolute");
        link("../secret", "relative");
        link("../../secret", "dir/deep");
        link("/proc/self/root", "magic");
        for part in
            ["absolute", "absolute/etc", "relative", "relative/new", "dir/deep", "magic/etc", "../secret", "/etc"]
        {
            let mount = value!({"name": "v", "mountPath": "/v", "subPath": part});
            assert!(mounted(&mount, &volume, false).is_err(), "{part}");
        }
        assert_eq!(fs::read_dir(top.path().join("secret")).unwrap().count(), 0, "nothing was created outside");
    }

    #[test]
    fn created_sub_path_has_the_mode_of_its_volume() {
        let volume = tempfile::tempdir().unwrap();
        let mode = |path: &str| fs::metadata(volume.path().join(path)).unwrap().permissions().mode() & 0o7777;
        let root = rustix::fs::openat(CWD, volume.path(), OFlags::PATH, Mode::empty()).unwrap();
        make_below(&root, &["a", "b"], 0o3777).unwrap();
        assert_eq!(mode("a/b"), 0o3777);
        make_below(&root, &["a", "b"], 0o700).unwrap();
        assert_eq!(mode("a/b"), 0o3777, "existing files are unchanged");
    }
}
