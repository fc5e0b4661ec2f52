//! Requirements of tests on their host: root, programs, CPUs. A test fails where something is missing, so that a run without
//! failures means that every test ran.
//!
//! `cargo xtask ci` installs the programs. On a host without root, leave the tests that need it out:
//! `cargo xtask test` lists the areas that do.

use std::path::{Path, PathBuf};

/// Fails the test unless it runs as root.
#[track_caller]
pub fn root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root for namespaces, mounts or cgroups; run it as root, or leave its area out (`cargo xtask test`)"
    );
}

/// Returns the path of a program on `PATH`, or fails the test.
#[track_caller]
pub fn program(name: &str, debian_package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("this test needs the program {name}; install Debian's package {debian_package}"))
}

/// Fails the test unless a file exists.
#[track_caller]
pub fn file(path: &str, debian_package: &str) {
    assert!(Path::new(path).exists(), "this test needs {path}; install Debian's package {debian_package}");
}

/// Returns the directory of material recorded from upstream: that of `KNARR_SHARED`, or the one beside the checkout.
pub fn recordings() -> PathBuf {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
    std::env::var_os("KNARR_SHARED").map_or_else(beside, PathBuf::from)
}

/// Returns the path of recorded material, or fails the test. Names of tests that use it start with `compare_`: only
/// `cargo xtask compare` runs them.
#[track_caller]
pub fn upstream(path: &str) -> PathBuf {
    let path = recordings().join(path);
    assert!(path.exists(), "this test compares with recordings of upstream, and {} does not exist", path.display());
    path
}

/// Returns the number of CPUs, or fails the test if there are fewer than `min`.
#[track_caller]
pub fn cpus(min: usize) -> usize {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(count >= min, "this test needs {min} CPUs; the host has {count}");
    count
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "install Debian's package nothing")]
    fn test_without_its_program_fails() {
        super::program("a-program-that-does-not-exist", "nothing");
    }

    #[test]
    #[should_panic(expected = "this test needs 1000000 CPUs")]
    fn test_without_enough_cpus_fails() {
        super::cpus(1_000_000);
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(super::program("sh", "dash").is_absolute());
    }
}
