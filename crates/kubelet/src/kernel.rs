//! `protectKernelDefaults`: the kernel parameters that the kubelet expects.

use std::path::Path;

/// Expected values by path below `/proc/sys`.
const EXPECTED: &[(&str, i64)] = &[
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// Returns upstream's error message for every parameter below `sys` that differs from its expected value.
// DEVIATION: without protectKernelDefaults, kernel parameters stay unchanged; upstream's kubelet sets them.
pub(crate) fn unexpected(sys: &Path) -> Vec<String> {
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
    fn differing_kernel_parameters_are_reported_with_expected_values() {
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
