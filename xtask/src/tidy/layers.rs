//! Checks of crate layers: a crate depends only on lower layers, and pure crates have no impure dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// A row of the architecture.
struct Layer {
    name: &'static str,
    crates: &'static [&'static str],
}

/// Layers of the architecture: a crate may use only crates of rows above its own. ARCHITECTURE.md shows this table.
const LAYERS: &[Layer] = &[
    Layer { name: "base", crates: &["apimachinery", "sys", "node-api", "streaming"] },
    Layer { name: "mechanism", crates: &["cel", "mvcc", "consensus", "cgroups", "netlink"] },
    Layer { name: "objects", crates: &["api", "image-store", "container-shim", "pod-network"] },
    Layer {
        name: "decisions",
        crates: &[
            "auth",
            "openapi",
            "flowcontrol",
            "audit",
            "encryption",
            "diagnostics",
            "controller",
            "scheduler",
            "client",
            "store",
            "pki",
        ],
    },
    Layer {
        name: "verbs, loops",
        crates: &["api-registry", "controllers", "component-base", "hollow-node", "kubectl"],
    },
    Layer { name: "runners", crates: &["admission", "controller-runtime"] },
    Layer {
        name: "components",
        crates: &[
            "kube-apiserver",
            "kube-scheduler",
            "container-runtime",
            "kubelet",
            "kube-proxy",
            "dns",
            "metrics-server",
            "ingress",
            "manifests",
            "dashboard",
        ],
    },
    Layer { name: "test tools", crates: &["testkit", "test-requirements", "sim", "fuzzing"] },
    Layer { name: "binaries", crates: &["knarr", "xtask"] },
];

/// Pure crates: they decide and have no side effects.
pub(super) const DECIDING: &[&str] = &[
    "apimachinery",
    "api",
    "cel",
    "mvcc",
    "consensus",
    "auth",
    "openapi",
    "controller",
    "admission",
    "api-registry",
    "admission",
    "controllers",
    "scheduler",
    "flowcontrol",
    "audit",
    "encryption",
    "diagnostics",
];

/// Crates that pure crates must not depend on, also indirectly: async runtimes, sockets, randomness.
const IMPURE: &[&str] = &["tokio", "async-std", "smol", "mio", "hyper", "reqwest", "getrandom", "rand"];

/// Exceptions: crate, dependency and reason.
const EXCUSED: &[(&str, &str, &str)] = &[
    ("consensus", "rand", "the raft crate draws election timeouts from it; ours are set from outside"),
    ("consensus", "getrandom", "comes with rand"),
];

/// Crates that only the listed crates may use.
const RESERVED: &[(&str, &[&str])] = &[("store", &["kube-apiserver", "fuzzing", "knarr", "testkit", "sim"])];

/// The clippy.toml of every pure crate: forbids clocks, environment variables, threads and unordered maps.
const CLIPPY: &str = r#"# Written by `cargo xtask tidy --fix` for every crate that decides: same input, same decision.
allow-unwrap-in-tests = true
allow-dbg-in-tests = true
too-many-lines-threshold = 80
disallowed-types = [
    { path = "std::time::Instant", reason = "time is an argument" },
    { path = "std::time::SystemTime", reason = "time is an argument" },
]
disallowed-methods = [
    { path = "std::collections::HashMap::drain", reason = "the order is random" },
    { path = "std::collections::HashMap::into_keys", reason = "the order is random" },
    { path = "std::collections::HashMap::into_values", reason = "the order is random" },
    { path = "std::collections::HashMap::iter", reason = "the order is random" },
    { path = "std::collections::HashMap::iter_mut", reason = "the order is random" },
    { path = "std::collections::HashMap::keys", reason = "the order is random" },
    { path = "std::collections::HashMap::values", reason = "the order is random" },
    { path = "std::collections::HashMap::values_mut", reason = "the order is random" },
    { path = "std::collections::HashSet::drain", reason = "the order is random" },
    { path = "std::collections::HashSet::iter", reason = "the order is random" },
    { path = "std::env::var", reason = "configuration is an argument" },
    { path = "std::env::var_os", reason = "configuration is an argument" },
    { path = "std::thread::sleep", reason = "wake-up times are results" },
    { path = "std::thread::spawn", reason = "decisions are not spawned" },
]
"#;

/// The workspace's packages with their direct normal dependencies.
struct Graph {
    members: BTreeSet<String>,
    uses: BTreeMap<String, BTreeSet<String>>,
}

pub(super) fn check(tree: &Tree, findings: &mut Vec<String>) -> anyhow::Result<()> {
    let graph = Graph::read(tree)?;
    for member in &graph.members {
        let Some(own) = row(member) else {
            findings.push(format!("crates/{member}: not listed in LAYERS"));
            continue;
        };
        for used in graph.uses[member].iter().filter(|used| graph.members.contains(*used)) {
            if row(used) >= Some(own) {
                findings.push(format!("crates/{member}: uses {used}, which is not in a lower layer"));
            }
        }
        for (reserved, users) in RESERVED {
            if graph.uses[member].contains(*reserved) && !users.contains(&member.as_str()) {
                findings.push(format!("crates/{member}: only {users:?} may use {reserved}"));
            }
        }
    }
    let document = tree.files.get(ARCHITECTURE).map(String::as_str).unwrap_or_default();
    if with_picture(document).as_deref() != Some(document) {
        findings.push(format!("{ARCHITECTURE}: the picture of the layers is outdated; run `cargo xtask tidy --fix`"));
    }
    for crate_name in DECIDING.iter().filter(|name| graph.members.contains(**name)) {
        let reached = graph.closure(crate_name);
        for impure in IMPURE.iter().filter(|impure| reached.contains(**impure)) {
            if !EXCUSED.iter().any(|(who, what, _)| who == crate_name && what == impure) {
                findings.push(format!("crates/{crate_name}: is a pure crate but depends on {impure}"));
            }
        }
        if tree.files.get(&clippy_path(crate_name)).map(String::as_str) != Some(CLIPPY) {
            findings.push(format!("{}: outdated; run `cargo xtask tidy --fix`", clippy_path(crate_name)));
        }
    }
    Ok(())
}

/// Writes the clippy.toml of every pure crate.
pub(super) fn write_clippy_tables(tree: &mut Tree) -> anyhow::Result<()> {
    for crate_name in DECIDING {
        if tree.files.contains_key(&format!("crates/{crate_name}/Cargo.toml")) {
            tree.write(&clippy_path(crate_name), CLIPPY.to_owned())?;
        }
    }
    Ok(())
}

fn clippy_path(crate_name: &str) -> String {
    format!("crates/{crate_name}/clippy.toml")
}

fn row(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.crates.contains(&name))
}

/// Returns the picture of the layers, one line each. Pure crates are marked.
fn picture() -> String {
    let width = LAYERS.iter().map(|layer| layer.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for layer in LAYERS {
        let crates: Vec<String> = layer
            .crates
            .iter()
            .map(|name| if DECIDING.contains(name) { format!("{name}*") } else { (*name).to_owned() })
            .collect();
        text += &format!("{:<width$}  {}\n", layer.name, crates.join("  "));
    }
    text
}

/// Returns ARCHITECTURE.md with the picture of the layers in the first `text` block of its section.
fn with_picture(document: &str) -> Option<String> {
    let section = document.find("## Layers\n")?;
    let start = section + document[section..].find("```text\n")? + "```text\n".len();
    let end = start + document[start..].find("```")?;
    Some(format!("{}{}{}", &document[..start], picture(), &document[end..]))
}

/// Writes the picture of the layers into ARCHITECTURE.md.
pub(super) fn write_picture(tree: &mut Tree) -> anyhow::Result<()> {
    let document = tree.files.get(ARCHITECTURE).and_then(|text| with_picture(text));
    tree.write(ARCHITECTURE, document.context("ARCHITECTURE.md has no section \"Layers\" with a text block")?)
}

impl Graph {
    fn read(tree: &Tree) -> anyhow::Result<Self> {
        let output = Command::new("cargo")
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(&tree.root)
            .output()
            .context("cannot start cargo metadata")?;
        ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let strings = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let names: BTreeMap<&str, &str> = metadata["packages"]
            .as_array()
            .context("cargo metadata lists no packages")?
            .iter()
            .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
            .collect();
        let members = strings(&metadata["workspace_members"]).iter().map(|id| names[id.as_str()].to_owned()).collect();
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in metadata["resolve"]["nodes"].as_array().context("cargo metadata resolved nothing")? {
            let from = node["id"].as_str().and_then(|id| names.get(id)).context("a node without a package")?;
            let used = node["deps"].as_array().into_iter().flatten().filter(|dep| is_ordinary(dep));
            let used = used.filter_map(|dep| names.get(dep["pkg"].as_str()?)).map(|name| (*name).to_owned());
            uses.entry((*from).to_owned()).or_default().extend(used);
        }
        Ok(Self { members, uses })
    }

    fn closure(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(name) = open.pop() {
            for used in &self.uses[name] {
                if reached.insert(used.as_str()) {
                    open.push(used);
                }
            }
        }
        reached
    }
}

/// Whether a dependency is in the product: dev and build dependencies are not.
fn is_ordinary(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}
