//! `protectKernelDefaults`: the settings of the kernel that Kubernetes expects.

use std::path::Path;

/// What the kernel must be set to, by the path below /proc/sys.
const EXPECTED: &[(&str, i64)] = &[
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// Every setting below a directory that is not what Kubernetes expects, in upstream's words.
// DEVIATION: without protectKernelDefaults the kernel's settings are left as they are; upstream's kubelet changes them.
pub fn unexpected(sys: &Path) -> Vec<String> {
    let check = |(path, expected): &(&str, i64)| {
        let found = std::fs::read_to_string(sys.join(path)).unwrap_or_default();
        let differs = found.trim().parse() != Ok(*expected);
        differs
            .then(|| format!("invalid kernel flag: {path}, expected value: {expected}, actual value: {}", found.trim()))
    };
    EXPECTED.iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_differ_are_named_with_what_is_expected() {
        let dir = tempfile::tempdir().unwrap();
        for (path, value) in EXPECTED {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{value}\n")).unwrap();
        }
        assert_eq!(unexpected(dir.path()), Vec::<String>::new());
        std::fs::write(dir.path().join("kernel/panic"), "0\n").unwrap();
        assert_eq!(unexpected(dir.path()), ["invalid kernel flag: kernel/panic, expected value: 10, actual value: 0"]);
    }
}
