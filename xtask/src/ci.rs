//! `cargo xtask ci`: the checks that every change must pass, fastest feedback first.

use std::time::Instant;

use anyhow::{Context, bail, ensure};

use crate::process::{Package, cargo, exec, install_missing, output, succeeds};
use crate::{book, compare, dashboard, licenses, tidy};

type Step = fn() -> anyhow::Result<()>;

/// Required free disk space. A full run builds 13 GiB; tests and leftovers of other clones need the rest.
const FREE_GIB_MIN: u64 = 24;

/// Programs that tests run as peers, and the Debian packages that contain them.
const PACKAGES: &[Package] = &[
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("busybox", "busybox-static"),
    ("cc", "gcc"),
    ("chromium", "chromium"),
    ("containerd", "containerd"),
    ("curl", "curl"),
    ("dig", "bind9-dnsutils"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("fish", "fish"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("kill", "procps"),
    ("kubectl", "kubernetes-client"),
    ("musl-gcc", "musl-tools"),
    ("nft", "nftables"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("openssl", "openssl"),
    ("python3", "python3"),
    ("runc", "runc"),
    ("tmux", "tmux"),
    ("/usr/lib/python3/dist-packages/kubernetes/__init__.py", "python3-kubernetes"),
    ("zsh", "zsh"),
];

/// Runs all steps, or those that the arguments name, and stops at the first failure.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let steps: &[(&str, Step)] = &[
        // A full disk makes a hundred tests fail with different messages.
        ("room", ensure_disk_space),
        ("packages", || install_missing(PACKAGES)),
        ("format", || cargo(&["fmt", "--all", "--check"], &[])),
        ("tidy", || tidy::run(&[])),
        ("book", || book::run(&[])),
        ("licenses", || licenses::run(&["--check".to_owned()])),
        ("dashboard", || dashboard::run(&["--check".to_owned()])),
        ("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"], &[])),
        ("docs", || {
            cargo(
                &["doc", "--workspace", "--locked", "--no-deps", "--document-private-items"],
                &[("RUSTDOCFLAGS", "-D warnings")],
            )
        }),
        ("test", test),
        ("compare", compare::run_where_recorded),
        ("test over containerd", test_over_containerd),
        ("test on cgroup v2", test_on_cgroup_v2),
        ("doctest", || cargo(&["test", "--workspace", "--locked", "--doc"], &[])),
    ];
    let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
    let unknown = args.iter().find(|arg| !names.contains(&arg.as_str()));
    if let Some(unknown) = unknown {
        bail!("no step is named {unknown:?}; the steps are: {}", names.join(", "));
    }
    let mut times = Vec::new();
    for (name, step) in steps.iter().filter(|(name, _)| args.is_empty() || args.iter().any(|arg| arg == name)) {
        println!("── {name}");
        let started = Instant::now();
        step().with_context(|| format!("step {name} failed"))?;
        times.push(format!("{name} {:.0} s", started.elapsed().as_secs_f64()));
    }
    println!("{} passed: {}", if args.is_empty() { "all steps" } else { "the named steps" }, times.join(", "));
    Ok(())
}

fn test() -> anyhow::Result<()> {
    if succeeds("cargo", &["nextest", "--version"]) {
        cargo(&["nextest", "run", "--workspace", "--locked", "--no-fail-fast"], &[])
    } else {
        println!("cargo-nextest is not installed: using cargo test");
        let mut args = vec!["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests", "--"];
        args.extend(["--skip", compare::PREFIX]);
        cargo(&args, &[])
    }
}

/// Tests of the kubelet that only the built-in runtime passes: features that Debian's containerd lacks, and tests that
/// look into the runtime's own directories.
const BUILT_IN_RUNTIME: [&str; 14] = [
    "builtin::built_in_images_run_without_a_registry",
    "confined::pod_with_user_namespace_may_have_unmasked_proc",
    "controllers::",
    "drivers::resource_claim_is_prepared_and_its_device_is_in_the_container",
    "features::image_volume_is_mounted",
    "host::runtime_class_selects_another_runtime",
    "hostile::hostile_image_is_rejected_with_a_message_and_writes_nothing",
    "hostile::image_links_and_devices_do_not_escape_the_root_file_system",
    "images::imported_image_is_used_during_image_pull_back_off",
    "life::killed_container_restarts_and_killed_shim_affects_only_its_pod",
    "pressure::disk_pressure_removes_dead_containers_and_then_evicts_only_the_pod_that_fills_the_disk",
    "propagation::unsupported_mount_propagation_is_rejected_with_the_reason",
    "registries::registries_yaml_gives_mirrors_tls_and_passwords_and_is_read_again_when_it_changes",
    "special::user_namespace_maps_root_to_an_unprivileged_host_uid",
];

/// Runs the kubelet's tests again, with Debian's containerd and runc instead of the built-in runtime.
fn test_over_containerd() -> anyhow::Result<()> {
    ensure_tests_exist("kubelet", &BUILT_IN_RUNTIME)?;
    let containerd = [("KNARR_TEST_RUNTIME", "containerd")];
    if succeeds("cargo", &["nextest", "--version"]) {
        let filter = format!("binary_id(knarr::kubelet){}", without(&BUILT_IN_RUNTIME));
        cargo(&["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "-E", &filter], &containerd)
    } else {
        let mut args = vec!["test", "--workspace", "--locked", "--test", "kubelet", "--"];
        args.extend(BUILT_IN_RUNTIME.iter().flat_map(|test| ["--skip", *test]));
        cargo(&args, &containerd)
    }
}

/// Test binaries of the package `knarr` that run on cgroup v2, with the tests and modules (`name::`) that do not. On a
/// host with cgroup v1, the v2 hierarchy has no controllers for CPU, memory, cpusets and PIDs.
const ON_CGROUP_V2: &[(&str, &[&str])] = &[
    (
        "cri",
        &[
            // Limits and usage of CPU and memory.
            "life::resource_limits_apply_and_are_updated_and_stats_report_usage",
            // Limits, in containerd.
            "peers::containerd_behaves_like_the_built_in_runtime",
        ],
    ),
    (
        "kubelet",
        &[
            // CPU weights, CPU quotas and memory limits.
            "confined::cpu_limits_are_not_enforced_without_cpu_cfs_quota",
            "confined::qos_cgroup_shares_are_the_sum_of_the_pods_requests",
            "confined::resource_limits_are_enforced_and_oom_kills_are_reported",
            "server::stats_and_metrics_include_every_container",
            "special::container_is_resized_in_place",
            "special::deferred_resize_survives_a_kubelet_restart",
            // Limits of PIDs.
            "special::pod_max_pids_limits_processes",
            // Cpusets.
            "devices::static_cpu_manager_gives_guaranteed_pods_exclusive_cpus",
            "nearness::cpus_and_memory_are_on_one_numa_node_or_the_pod_is_rejected",
            // Limits, in containerd.
            "containerd::pods_run_restart_and_terminate_with_containerd",
            // Certificates, images, and thresholds for the disk and memory of the host. These do not depend on the
            // version of cgroups, and take a third of the time.
            "bootstrap::",
            "images::",
            "pressure::",
        ],
    ),
];

/// Runs tests of the node again with only cgroup v2 mounted, in a separate mount namespace. The kubelets run with
/// `--allow-missing-cgroup-controllers`.
fn test_on_cgroup_v2() -> anyhow::Result<()> {
    for (binary, excluded) in ON_CGROUP_V2 {
        ensure_tests_exist(binary, excluded)?;
    }
    let alone = "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"";
    let mut args = vec!["--mount", "--propagation", "private", "sh", "-c", alone, "sh", "cargo"];
    let selected = |(binary, excluded): &(&str, &[&str])| format!("(binary_id(knarr::{binary}){})", without(excluded));
    let selected: Vec<String> = ON_CGROUP_V2.iter().map(selected).collect();
    let filter = format!("package(cgroups) + package(container-shim) + {}", selected.join(" + "));
    let binaries: Vec<&str> = ON_CGROUP_V2.iter().flat_map(|(binary, _)| ["--test", binary]).collect();
    if succeeds("cargo", &["nextest", "--version"]) {
        args.extend(["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "--lib"]);
        args.extend(binaries);
        args.extend(["-E", &filter]);
    } else {
        args.extend(["test", "--workspace", "--locked"]);
        args.extend(binaries);
        args.push("--");
        args.extend(ON_CGROUP_V2.iter().flat_map(|(_, excluded)| *excluded).flat_map(|test| ["--skip", *test]));
    }
    exec("unshare", &args, &[("KNARR_TEST_CGROUP", "v2")])
}

/// Fails if a test or module (`name::`) that a run excludes does not exist. For nextest, a filter that matches nothing is
/// not an error.
fn ensure_tests_exist(binary: &str, names: &[&str]) -> anyhow::Result<()> {
    let args = ["test", "--workspace", "--locked", "--test", binary, "--", "--list", "--format", "terse"];
    let unknown = missing_tests(names, &output("cargo", &args)?);
    ensure!(unknown.is_empty(), "excluded tests of {binary} do not exist: {}", unknown.join(", "));
    Ok(())
}

/// Returns the end of a filter expression that excludes tests and modules (`name::`).
fn without(names: &[&str]) -> String {
    let exclude = |name: &&str| match name.ends_with("::") {
        true => format!(" - test(/^{name}/)"),
        false => format!(" - test(={name})"),
    };
    names.iter().map(exclude).collect()
}

/// Returns the tests and modules (`name::`) that are not in a list of tests in the terse format of libtest.
fn missing_tests<'a>(names: &[&'a str], listed: &str) -> Vec<&'a str> {
    let listed: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let exists = |name: &str| match name.ends_with("::") {
        true => listed.iter().any(|test| test.starts_with(name)),
        false => listed.contains(&name),
    };
    names.iter().filter(|name| !exists(name)).copied().collect()
}

/// Makes sure that the disk has enough space for the build. The target directory outlives clones, each of which leaves
/// its binaries there. When space runs low, the directory is deleted.
fn ensure_disk_space() -> anyhow::Result<()> {
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    let target = this.ancestors().nth(2).context("this executable is not in a target directory")?;
    let free_gib = || rustix::fs::statvfs(target).map(|disk| (disk.f_bavail * disk.f_frsize) >> 30);
    if free_gib()? >= FREE_GIB_MIN {
        return Ok(());
    }
    println!("{} GiB are free for {}, {FREE_GIB_MIN} are needed: running cargo clean", free_gib()?, target.display());
    cargo(&["clean"], &[])?;
    // The free space is queried on the target directory, which was deleted too.
    std::fs::create_dir_all(target).with_context(|| format!("cannot create {}", target.display()))?;
    ensure!(
        free_gib()? >= FREE_GIB_MIN,
        "{} GiB are free for {}, {FREE_GIB_MIN} are needed",
        free_gib()?,
        target.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::missing_tests;

    #[test]
    fn excluded_tests_that_were_renamed_are_found() {
        let listed = "life::pods_run: test\nlife::pods_run_again: test\nold::speed: benchmark\n";
        let check = |names: &[&str], expect: &[&str]| assert_eq!(missing_tests(names, listed), expect);
        check(&["life::pods_run", "life::pods_run_again", "life::"], &[]);
        check(
            &["life::pods", "pods_run", "lif::", "life::pods_run::"],
            &["life::pods", "pods_run", "lif::", "life::pods_run::"],
        );
        check(&["life::pods_run", "old::speed", "old::"], &["old::speed", "old::"]);
    }
}
