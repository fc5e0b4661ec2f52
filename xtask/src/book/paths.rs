//! Paths of links: all are relative to the root of the repository, with `/` as separator.

/// Resolves the target of a link in `file`. Returns `None` if it is outside the repository.
pub(super) fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the link from one file to another.
pub(super) fn relative(from: &str, to: &str) -> String {
    let (from, to): (Vec<&str>, Vec<&str>) = (from.split('/').collect(), to.split('/').collect());
    let dirs = &from[..from.len() - 1];
    let common = dirs.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", dirs.len() - common);
    let path: Vec<&str> = up.chain(to[common..].iter().copied()).collect();
    if path.is_empty() { ".".to_owned() } else { path.join("/") }
}

/// Returns the path of the page that is made from a Markdown file.
pub(super) fn page(markdown: &str) -> String {
    format!("{}.html", markdown.strip_suffix(".md").unwrap_or(markdown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_from_their_file() {
        for (file, target, expect) in [
            ("README.md", "docs/a.md", Some("docs/a.md")),
            ("docs/a.md", "../README.md", Some("README.md")),
            ("docs/a/b.md", "./c.md", Some("docs/a/c.md")),
            ("docs/a.md", "b/", Some("docs/b")),
            ("docs/a.md", "../../x", None),
        ] {
            assert_eq!(resolve(file, target).as_deref(), expect, "{file} {target}");
        }
    }

    #[test]
    fn relative_links_lead_from_page_to_page() {
        for (from, to, expect) in [
            ("a.html", "b.html", "b.html"),
            ("docs/a.html", "README.html", "../README.html"),
            ("README.html", "docs/x/a.html", "docs/x/a.html"),
            ("docs/x/a.html", "docs/y/b.html", "../y/b.html"),
        ] {
            assert_eq!(relative(from, to), expect, "{from} {to}");
        }
    }
}
