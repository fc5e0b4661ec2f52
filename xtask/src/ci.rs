//! `cargo xtask ci`: the checks that every change must pass, fastest feedback first.

use std::time::Instant;

use anyhow::{Context, ensure};

use crate::process::{Package, cargo, exec, install_missing, succeeds};
use crate::{book, dashboard, licenses, tidy};

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
    ("dig", "dnsutils"),
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

/// Runs all steps and stops at the first failure.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    ensure!(args.is_empty(), "ci takes no arguments");
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
        ("test over containerd", test_over_containerd),
        ("test on cgroup v2", test_on_cgroup_v2),
        ("doctest", || cargo(&["test", "--workspace", "--locked", "--doc"], &[])),
    ];
    let mut times = Vec::new();
    for (name, step) in steps {
        println!("── {name}");
        let started = Instant::now();
        step().with_context(|| format!("step {name} failed"))?;
        times.push(format!("{name} {:.0} s", started.elapsed().as_secs_f64()));
    }
    println!("all steps passed: {}", times.join(", "));
    Ok(())
}

fn test() -> anyhow::Result<()> {
    if succeeds("cargo", &["nextest", "--version"]) {
        cargo(&["nextest", "run", "--workspace", "--locked", "--no-fail-fast"], &[])
    } else {
        println!("cargo-nextest is not installed: using cargo test");
        cargo(&["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests"], &[])
    }
}

/// Runs the kubelet's tests again, with Debian's containerd and runc instead of the built-in runtime.
fn test_over_containerd() -> anyhow::Result<()> {
    let containerd = [("KNARR_TEST_RUNTIME", "containerd")];
    if succeeds("cargo", &["nextest", "--version"]) {
        let args = ["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "-E", "binary(kubelet)"];
        cargo(&args, &containerd)
    } else {
        cargo(&["test", "--workspace", "--locked", "--test", "kubelet"], &containerd)
    }
}

/// Tests of the runtime that need CPU and memory controllers, which a host with cgroup v1 controllers cannot provide on
/// v2.
const NEED_CONTROLLERS: [&str; 2] = [
    "life::resource_limits_apply_and_are_updated_and_stats_report_usage",
    "peers::containerd_behaves_like_the_built_in_runtime",
];

/// Runs the runtime's tests again with only cgroup v2 mounted, in a separate mount namespace. The kubelet's tests are
/// excluded: the kubelet sets the CPU weight of every pod, which needs the controller.
fn test_on_cgroup_v2() -> anyhow::Result<()> {
    let alone = "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"";
    let mut args = vec!["--mount", "--propagation", "private", "sh", "-c", alone, "sh", "cargo"];
    let filter = format!(
        "package(cgroups) + package(container-shim) + binary(cri) - {}",
        NEED_CONTROLLERS.map(|test| format!("test(={test})")).join(" - ")
    );
    if succeeds("cargo", &["nextest", "--version"]) {
        args.extend([
            "nextest",
            "run",
            "--workspace",
            "--locked",
            "--no-fail-fast",
            "--lib",
            "--test",
            "cri",
            "-E",
            &filter,
        ]);
    } else {
        args.extend(["test", "--workspace", "--locked", "--test", "cri", "--"]);
        args.extend(NEED_CONTROLLERS.iter().flat_map(|test| ["--skip", *test]));
    }
    exec("unshare", &args, &[("KNARR_TEST_CGROUP", "v2")])
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
