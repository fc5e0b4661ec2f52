//! `cargo xtask book`: checks the links and the structure of the documentation and renders it to `target/book`.
//!
//! `docs/SUMMARY.md` is the table of contents. A page has the path of its Markdown file, so that links between pages
//! stay relative. Links to files that are not pages lead to the source tree around `target`.

mod page;
mod paths;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, ensure};

use crate::root;
use crate::tidy::Tree;
use page::Page;
use summary::{Chapter, Entry, Summary};

const SUMMARY: &str = "docs/SUMMARY.md";
/// Every Markdown file below is a chapter.
const DOCS: &str = "docs/";
/// Output directory, from the root of the repository.
const OUTPUT: &str = "target/book";

const STYLE: &str = "\
:root { color-scheme: light dark; --line: #8884; --link: light-dark(#0550ae, #79b8ff); }
body { margin: 0; display: flex; font: 16px/1.6 system-ui, sans-serif; }
nav { flex: 0 0 19rem; height: 100vh; overflow-y: auto; position: sticky; top: 0; border-right: 1px solid var(--line); }
nav div { padding: 1rem; } nav h2 { font-size: .85rem; text-transform: uppercase; margin: 1.2rem 0 .2rem; }
nav ul { list-style: none; margin: 0; padding: 0; font-size: .92rem; } nav li { padding: .1rem 0; }
nav .current { font-weight: 600; } main { flex: 1; min-width: 0; max-width: 62rem; padding: 1rem 2.5rem 4rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
pre { overflow-x: auto; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: 6px; font-size: .86rem; line-height: 1.45; }
code { font-family: ui-monospace, monospace; font-size: .9em; } img { max-width: 100%; }
table { border-collapse: collapse; display: block; overflow-x: auto; } th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
footer { display: flex; justify-content: space-between; margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
@media (max-width: 60rem) { body { display: block; } nav { position: static; height: auto; } main { padding: 1rem; } }
";

/// Checks and renders the book. Reports all findings before it fails.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    ensure!(args.is_empty(), "book takes no arguments");
    let tree = Tree::read(root())?;
    let summary = tree.files.get(SUMMARY).with_context(|| format!("{SUMMARY} does not exist"))?;
    let summary = Summary::parse(SUMMARY, summary)?;
    let findings = check(&tree.files, &summary);
    for finding in &findings {
        eprintln!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings", findings.len());
    let output = root().join(OUTPUT);
    let pages = render(&tree.files, &summary);
    for (path, html) in &pages {
        write(&output.join(path), html)?;
    }
    println!("{} pages: {}", summary.chapters().count(), output.join("index.html").display());
    Ok(())
}

/// Returns what is wrong: chapters that do not exist, documents that are not chapters, and broken links.
fn check(files: &BTreeMap<String, String>, summary: &Summary) -> Vec<String> {
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for Chapter { path, .. } in summary.chapters() {
        if !files.contains_key(path) {
            findings.push(format!("{SUMMARY}: {path} does not exist"));
        }
        if !listed.insert(path.as_str()) {
            findings.push(format!("{SUMMARY}: {path} is listed twice"));
        }
    }
    for path in files.keys().filter(|path| path.starts_with(DOCS) && path.ends_with(".md") && *path != SUMMARY) {
        if !listed.contains(path.as_str()) {
            findings.push(format!("{path} is not listed in {SUMMARY}"));
        }
    }
    for path in listed {
        let Some(text) = files.get(path) else { continue };
        let page = Page::parse(text);
        if !text.starts_with("# ") {
            findings.push(format!("{path}: the first line must be a heading of level 1"));
        }
        findings.extend(page.links().filter_map(|link| broken(files, path, &page, link)));
    }
    findings
}

/// Returns what is wrong with a link of a page.
fn broken(files: &BTreeMap<String, String>, path: &str, page: &Page<'_>, link: &str) -> Option<String> {
    if is_external(link) {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    if target.is_empty() {
        return (!page.anchors().contains(anchor)).then(|| format!("{path}: no heading has the anchor #{anchor}"));
    }
    let Some(file) = paths::resolve(path, target) else {
        return Some(format!("{path}: {link} is outside the repository"));
    };
    let is_directory = || files.keys().any(|path| path.starts_with(&format!("{file}/")));
    match files.get(&file) {
        None if is_directory() => None,
        None => Some(format!("{path}: {link} does not exist")),
        Some(text) if !anchor.is_empty() && file.ends_with(".md") && !Page::parse(text).anchors().contains(anchor) => {
            Some(format!("{path}: {file} has no heading with the anchor #{anchor}"))
        }
        Some(_) => None,
    }
}

/// Returns the pages by their path in the output directory.
fn render(files: &BTreeMap<String, String>, summary: &Summary) -> BTreeMap<String, String> {
    let chapters: Vec<&Chapter> = summary.chapters().collect();
    let listed: BTreeSet<&str> = chapters.iter().map(|chapter| chapter.path.as_str()).collect();
    let mut pages = BTreeMap::new();
    for (index, chapter) in chapters.iter().enumerate() {
        let Some(text) = files.get(&chapter.path) else { continue };
        let own = paths::page(&chapter.path);
        let content = Page::parse(text).html(|link| target(&listed, &chapter.path, link));
        let neighbour = |index: Option<usize>, label: &str| match index.and_then(|index| chapters.get(index)) {
            Some(next) => format!("<a href=\"{}\">{label}</a>", paths::relative(&own, &paths::page(&next.path))),
            None => "<span></span>".to_owned(),
        };
        let (before, after) = (neighbour(index.checked_sub(1), "← Previous"), neighbour(Some(index + 1), "Next →"));
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{} - {}</title>\n\
             <link rel=\"stylesheet\" href=\"{}\">\n</head>\n<body>\n<nav><div>\n{}</div></nav>\n\
             <main>\n{content}<footer>{before}{after}</footer>\n</main>\n</body>\n</html>\n",
            escape(&chapter.title),
            escape(&summary.title),
            paths::relative(&own, "book.css"),
            sidebar(summary, &own),
        );
        pages.insert(own, html);
    }
    if let Some(first) = chapters.first() {
        let first = paths::page(&first.path);
        pages.insert(
            "index.html".to_owned(),
            format!("<!doctype html>\n<meta http-equiv=\"refresh\" content=\"0; url={first}\">\n"),
        );
    }
    pages.insert("book.css".to_owned(), STYLE.to_owned());
    pages
}

/// Returns the link in the book for a link in the Markdown file `path`.
fn target(listed: &BTreeSet<&str>, path: &str, link: &str) -> String {
    if is_external(link) || link.starts_with('#') {
        return link.to_owned();
    }
    let (target, anchor) =
        link.split_once('#').map_or((link, String::new()), |(target, it)| (target, format!("#{it}")));
    let Some(file) = paths::resolve(path, target) else { return link.to_owned() };
    let own = paths::page(path);
    match listed.contains(file.as_str()) {
        true => format!("{}{anchor}", paths::relative(&own, &paths::page(&file))),
        false => format!("{}{anchor}", paths::relative(&format!("{OUTPUT}/{own}"), &file)),
    }
}

fn sidebar(summary: &Summary, current: &str) -> String {
    let (mut out, mut open) = (String::new(), false);
    for entry in &summary.entries {
        if matches!(entry, Entry::Part(_)) == open {
            out.push_str(if open { "</ul>\n" } else { "<ul>\n" });
            open = !open;
        }
        match entry {
            Entry::Part(title) => out.push_str(&format!("<h2>{}</h2>\n", escape(title))),
            Entry::Group { title, depth } => {
                out.push_str(&format!("<li style=\"padding-left: {depth}rem\">{}</li>\n", escape(title)));
            }
            Entry::Chapter(Chapter { title, path, depth }) => {
                let page = paths::page(path);
                let class = if page == current { " class=\"current\"" } else { "" };
                let link = paths::relative(current, &page);
                let title = escape(title);
                out.push_str(&format!(
                    "<li style=\"padding-left: {depth}rem\"{class}><a href=\"{link}\">{title}</a></li>\n"
                ));
            }
        }
    }
    if open {
        out.push_str("</ul>\n");
    }
    out
}

fn is_external(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn summary(text: &str) -> Summary {
        Summary::parse(SUMMARY, text).expect("a valid table of contents")
    }

    #[test]
    fn missing_and_unlisted_chapters_and_broken_links_are_found() {
        let text = "# A\n[ok](docs/b.md#b) [dir](src) [x](docs/c.md) [y](docs/b.md#no) [z](#no) [w](../up.md) [u](https://a.b)\n";
        let files = files(&[("README.md", text), ("docs/b.md", "# B\n"), ("docs/d.md", "D\n"), ("src/e.rs", "")]);
        let found = check(&files, &summary("# T\n\n- [A](../README.md)\n- [B](b.md)\n- [B](b.md)\n- [C](c.md)\n"));
        assert_eq!(
            found,
            [
                "docs/SUMMARY.md: docs/b.md is listed twice",
                "docs/SUMMARY.md: docs/c.md does not exist",
                "docs/d.md is not listed in docs/SUMMARY.md",
                "README.md: docs/c.md does not exist",
                "README.md: docs/b.md has no heading with the anchor #no",
                "README.md: no heading has the anchor #no",
                "README.md: ../up.md is outside the repository",
            ]
        );
        let headless = check(&files, &summary("# T\n\n- [A](d.md)\n- [B](b.md)\n"));
        assert_eq!(headless, ["docs/d.md: the first line must be a heading of level 1"]);
    }

    #[test]
    fn pages_link_to_pages_and_to_the_source_tree() {
        let files =
            files(&[("README.md", "# A\n[b](docs/b.md#b)"), ("docs/b.md", "# B\n[e](../src/e.rs)"), ("src/e.rs", "")]);
        let pages = render(&files, &summary("# T\n\n- [A](../README.md)\n- G\n  - [B <](b.md)\n"));
        assert_eq!(Vec::from_iter(pages.keys()), ["README.html", "book.css", "docs/b.html", "index.html"]);
        assert!(pages["README.html"].contains("<a href=\"docs/b.html#b\">b</a>"));
        assert!(pages["README.html"].contains("<a href=\"docs/b.html\">Next →</a>"));
        let second = &pages["docs/b.html"];
        for part in
            ["href=\"../../../src/e.rs\"", "<a href=\"b.html\">B &lt;</a>", "href=\"../book.css\"", "../README.html"]
        {
            assert!(second.contains(part), "{part} is not in {second}");
        }
        assert!(pages["index.html"].contains("url=README.html"));
    }
}
