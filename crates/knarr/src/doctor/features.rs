//! Doctor checks of kernel features: tries each one in a private network and mount namespace.

use std::path::Path;

use diagnostics::checkup::{Feature, FeatureStatus, Requirement};
use netlink::link::Links;
use netlink::nft::{Batch, Family};
use rustix::mount::{MountFlags, mount};

/// Namespaces that a pod needs, by their names in /proc/self/ns.
const NAMESPACES: &[&str] = &["cgroup", "ipc", "mnt", "net", "pid", "uts"];

/// Tries all features; `dir` is the directory of image layers.
pub(super) fn observe(dir: &Path) -> Vec<Feature> {
    let feature = |name, purpose, need, tried| Feature { name, purpose, need, tried };
    let root = rustix::process::geteuid().is_root();
    let apart = |try_it: &(dyn Fn() -> Result<(), String> + Sync)| {
        if !root {
            return FeatureStatus::Unknown("not checked: needs root".to_owned());
        }
        match sys::apart(try_it) {
            Ok(Ok(())) => FeatureStatus::Works,
            Ok(Err(error)) => FeatureStatus::Fails(error),
            Err(error) => FeatureStatus::Unknown(format!("not checked: failed to create a namespace: {error}")),
        }
    };
    let link = |kind: &'static str| move || plain(kind);
    vec![
        feature("namespaces", "isolation of pods", Requirement::Always, namespaces()),
        feature("overlay", "image layers", Requirement::Always, apart(&|| overlay(dir))),
        feature("veth", "pod network interfaces", Requirement::Always, apart(&link("veth"))),
        feature("nf_tables", "Services and network policies", Requirement::Always, apart(&packet_rules)),
        feature("vxlan", "pod network between hosts", Requirement::Sometimes, apart(&tunnel)),
        feature("bridge", "CNI plugins that need a bridge", Requirement::Sometimes, apart(&link("bridge"))),
    ]
}

fn namespaces() -> FeatureStatus {
    let absent = |name: &&&str| !Path::new("/proc/self/ns").join(name).exists();
    let missing: Vec<&str> = NAMESPACES.iter().filter(absent).copied().collect();
    if missing.is_empty() {
        FeatureStatus::Works
    } else {
        FeatureStatus::Fails(format!("the kernel does not support {}", missing.join(", ")))
    }
}

fn plain(kind: &str) -> Result<(), String> {
    Links::open().and_then(|mut links| links.add_plain("knarr-doctor", kind)).map_err(|error| chain(&error))
}

fn tunnel() -> Result<(), String> {
    let made =
        Links::open().and_then(|mut links| links.ensure_vxlan("knarr-doctor", 1, 8472, 1450, [2, 0, 0, 0, 0, 1]));
    made.map(drop).map_err(|error| chain(&error))
}

fn packet_rules() -> Result<(), String> {
    let mut batch = Batch::new();
    batch.table(Family::Ip, "knarr-doctor").add();
    batch.commit().map_err(|error| chain(&error))
}

/// Mounts an overlay in the directory of image layers: some file systems do not support it.
fn overlay(dir: &Path) -> Result<(), String> {
    let scratch = dir.join(format!(".doctor-{}", std::process::id()));
    let result = lay_over(&scratch).map_err(|error| format!("in {}: {error}", dir.display()));
    // The mount disappears with the thread's namespace; the directories are visible to the host.
    let _ = std::fs::remove_dir_all(&scratch);
    result
}

fn lay_over(scratch: &Path) -> std::io::Result<()> {
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir_all(scratch.join(name))?;
    }
    let at = |name: &str| scratch.join(name).display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    let options = std::ffi::CString::new(options)?;
    mount("overlay", scratch.join("merged"), "overlay", MountFlags::empty(), Some(options.as_c_str()))?;
    std::fs::write(scratch.join("merged/file"), "")?;
    rustix::mount::unmount(scratch.join("merged"), rustix::mount::UnmountFlags::DETACH)?;
    Ok(())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
