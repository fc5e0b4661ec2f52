//! `cargo xtask bootstrap [folder]`: writes the objects of a fresh cluster into the source tree.
//!
//! The source is a directory of JSON files with the objects of a fresh API server. The products are text files; their
//! grammar is described at their top. `auth::rbac::bootstrap` reads the roles and bindings, `flowcontrol::bootstrap`
//! the flow schemas and priority levels.

mod flows;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::root;

const HEADER: &str = "\
# The roles and bindings of a fresh cluster of Kubernetes 1.36.4. Written by `cargo xtask bootstrap`: do not edit.
#
# role [NAMESPACE/]NAME [part-of LABEL …] [sum-of LABEL …]   a Role, or a ClusterRole if it has no namespace; its rules follow
# \\tVERBS GROUPS RESOURCES [NAMES]                           `-` for the core group
# \\tVERBS PATHS                                              paths start with `/`
# bind [NAMESPACE/]NAME ROLEKIND ROLE [SUBJECT …]            a subject is User=NAME, Group=NAME or ServiceAccount=NAMESPACE/NAME
";

const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// Reads the objects, and writes the policies into the `auth` and `flowcontrol` crates.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let source = args.first().map_or_else(|| root().join("../shared/reference/bootstrap"), PathBuf::from);
    let mut text = HEADER.to_owned();
    for file in ["clusterroles", "roles"] {
        read(&source, file)?.iter().for_each(|role| write_role(&mut text, role));
    }
    for file in ["clusterrolebindings", "rolebindings"] {
        read(&source, file)?.iter().for_each(|binding| write_binding(&mut text, binding));
    }
    write_text("crates/auth/src/rbac/bootstrap.txt", &text)?;
    let flows = flows::text(&read(&source, "prioritylevelconfigurations")?, &read(&source, "flowschemas")?);
    write_text("crates/flowcontrol/src/bootstrap.txt", &flows)
}

fn write_text(path: &str, text: &str) -> anyhow::Result<()> {
    let target = root().join(path);
    std::fs::write(&target, text).with_context(|| format!("cannot write {}", target.display()))?;
    println!("{}: {} lines, {} bytes", target.display(), text.lines().count(), text.len());
    Ok(())
}

fn read(dir: &Path, name: &str) -> anyhow::Result<Vec<Value>> {
    let path = dir.join(name).with_extension("json");
    let json = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&json).with_context(|| format!("{} is not a list of objects", path.display()))
}

fn write_role(text: &mut String, role: &Value) {
    write!(text, "role {}", full_name(&role["metadata"])).expect("writing to a String cannot fail");
    let labels = role["metadata"]["labels"].as_object().into_iter().flatten();
    for label in labels.filter_map(|(key, _)| key.strip_prefix(AGGREGATE)) {
        write!(text, " part-of {label}").expect("writing to a String cannot fail");
    }
    for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        for label in labels.filter_map(|(key, _)| key.strip_prefix(AGGREGATE)) {
            write!(text, " sum-of {label}").expect("writing to a String cannot fail");
        }
    }
    text.push('\n');
    for rule in role["rules"].as_array().into_iter().flatten() {
        let columns = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];
        let fields = columns.iter().filter(|column| rule[**column].is_array()).map(|column| join_list(&rule[*column]));
        writeln!(text, "\t{}", fields.collect::<Vec<_>>().join(" ")).expect("writing to a String cannot fail");
    }
}

fn write_binding(text: &mut String, binding: &Value) {
    let role = &binding["roleRef"];
    write!(text, "bind {} {} {}", full_name(&binding["metadata"]), string(&role["kind"]), string(&role["name"]))
        .expect("writing to a String cannot fail");
    for subject in binding["subjects"].as_array().into_iter().flatten() {
        write!(text, " {}={}", string(&subject["kind"]), full_name(subject)).expect("writing to a String cannot fail");
    }
    text.push('\n');
}

fn full_name(metadata: &Value) -> String {
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", string(&metadata["name"])),
        None => string(&metadata["name"]).to_owned(),
    }
}

fn join_list(list: &Value) -> String {
    let items = list.as_array().into_iter().flatten().map(string);
    items.map(|word| if word.is_empty() { "-" } else { word }).collect::<Vec<_>>().join(",")
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
