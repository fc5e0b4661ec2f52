//! A page of the book: its headings, links and HTML.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// The parsed Markdown of a page.
pub(super) struct Page<'a> {
    events: Vec<Event<'a>>,
    /// The anchors of the headings, in order.
    anchors: Vec<String>,
}

impl<'a> Page<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let events: Vec<Event<'_>> =
            Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH).collect();
        let anchors = anchors(&events);
        Self { events, anchors }
    }

    /// Returns the anchors that links to this page can have.
    pub(super) fn anchors(&self) -> BTreeSet<&str> {
        self.anchors.iter().map(String::as_str).collect()
    }

    /// Returns the targets of links and images, as written.
    pub(super) fn links(&self) -> impl Iterator<Item = &str> {
        self.events.iter().filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.as_ref()),
            _ => None,
        })
    }

    /// Renders the page. `target` returns the link in the book for a link in the Markdown file.
    pub(super) fn html(self, target: impl Fn(&str) -> String) -> String {
        let mut anchors = self.anchors.into_iter();
        let events = self.events.into_iter().map(|event| match event {
            Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
                Event::Start(Tag::Heading { level, id: anchors.next().map(CowStr::from), classes, attrs })
            }
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                Event::Start(Tag::Link { link_type, dest_url: target(&dest_url).into(), title, id })
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                Event::Start(Tag::Image { link_type, dest_url: target(&dest_url).into(), title, id })
            }
            event => event,
        });
        let mut out = String::new();
        html::push_html(&mut out, events);
        out
    }
}

/// Returns an anchor for each heading, as GitHub makes them: repeated ones are numbered.
fn anchors(events: &[Event<'_>]) -> Vec<String> {
    let (mut found, mut heading): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for event in events {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(text),
            (Event::End(TagEnd::Heading(_)), Some(text)) => {
                let anchor = anchor(text);
                let count = counts.entry(anchor.clone()).or_default();
                found.push(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
                *count += 1;
                heading = None;
            }
            _ => {}
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let lower = heading.trim().to_lowercase();
    let valid = lower.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    valid.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_anchors_of_github() {
        let page = Page::parse("# A `knarr up`, and: more\n## Same\n## Same\n");
        assert_eq!(page.anchors, ["a-knarr-up-and-more", "same", "same-1"]);
    }

    #[test]
    fn links_are_rewritten_and_tables_are_rendered() {
        let page = Page::parse("# T\n[a](b.md#c) ![d](e.svg)\n\n`[x](no.md)`\n\n|h|\n|-|\n|<|\n");
        assert_eq!(Vec::from_iter(page.links()), ["b.md#c", "e.svg"]);
        let html = page.html(|link| format!("/{link}"));
        for part in ["<h1 id=\"t\">", "href=\"/b.md#c\"", "src=\"/e.svg\"", "<td>&lt;</td>"] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }
}
