//! Cleanup of the mounts, processes and cgroups that containers of a test leave.

use std::fs;
use std::path::Path;

use cgroups::Cgroup;

/// Returns the mount points below a directory.
pub(crate) fn mounts(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = dir.display().to_string();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|mount_point| mount_point.starts_with(&own)).map(str::to_owned).collect()
}

/// Kills the processes and removes the mounts and cgroups of a failed test.
pub(crate) fn sweep(dir: &Path, group: &str) {
    let cgroup = Cgroup::at(group);
    cgroup.kill();
    let own = dir.display().to_string();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains("shim") && line.contains(&own) {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
    for mount_point in mounts(dir).iter().rev() {
        let _ = rustix::mount::unmount(mount_point.as_str(), rustix::mount::UnmountFlags::DETACH);
    }
    for _ in 0..100 {
        if cgroup.remove().is_ok() {
            break;
        }
        std::thread::yield_now();
    }
}
