//! `cargo xtask apps`: Debian's databases and web servers on a cluster of three nodes, under failures and load.
//!
//! The steps are shell scripts that run in the cluster's network namespace and exit with 0 if their claim holds. The
//! container image is built from Debian's packages; its root file system is cached below the target directory.

mod cluster;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::process::{self, Package};
use cluster::Cluster;

const PACKAGES: &[Package] = &[
    ("ip", "iproute2"),
    ("kubectl", "kubernetes-client"),
    ("mmdebstrap", "mmdebstrap"),
    ("nsenter", "util-linux"),
    ("openssl", "openssl"),
];

/// Packages of the container image.
const IMAGE_PACKAGES: &str =
    "mariadb-server,nginx-light,postgresql,procps,python3-psycopg2,python3-pymysql,python3-redis,redis-server";

/// Functions for all scripts.
const PRELUDE: &str = include_str!("apps/prelude.sh");

/// Files in the working directory of the scripts.
const FILES: &[(&str, &str)] = &[
    ("databases.yaml", include_str!("apps/databases.yaml")),
    ("ledger.py", include_str!("apps/ledger.py")),
    ("load.py", include_str!("apps/load.py")),
    ("shop.py", include_str!("apps/shop.py")),
    ("shop.yaml", include_str!("apps/shop.yaml")),
    ("web.yaml", include_str!("apps/web.yaml")),
];

/// A claim about the cluster and the script that checks it.
struct Step {
    claim: &'static str,
    script: &'static str,
    limit_seconds: u64,
    /// Whether later steps depend on this one.
    is_required: bool,
}

const STEPS: &[Step] = &[
    Step {
        claim: "PostgreSQL, MariaDB and Redis start as non-root users on volumes of the default StorageClass",
        script: include_str!("apps/databases.sh"),
        limit_seconds: 240,
        is_required: true,
    },
    Step {
        claim: "a database whose process is killed loses no acknowledged write",
        script: include_str!("apps/kill.sh"),
        limit_seconds: 240,
        is_required: false,
    },
    Step {
        claim: "a database whose node is drained loses no acknowledged write",
        script: include_str!("apps/drain.sh"),
        limit_seconds: 300,
        is_required: false,
    },
    Step {
        claim: "a database loses no acknowledged write when every process of the cluster and every pod is killed",
        script: include_str!("apps/crash.sh"),
        limit_seconds: 300,
        is_required: false,
    },
    Step {
        claim: "a non-root nginx with a read-only root serves through rollouts, scaling and a drain without a lost request",
        script: include_str!("apps/web.sh"),
        limit_seconds: 300,
        is_required: false,
    },
    Step {
        claim: "a chart-like application over both databases answers, and its hooks, roles and policies hold",
        script: include_str!("apps/shop.sh"),
        limit_seconds: 240,
        is_required: false,
    },
    Step {
        claim: "nothing remains of deleted namespaces: no pod, finalizer, claim, volume, container or mount",
        script: include_str!("apps/leftovers.sh"),
        limit_seconds: 240,
        is_required: false,
    },
];

/// Runs every step on a new cluster, removes the cluster, and fails if a step failed or the cluster left something
/// behind.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let program = match args {
        [] => {
            process::cargo(&["build", "--locked", "--package", "knarr"], &[])?;
            process::target_dir()?.join("debug/knarr")
        }
        [flag, path] if flag == "--program" => PathBuf::from(path),
        _ => anyhow::bail!("usage: cargo xtask apps [--program KNARR]"),
    };
    process::install_missing(PACKAGES)?;
    let image_root = image_root(&process::target_dir()?.join("apps"))?;
    let cluster = Cluster::start(&program, &image_root)?;
    for (name, content) in FILES {
        fs::write(cluster.scripts().join(name), content).with_context(|| format!("cannot write {name}"))?;
    }
    let failures = run_steps(&cluster)?;
    cluster.stop()?;
    ensure!(failures == 0, "{failures} of {} steps failed", STEPS.len());
    println!("{} steps passed", STEPS.len());
    Ok(())
}

fn run_steps(cluster: &Cluster) -> anyhow::Result<usize> {
    let mut failures = 0;
    for step in STEPS {
        let started = Instant::now();
        let result = cluster.run_script(&format!("{PRELUDE}\n{}", step.script), step.limit_seconds)?;
        let seconds = started.elapsed().as_secs_f64();
        println!("{}  {} ({seconds:.0} s)", if result.is_success { "ok  " } else { "FAIL" }, step.claim);
        for line in result.output.lines() {
            println!("      {line}");
        }
        if !result.is_success {
            failures += 1;
            if step.is_required {
                println!("      the remaining steps need this one");
                break;
            }
        }
    }
    Ok(failures)
}

/// Returns the root file system of the container image, built by mmdebstrap if the cache has none for these packages.
fn image_root(cache: &Path) -> anyhow::Result<PathBuf> {
    let (path, stamp) = (cache.join("root"), cache.join("packages"));
    if fs::read_to_string(&stamp).is_ok_and(|packages| packages == IMAGE_PACKAGES) {
        return Ok(path);
    }
    if path.exists() {
        fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let target = path.to_str().context("the target directory is not UTF-8")?;
    let include = format!("--include={IMAGE_PACKAGES}");
    process::exec("mmdebstrap", &["--variant=essential", "--mode=root", "--quiet", &include, "bookworm", target], &[])?;
    // Documentation and package caches are a third of the image.
    for dir in ["usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists"] {
        fs::remove_dir_all(path.join(dir)).ok();
    }
    fs::write(&stamp, IMAGE_PACKAGES)?;
    Ok(path)
}
