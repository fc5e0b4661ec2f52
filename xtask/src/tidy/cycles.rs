//! The modules of a crate form layers: import cycles between top-level modules are counted per crate, and counts may only fall.
//!
//! The check reads source text, not types: a module imports another one if its code, without comments and tests, names `crate::other`,
//! or `super::other` in a file directly below `src`.

use std::collections::{BTreeMap, BTreeSet};

use super::Tree;

/// Modules that are part of an import cycle, per crate. Crates that are not listed have none. A smaller number is a finding too: the
/// list then has to shrink with it.
const IN_CYCLES: &[(&str, usize)] =
    &[("api", 5), ("apimachinery", 12), ("cel", 9), ("knarr", 5), ("kubelet", 16), ("scheduler", 12)];

/// The modules that each module imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(tree: &Tree, findings: &mut Vec<String>) {
    for (name, graph) in graphs(tree) {
        let allowed = IN_CYCLES.iter().find(|(listed, _)| *listed == name).map_or(0, |(_, count)| *count);
        let members: Vec<String> = cycles(&graph).into_iter().flatten().collect();
        if members.len() != allowed {
            findings.push(format!(
                "crates/{name}: {} modules import each other in cycles, and IN_CYCLES lists {allowed}: {}",
                members.len(),
                members.join(", ")
            ));
        }
    }
}

fn graphs(tree: &Tree) -> BTreeMap<String, Graph> {
    let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
    let sources = || tree.rust().filter_map(|(path, text)| Some((source(path)?, text)));
    for (file, _) in sources().filter(|(file, _)| !file.module.is_empty()) {
        graphs.entry(file.name.to_owned()).or_default().entry(file.module.to_owned()).or_default();
    }
    for (file, text) in sources().filter(|(file, _)| !file.module.is_empty()) {
        let Some(graph) = graphs.get_mut(file.name) else { continue };
        let known: BTreeSet<String> = graph.keys().cloned().collect();
        let imported =
            imports(text, file.is_top).into_iter().filter(|name| known.contains(name) && name != file.module);
        graph.entry(file.module.to_owned()).or_default().extend(imported);
    }
    graphs
}

/// A source file of a crate. `module` is its top-level module, empty for the root of the crate.
struct Source<'a> {
    name: &'a str,
    module: &'a str,
    is_top: bool,
}

fn source(path: &str) -> Option<Source<'_>> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    if file.split('/').any(|part| matches!(part, "tests" | "tests.rs")) {
        return None;
    }
    let (first, is_top) = match file.split_once('/') {
        Some((first, _)) => (first, false),
        None => (file.strip_suffix(".rs")?, true),
    };
    Some(Source { name, module: if matches!(first, "lib" | "main" | "bin") { "" } else { first }, is_top })
}

/// Returns the names that follow `crate::` (and `super::` in a file at the top) in the product code of a file.
fn imports(text: &str, is_top: bool) -> BTreeSet<String> {
    let product = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let code: String =
        product.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for prefix in ["crate::", "super::"].iter().take(if is_top { 2 } else { 1 }) {
        for (at, _) in code.match_indices(prefix) {
            let preceded = code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
            if !preceded {
                found.extend(names(&code[at + prefix.len()..]));
            }
        }
    }
    found
}

/// Returns the first segment of a path, or those of each branch of `{a::b, c}`.
fn names(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![word(path)] };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(word(group[start..at].trim_start()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(word(group[start..at].trim_start()));
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Returns the sets of modules that reach each other, of two modules or more.
fn cycles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for module in graph.keys() {
        let mutual = |other: &&&String| reach[module].contains(**other) && reach[**other].contains(module);
        let members: BTreeSet<String> = graph.keys().filter(|other| mutual(&other)).cloned().collect();
        if members.len() > 1 && !found.contains(&members) {
            found.push(members);
        }
    }
    found
}

fn reachable<'a>(graph: &'a Graph, from: &'a String) -> BTreeSet<&'a String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(graph.get(module).into_iter().flatten().filter(|other| seen.insert(*other)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| (format!("crates/x/src/{path}"), (*text).to_owned())).collect();
        let tree = Tree { root: ".".into(), files };
        graphs(&tree).values().flat_map(cycles).flatten().collect()
    }

    #[test]
    fn modules_that_import_each_other_are_found() {
        assert_eq!(
            members(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::{c::C, a};"), ("c.rs", "")]),
            ["a", "b"]
        );
        assert_eq!(members(&[("a.rs", "use super::b;"), ("b/deep.rs", "fn f() { crate::a::g() }")]), ["a", "b"]);
    }

    #[test]
    fn layers_tests_and_comments_are_not_cycles() {
        assert_eq!(
            members(&[("a.rs", "use crate::b::B;"), ("b.rs", "// crate::a\n"), ("lib.rs", "use crate::a;")]),
            [""; 0]
        );
        let test = "\n#[cfg(test)]\nmod tests { use crate::a; }";
        assert_eq!(members(&[("a.rs", "use crate::b::B;"), ("b.rs", test), ("b/tests.rs", "use crate::a;")]), [""; 0]);
        // A file below a module names its parent by `super`.
        assert_eq!(members(&[("a.rs", "use crate::b::B;"), ("b/deep.rs", "use super::a;")]), [""; 0]);
    }
}
