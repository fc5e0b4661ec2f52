//! Rewrites links in HTML pages that are served through the proxy.

/// Elements and their attributes that contain a URL.
const LINKS: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["formaction", "src", "usemap"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is not markup.
const RAW: [&str; 9] = ["iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title", "xmp"];

/// Rewrites each link with `link`. All other bytes are unchanged.
pub fn rewrite(page: &[u8], link: impl Fn(&str) -> String) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len() + page.len() / 16);
    let mut at = 0;
    while let Some(found) = find(page, at, b"<") {
        out.extend_from_slice(&page[at..found]);
        let end = match page.get(found + 1) {
            Some(letter) if letter.is_ascii_alphabetic() => element(page, found, &link, &mut out),
            Some(b'!') if page[found..].starts_with(b"<!--") => after(page, found, b"-->"),
            Some(b'!' | b'?' | b'/') => after(page, found, b">"),
            _ => found + 1,
        };
        if !page[found + 1..].first().is_some_and(u8::is_ascii_alphabetic) {
            out.extend_from_slice(&page[found..end]);
        }
        at = end;
    }
    out.extend_from_slice(&page[at..]);
    out
}

/// Writes the tag at `start`, including its content if that is not markup. Returns the end offset.
fn element(page: &[u8], start: usize, link: &impl Fn(&str) -> String, out: &mut Vec<u8>) -> usize {
    let mut at = skip(page, start + 1, |byte| !byte.is_ascii_whitespace() && !matches!(byte, b'/' | b'>'));
    let name = String::from_utf8_lossy(&page[start + 1..at]).to_ascii_lowercase();
    let links = LINKS.iter().find(|(element, _)| *element == name).map_or(&[][..], |(_, links)| *links);
    let mut written = start;
    loop {
        at = skip(page, at, |byte| byte.is_ascii_whitespace() || byte == b'/');
        match page.get(at) {
            None => break,
            Some(b'>') => {
                at += 1;
                break;
            }
            Some(_) => {}
        }
        let Attribute { key, value, end } = attribute(page, at);
        let is_link = links.iter().any(|known| key.eq_ignore_ascii_case(known.as_bytes()));
        if let (true, Ok(target)) = (is_link, std::str::from_utf8(&page[value.clone()])) {
            out.extend_from_slice(&page[written..value.start]);
            out.extend_from_slice(link(target).as_bytes());
            written = value.end;
        }
        at = end;
    }
    let end = if RAW.contains(&name.as_str()) { raw_end(page, at, &name) } else { at };
    out.extend_from_slice(&page[written..end]);
    end
}

struct Attribute<'p> {
    key: &'p [u8],
    /// The byte range of the value, without quotes.
    value: std::ops::Range<usize>,
    end: usize,
}

/// Parses the attribute at `start`; it is at least one byte long.
fn attribute(page: &[u8], start: usize) -> Attribute<'_> {
    let name_end = skip(page, start + 1, |byte| !byte.is_ascii_whitespace() && !matches!(byte, b'=' | b'>' | b'/'));
    let key = &page[start..name_end];
    let equals = skip(page, name_end, |byte| byte.is_ascii_whitespace());
    if page.get(equals) != Some(&b'=') {
        return Attribute { key, value: name_end..name_end, end: name_end };
    }
    let value_start = skip(page, equals + 1, |byte| byte.is_ascii_whitespace());
    match page.get(value_start) {
        Some(quote @ (b'"' | b'\'')) => {
            let end = skip(page, value_start + 1, |byte| byte != *quote);
            Attribute { key, value: value_start + 1..end, end: (end + 1).min(page.len()) }
        }
        _ => {
            let end = skip(page, value_start, |byte| !byte.is_ascii_whitespace() && byte != b'>');
            Attribute { key, value: value_start..end, end }
        }
    }
}

/// Returns the offset of the closing tag of a raw element.
fn raw_end(page: &[u8], mut at: usize, name: &str) -> usize {
    while let Some(found) = find(page, at, b"</") {
        let rest = &page[found + 2..];
        if rest.get(..name.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(name.as_bytes())) {
            return found;
        }
        at = found + 2;
    }
    page.len()
}

fn skip(page: &[u8], from: usize, while_it: impl Fn(u8) -> bool) -> usize {
    let from = from.min(page.len());
    page[from..].iter().position(|byte| !while_it(*byte)).map_or(page.len(), |found| from + found)
}

fn find(page: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let from = from.min(page.len());
    page[from..].windows(what.len()).position(|window| window == what).map(|found| from + found)
}

fn after(page: &[u8], from: usize, what: &[u8]) -> usize {
    find(page, from, what).map_or(page.len(), |found| found + what.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, expect: &str) {
        let found = rewrite(page.as_bytes(), |link| format!("/proxy{link}"));
        assert_eq!(String::from_utf8(found).unwrap(), expect);
    }

    #[test]
    fn links_are_rewritten_to_the_proxy() {
        check(r#"<a href="/rewriteme">test</a>"#, r#"<a href="/proxy/rewriteme">test</a>"#);
        check("<IMG alt=x SRC = '/i.png' /><p>", "<IMG alt=x SRC = '/proxy/i.png' /><p>");
        check("<a class=b href=/c>d</a>", "<a class=b href=/proxy/c>d</a>");
        check("<html><body><form action='/f' method=post>", "<html><body><form action='/proxy/f' method=post>");
    }

    #[test]
    fn content_other_than_links_is_unchanged() {
        for page in [
            "",
            "1 < 2 > 1 <",
            "<a",
            "<a href",
            "<a href=",
            "<p href=\"/a\">",
            "<!-- <a href=\"/a\"> -->",
            "<!doctype html>",
            "<script>if (a<b) '<a href=\"/x\">'</script>",
            "<style>",
            "</a href='/x'>",
            "<a data=\"/x>\">",
        ] {
            let found = rewrite(page.as_bytes(), |link| if link.is_empty() { String::new() } else { "!".into() });
            assert_eq!(String::from_utf8(found).unwrap(), page);
        }
        let odd = b"<a href=\"\xff\">\xfe";
        assert_eq!(rewrite(odd, |_| "!".into()), odd);
    }

    #[test]
    fn random_pages_neither_panic_nor_lose_content() {
        let letters = b"<a href=\"'>/! -s";
        // A simple deterministic generator: every run tests the same pages.
        let mut seed = 7_u64;
        for _ in 0..5000 {
            let page: Vec<u8> = (0..24)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    letters[usize::try_from(seed >> 33).unwrap() % letters.len()]
                })
                .collect();
            assert_eq!(rewrite(&page, str::to_owned), page, "{}", String::from_utf8_lossy(&page));
        }
    }
}
