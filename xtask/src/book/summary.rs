//! Table of contents of the book, in mdBook's format: headings are parts, nested list items with links are chapters.

use anyhow::{Context, ensure};
use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd};

use super::paths;

/// The table of contents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// The first heading.
    pub title: String,
    pub entries: Vec<Entry>,
}

/// A line of the table of contents.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Part(String),
    /// A list item without a link, which groups the chapters below it.
    Group {
        title: String,
        depth: usize,
    },
    Chapter(Chapter),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chapter {
    pub title: String,
    /// Path of the Markdown file from the root of the repository.
    pub path: String,
    /// Number of chapters above this one.
    pub depth: usize,
}

impl Summary {
    /// Parses the table of contents at `path`, to which its links are relative.
    pub(super) fn parse(path: &str, text: &str) -> anyhow::Result<Self> {
        let (mut entries, mut depth, mut title) = (Vec::new(), 0_usize, String::new());
        let mut link: Option<String> = None;
        for event in Parser::new(text) {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    ensure!(level == HeadingLevel::H1, "{path}: headings of parts have level 1");
                    title.clear();
                }
                Event::End(TagEnd::Heading(_)) => entries.push(Entry::Part(std::mem::take(&mut title))),
                Event::Start(Tag::List(_)) => {
                    group(&mut entries, &mut title, depth);
                    depth += 1;
                }
                Event::End(TagEnd::List(_)) => depth -= 1,
                Event::Start(Tag::Item) => title.clear(),
                Event::End(TagEnd::Item) => group(&mut entries, &mut title, depth),
                Event::Start(Tag::Link { dest_url, .. }) => link = Some(dest_url.into_string()),
                Event::End(TagEnd::Link) => {
                    let target = link.take().context("a link ends that has not started")?;
                    let resolved = paths::resolve(path, &target);
                    let resolved = resolved.with_context(|| format!("{path}: {target} is outside the repository"))?;
                    ensure!(resolved.ends_with(".md"), "{path}: chapter {target} is not a Markdown file");
                    ensure!(!title.is_empty(), "{path}: chapter {target} has no title");
                    let title = std::mem::take(&mut title);
                    entries.push(Entry::Chapter(Chapter { title, path: resolved, depth: depth.saturating_sub(1) }));
                }
                Event::Text(text) | Event::Code(text) => title.push_str(&text),
                _ => {}
            }
        }
        let Some(Entry::Part(title)) = entries.first() else {
            anyhow::bail!("{path}: the first line must be a heading")
        };
        Ok(Self { title: title.clone(), entries })
    }

    /// Returns the chapters in reading order.
    pub(super) fn chapters(&self) -> impl Iterator<Item = &Chapter> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Chapter(chapter) => Some(chapter),
            Entry::Part(_) | Entry::Group { .. } => None,
        })
    }
}

/// Adds a list item without a link.
fn group(entries: &mut Vec<Entry>, title: &mut String, depth: usize) {
    let text = std::mem::take(title);
    if !text.trim().is_empty() {
        entries.push(Entry::Group { title: text, depth: depth.saturating_sub(1) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_parts_and_nested_links_are_chapters() {
        let text = "# Book\n\n- [Start](../README.md)\n- Group\n  - [Inner `x`](a/b.md)\n\n# More\n\n- [C](c.md)\n";
        let chapter = |title: &str, path: &str, depth| {
            Entry::Chapter(Chapter { title: title.to_owned(), path: path.to_owned(), depth })
        };
        let summary = Summary::parse("docs/SUMMARY.md", text).expect("valid");
        assert_eq!(summary.title, "Book");
        assert_eq!(
            summary.entries,
            [
                Entry::Part("Book".to_owned()),
                chapter("Start", "README.md", 0),
                Entry::Group { title: "Group".to_owned(), depth: 0 },
                chapter("Inner x", "docs/a/b.md", 1),
                Entry::Part("More".to_owned()),
                chapter("C", "docs/c.md", 0),
            ]
        );
    }

    #[test]
    fn invalid_tables_of_contents_are_rejected() {
        for (text, error) in [
            ("- [A](a.md)\n", "the first line must be a heading"),
            ("# B\n\n- [A](../../a.md)\n", "../../a.md is outside the repository"),
            ("# B\n\n- [A](a.txt)\n", "chapter a.txt is not a Markdown file"),
            ("# B\n\n- [](a.md)\n", "chapter a.md has no title"),
            ("# B\n\n## C\n", "headings of parts have level 1"),
        ] {
            let found = Summary::parse("docs/SUMMARY.md", text).expect_err(text).to_string();
            assert!(found.ends_with(error), "{found}");
        }
    }
}
