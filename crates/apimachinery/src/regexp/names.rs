//! The names of Unicode categories and scripts in Go, listed in `unicode_names.txt` in canonical spelling.

/// Returns the name of a property in the syntax of the `regex` crate.
pub(super) fn property(name: &str) -> Option<&'static str> {
    let canonical = canonical(name);
    match canonical.as_str() {
        "Any" => return Some("Any"),
        "Assigned" => return Some("Assigned"),
        "Ascii" => return Some("ASCII"),
        _ => {}
    }
    let mut lines = NAMES.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == canonical).map(|(_, property)| property)
}

const NAMES: &str = include_str!("unicode_names.txt");

/// Normalizes a name: a capital, then lowercase letters; spaces, underscores and hyphens are ignored.
fn canonical(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for letter in name.chars().filter(|letter| !matches!(letter, '_' | '-' | ' ')) {
        let letter = if out.is_empty() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_spelling() {
        for (name, expect) in [
            ("Greek", Some("sc=Greek")),
            ("greek", Some("sc=Greek")),
            ("Bassa-Vah", Some("sc=Bassa_Vah")),
            ("L", Some("gc=L")),
            ("LC", Some("gc=LC")),
            ("decimal number", Some("gc=Nd")),
            ("ascii", Some("ASCII")),
            ("Grek", None),
            ("Alphabetic", None),
            ("sc=Greek", None),
            ("", None),
        ] {
            assert_eq!(property(name), expect, "{name}");
        }
    }
}
