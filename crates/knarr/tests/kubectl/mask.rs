//! Masks the values that differ between runs: times, UIDs, versions, addresses and generated names.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "DATE"),
        (r"[WEI]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ ", "LOG "),
        (r#"(resourceVersion"?: ?)"\d+""#, "$1\"VERSION\""),
        (r"10\.96\.\d+\.\d+", "IP"),
        (r"127\.0\.0\.1:\d+", "SERVER"),
        (r#"(nodePort"?: )\d+"#, "${1}PORT"),
        (r"kubectl-edit-\w+\.", "kubectl-edit-X."),
        (r"(?m)\b(\d+m)?\d+s( ago)?( +|$)", "AGE "),
    ]
    .map(|(pattern, mask)| (Regex::new(pattern).unwrap(), mask))
    .into()
});

/// Returns the text with masks. Paths below `dir` start with `DIR`.
pub(crate) fn mask(text: &str, dir: &Path) -> String {
    let mut text = text.replace(&dir.display().to_string(), "DIR");
    for (pattern, mask) in MASKS.iter() {
        text = pattern.replace_all(&text, *mask).into_owned();
    }
    text
}
