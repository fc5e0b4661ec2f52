//! Check that nothing is mounted over a container's `/proc` (CVE-2019-16884, CVE-2025-52881).
//!
//! Such a mount would redirect writes of the runtime and of programs, and could forge what they read. The OCI runtime
//! library does not check where a volume's path leads through symlinks of the image or of other volumes. Therefore the
//! mounts are checked after all of them exist and before the container's process runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;

/// Files that volumes may replace, as in other runtimes, for filesystems such as lxcfs that show a container its own
/// limits.
const REPLACEABLE: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys/crypto/fips_enabled",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/uptime",
];
/// Filesystems that the kernel or systemd mounts in the host's `/proc`, which a privileged container may have.
const OF_THE_MACHINE: &[&str] = &["autofs", "binfmt_misc"];

/// Checks the mounts of a container's init process, given by its PID on the host.
pub(super) fn check(pid: i32, spec: &Spec) -> io::Result<()> {
    let linux = spec.linux().as_ref();
    let paths = |paths: Option<&Vec<String>>| paths.cloned().unwrap_or_default();
    let mut own = paths(linux.and_then(|linux| linux.masked_paths().as_ref()));
    own.extend(paths(linux.and_then(|linux| linux.readonly_paths().as_ref())));
    match forbidden(&fs::read_to_string(format!("/proc/{pid}/mountinfo"))?, &own) {
        None => Ok(()),
        Some(mount_point) => Err(io::Error::other(format!(
            "a volume is mounted at {}: only the container's own procfs may be there",
            mount_point.display()
        ))),
    }
}

/// Returns the first mount over `/proc` that is neither in `own`, the masked and read-only paths, nor harmless.
fn forbidden(mountinfo: &str, own: &[String]) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mount_point = PathBuf::from(unescape(before.split(' ').nth(4)?));
        let kind = after.split(' ').next()?;
        let harmless = match mount_point.strip_prefix("/proc") {
            Err(_) => true,
            Ok(relative) if relative.as_os_str().is_empty() => kind == "proc",
            Ok(_) => {
                own.iter().any(|path| mount_point.starts_with(Path::new(path)))
                    || REPLACEABLE.iter().any(|path| mount_point == Path::new(path))
                    || OF_THE_MACHINE.contains(&kind)
            }
        };
        (!harmless).then_some(mount_point)
    })
}

/// Decodes a path of `mountinfo`, in which blanks and backslashes are octal.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_masked_paths_and_replaceable_files_may_be_mounted_in_proc() {
        let check = |mount_point: &str, kind: &str, expect: bool| {
            let line = format!("36 35 98:0 / {mount_point} rw,noatime - {kind} source rw\n");
            let own = ["/proc/kcore".to_owned(), "/proc/sys".to_owned()];
            assert_eq!(forbidden(&line, &own).is_none(), expect, "{mount_point} {kind}");
        };
        check("/proc", "proc", true);
        check("/proc", "ext4", false);
        check("/proc/self/attr", "ext4", false);
        check("/proc/17/attr/exec", "tmpfs", false);
        check("/proc/kcore", "tmpfs", true);
        check("/proc/sys", "proc", true);
        check("/proc/sys/fs/binfmt_misc", "binfmt_misc", true);
        check("/proc/meminfo", "fuse.lxcfs", true);
        check("/proc/1", "proc", false);
        check("/processes", "ext4", true);
        check("/data\\040dir", "ext4", true);
        check("/host/proc/self", "ext4", true);
    }
}
