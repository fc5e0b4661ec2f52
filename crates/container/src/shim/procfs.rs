//! Nothing may be mounted over a container's `/proc`: what the runtime and programs write there would go elsewhere, and what they
//! read would be made up (CVE-2019-16884, CVE-2025-52881).
//!
//! The OCI runtime library does not look where a volume's path leads by links of the image or of other volumes, so the mounts are
//! checked when all of them are made and the container's program does not run yet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;

/// Files that other runtimes let volumes replace, for file systems that show a container its own limits.
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
/// File systems that the kernel or systemd mounts in the machine's own `/proc`, which a privileged container may have.
const OF_THE_MACHINE: &[&str] = &["autofs", "binfmt_misc"];

/// Checks the mounts of a container's first process, which is named by its ID on the machine.
pub fn check(pid: i32, spec: &Spec) -> io::Result<()> {
    let linux = spec.linux().as_ref();
    let paths = |paths: Option<&Vec<String>>| paths.cloned().unwrap_or_default();
    let mut own = paths(linux.and_then(|linux| linux.masked_paths().as_ref()));
    own.extend(paths(linux.and_then(|linux| linux.readonly_paths().as_ref())));
    match forbidden(&fs::read_to_string(format!("/proc/{pid}/mountinfo"))?, &own) {
        None => Ok(()),
        Some(place) => Err(io::Error::other(format!(
            "a volume is mounted at {}: only the container's own procfs may be there",
            place.display()
        ))),
    }
}

/// The first mount over `/proc` that is neither one of `own`, the paths that the runtime masks and makes read-only, nor harmless.
fn forbidden(mountinfo: &str, own: &[String]) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let place = PathBuf::from(unescape(before.split(' ').nth(4)?));
        let kind = after.split(' ').next()?;
        let harmless = match place.strip_prefix("/proc") {
            Err(_) => true,
            Ok(inside) if inside.as_os_str().is_empty() => kind == "proc",
            Ok(_) => {
                own.iter().any(|path| place.starts_with(Path::new(path)))
                    || REPLACEABLE.iter().any(|path| place == Path::new(path))
                    || OF_THE_MACHINE.contains(&kind)
            }
        };
        (!harmless).then_some(place)
    })
}

/// A path of `mountinfo`, in which blanks and backslashes are octal numbers.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_procfs_masks_and_a_few_files_may_be_mounted_in_proc() {
        let check = |place: &str, kind: &str, expect: bool| {
            let line = format!("36 35 98:0 / {place} rw,noatime - {kind} source rw\n");
            let own = ["/proc/kcore".to_owned(), "/proc/sys".to_owned()];
            assert_eq!(forbidden(&line, &own).is_none(), expect, "{place} {kind}");
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
