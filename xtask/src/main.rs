//! Automation of the project: `cargo xtask ci` runs all checks.
//!
//! # Invariants
//!
//! - A crate uses only crates of lower layers, and a pure crate reaches no runtime, socket, clock or randomness.
//!   *Enforced by* `cargo xtask tidy`.
//! - A translation has the headings, tables and commands of its original. *Enforced by* `cargo xtask tidy`.
//! - Every public CVE that applies to this project has a test. *Enforced by* `cargo xtask tidy`.

mod apps;
mod bench;
mod book;
mod bootstrap;
mod catalogue;
mod ci;
mod compare;
mod dashboard;
mod fuzz;
mod licenses;
mod process;
mod sim;
mod test;
mod tidy;
mod vm;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A command of `cargo xtask`.
struct Task {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> anyhow::Result<()>,
}

const TASKS: &[Task] = &[
    Task {
        name: "apps",
        about: "run Debian's databases and web servers on a cluster of three nodes, under kills, drains and load",
        run: apps::run,
    },
    Task {
        name: "bench",
        about: "benchmark a release build: api, controllers, net, node (against containerd), scheduler, store (against etcd), up",
        run: bench::run,
    },
    Task { name: "book", about: "check the links of the documentation and render it to target/book", run: book::run },
    Task {
        name: "bootstrap",
        about: "write the roles, bindings, flow schemas and priority levels of a fresh cluster into the tree, from [folder]",
        run: bootstrap::run,
    },
    Task {
        name: "catalogue",
        about: "write the facts about Kubernetes' API types into the api crate, from [types.json]",
        run: catalogue::run,
    },
    Task {
        name: "ci",
        about: "format, lint, tidy, test and document: the checks that every change must pass: [step…]",
        run: ci::run,
    },
    Task {
        name: "compare",
        about: "compare with recordings of upstream's API server, where they are: [arguments of cargo nextest run]",
        run: compare::run,
    },
    Task {
        name: "dashboard",
        about: "build the dashboard's user interface into crates/dashboard/assets; --check compares it, --test runs its unit tests",
        run: dashboard::run,
    },
    Task { name: "fuzz", about: "run the fuzz targets, each for a minute: [--seconds N] [target…]", run: fuzz::run },
    Task {
        name: "licenses",
        about: "check dependencies against deny.toml and write THIRD_PARTY_LICENSES; --check compares it",
        run: licenses::run,
    },
    Task {
        name: "sim",
        about: "run the simulated store from many seeds: [--start SEED] [--seeds COUNT]",
        run: sim::run,
    },
    Task {
        name: "test",
        about: "run the tests of one area: AREA [arguments of cargo nextest run]; without an argument, list the areas",
        run: test::run,
    },
    Task {
        name: "tidy",
        about: "check project rules that the compiler does not check; --fix rewrites generated files",
        run: tidy::run,
    },
    Task {
        name: "vm",
        about: "boot Debian VMs with qemu and test clusters on them: node, install, reboot, join, ha or all [--program FILE] [--fresh]",
        run: vm::run,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> anyhow::Result<()> {
    let (name, rest) = args.split_first().map_or(("help", [].as_slice()), |(name, rest)| (name.as_str(), rest));
    if let Some(task) = TASKS.iter().find(|task| task.name == name) {
        return (task.run)(rest);
    }
    println!("cargo xtask <task>\n");
    for task in TASKS {
        println!("  {:<10} {}", task.name, task.about);
    }
    anyhow::ensure!(matches!(name, "help" | "--help" | "-h"), "unknown task {name:?}");
    Ok(())
}

/// Returns the root directory of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace of the build exists")
}
