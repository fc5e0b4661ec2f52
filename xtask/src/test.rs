//! `cargo xtask test`: runs the tests of one area of the project.

use anyhow::{Context, ensure};

use crate::process::{cargo, succeeds};

/// Tests that belong together, for a developer who changes one component.
struct Area {
    name: &'static str,
    about: &'static str,
    /// A filterset of nextest. Packages are named as `package(NAME)`, test binaries of knarr as `binary(NAME)`.
    filter: &'static str,
}

/// All areas, sorted by name. A package may belong to several.
const AREAS: &[Area] = &[
    Area {
        name: "apiserver",
        about: "API server: requests, verbs, admission, watches, discovery, audit, priority and fairness",
        filter: "package(kube-apiserver) + package(api-registry) + package(admission) + package(auth) + package(audit) \
                 + package(encryption) + package(flowcontrol) + package(openapi) + package(component-base) + package(streaming) \
                 + (package(knarr) & binary(kube_apiserver))",
    },
    Area {
        name: "cli",
        about: "commands and flags of the binary, doctor, status and trace",
        filter: "package(diagnostics) + (package(knarr) & (kind(bin) + binary(closed_pipe) + binary(convert)))",
    },
    Area {
        name: "cluster",
        about: "`knarr up` end to end in network namespaces (needs root)",
        filter: "package(knarr) & binary(up)",
    },
    Area {
        name: "controllers",
        about: "controllers, their runtime, the client, the manifests directory and simulated nodes",
        filter: "package(controllers) + package(controller) + package(controller-runtime) + package(client) + package(hollow-node) \
                 + package(testkit) + package(test-requirements) + package(manifests)",
    },
    Area {
        name: "dashboard",
        about: "the dashboard's handler, and its pages in a browser (needs root, node and chromium)",
        filter: "package(dashboard) + (package(knarr) & binary(up) & test(dashboard))",
    },
    Area { name: "images", about: "image store, pulls and layers", filter: "package(image-store)" },
    Area {
        name: "kubectl",
        about: "kubectl: commands, printers and transcripts",
        filter: "package(kubectl) + (package(knarr) & binary(kubectl))",
    },
    Area {
        name: "kubelet",
        about: "kubelet and container runtime (needs root)",
        filter: "package(kubelet) + package(container-runtime) + package(cgroups) + package(container-shim) + package(node-api) \
                 + package(streaming) + package(sys) + (package(knarr) & (binary(kubelet) + binary(cri)))",
    },
    Area { name: "metrics", about: "resource metrics API", filter: "package(metrics-server)" },
    Area {
        name: "network",
        about: "pod network, Service proxy, network policies and DNS (needs root)",
        filter: "package(netlink) + package(pod-network) + package(kube-proxy) + package(dns) + package(ingress)",
    },
    Area {
        name: "objects",
        about: "API machinery, built-in kinds, CEL and the corpora of the fuzz targets",
        filter: "package(apimachinery) + package(api) + package(cel) + package(fuzzing)",
    },
    Area { name: "scheduler", about: "scheduler", filter: "package(scheduler) + package(kube-scheduler)" },
    Area {
        name: "security",
        about: "authentication, authorization, encryption at rest, audit and certificates",
        filter: "package(auth) + package(encryption) + package(audit) + package(pki)",
    },
    Area {
        name: "store",
        about: "store: Raft, key space, etcd's protocol, simulation and crash tests",
        filter: "package(store) + package(mvcc) + package(consensus) + package(sim) \
                 + (package(knarr) & binary(store_chaos))",
    },
    Area { name: "xtask", about: "checks and automation of the project", filter: "package(xtask)" },
];

/// Runs the tests of the area that the first argument names and passes further arguments to `cargo nextest run`.
/// Without an argument, lists the areas.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let Some((name, rest)) = args.split_first() else {
        println!("cargo xtask test AREA [arguments of cargo nextest run]\n\n{}", list());
        return Ok(());
    };
    let area = AREAS.iter().find(|area| area.name == name);
    let area = area.with_context(|| format!("unknown area {name:?}; choose one of:\n{}", list()))?;
    ensure!(
        succeeds("cargo", &["nextest", "--version"]),
        "cargo-nextest is not installed; run `cargo install --locked cargo-nextest`"
    );
    // The whole workspace is selected, as in `cargo xtask ci`: a smaller selection has other features of dependencies
    // and compiles them again.
    let mut command = vec!["nextest", "run", "--workspace", "--locked", "-E", area.filter];
    command.extend(rest.iter().map(String::as_str));
    cargo(&command, &[])
}

/// Returns one line per area.
fn list() -> String {
    AREAS.iter().map(|area| format!("  {:<12} {}\n", area.name, area.about)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::root;

    /// Returns the arguments of all predicates `OPERATOR(…)` of all filters.
    fn named(operator: &str) -> BTreeSet<&'static str> {
        let start = format!("{operator}(");
        let filters = AREAS.iter().flat_map(|area| area.filter.split(['+', '&', ' ']));
        filters
            .filter_map(|term| term.trim_start_matches('(').strip_prefix(start.as_str()))
            .map(|name| name.trim_end_matches(')'))
            .collect()
    }

    fn packages() -> BTreeSet<String> {
        let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
        let directories = crates.chain([root().join("xtask")]);
        let manifests = directories.filter_map(|path| fs::read_to_string(path.join("Cargo.toml")).ok());
        let name = |manifest: String| {
            let line = manifest.lines().find_map(|line| line.strip_prefix("name = \"")).unwrap();
            line.trim_end_matches('"').to_owned()
        };
        manifests.map(name).collect()
    }

    #[test]
    fn areas_are_unique_and_sorted() {
        assert!(AREAS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn every_package_belongs_to_an_area_and_every_named_package_exists() {
        let named: BTreeSet<String> = named("package").into_iter().map(str::to_owned).collect();
        assert_eq!(named, packages());
    }

    #[test]
    fn every_test_binary_of_knarr_belongs_to_an_area() {
        let tests = fs::read_dir(root().join("crates/knarr/tests")).unwrap().map(|entry| entry.unwrap().path());
        let binaries: BTreeSet<String> = tests
            .filter(|path| path.is_file() || path.join("main.rs").is_file())
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let named: BTreeSet<String> = named("binary").into_iter().map(str::to_owned).collect();
        assert_eq!(named, binaries);
    }

    #[test]
    fn unknown_area_is_an_error_that_lists_the_areas() {
        let error = run(&["nonsense".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("unknown area \"nonsense\"") && error.contains("  scheduler "), "{error}");
    }
}
