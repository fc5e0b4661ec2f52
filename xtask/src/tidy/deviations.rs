//! Check of `docs/deviations.md`: it lists exactly the `DEVIATION:` comments.

use super::Tree;

const PATH: &str = "docs/deviations.md";
const BEGIN: &str = "<!-- begin: written by `cargo xtask tidy --fix` -->";
const END: &str = "<!-- end -->";
const MARK: &str = "// DEVIATION: ";

pub(super) fn check(tree: &Tree, findings: &mut Vec<String>) {
    let Some(text) = tree.files.get(PATH) else {
        findings.push(format!("{PATH}: missing; run `cargo xtask tidy --fix`"));
        return;
    };
    if parts(text).map(|(_, listed, _)| listed) != Some(&list(tree)) {
        findings.push(format!("{PATH}: outdated; run `cargo xtask tidy --fix`"));
    }
}

/// Rewrites the list between the two marks and keeps the text around it.
pub(super) fn write(tree: &mut Tree) -> anyhow::Result<()> {
    let old = tree.files.get(PATH).cloned().unwrap_or_else(|| {
        format!("# Where Knarr differs from Kubernetes\n\nMarked in the code where it happens.\n\n{BEGIN}{END}\n")
    });
    let (before, _, after) = parts(&old).ok_or_else(|| anyhow::anyhow!("{PATH} has no begin and end marks"))?;
    let new = format!("{before}{BEGIN}{}{END}{after}", list(tree));
    if new != old || !tree.files.contains_key(PATH) {
        tree.write(PATH, new)?;
    }
    Ok(())
}

fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (listed, after) = rest.split_once(END)?;
    Some((before, listed, after))
}

fn list(tree: &Tree) -> String {
    let mut list = String::from("\n");
    for (path, text) in tree.rust() {
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(first) = line.trim_start().strip_prefix(MARK) else { continue };
            let mut sentence = first.trim().to_owned();
            while let Some(more) = lines.peek().and_then(|next| next.trim_start().strip_prefix("// ")) {
                sentence.push(' ');
                sentence.push_str(more.trim());
                lines.next();
            }
            list.push_str(&format!("- {sentence} (`{path}`)\n"));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_is_listed_once_with_all_its_lines() {
        let source = format!("//! X.\nfn a() {{\n    {MARK}one thing\n    // and another.\n    b();\n}}\n");
        let tree = Tree { root: ".".into(), files: [("crates/a/src/lib.rs".to_owned(), source)].into() };
        assert_eq!(list(&tree), "\n- one thing and another. (`crates/a/src/lib.rs`)\n");
    }
}
