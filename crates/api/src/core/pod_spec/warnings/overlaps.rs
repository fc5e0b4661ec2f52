//! Warnings about overlapping file paths in a volume.

use std::collections::BTreeMap;
use std::fmt::Write;

use apimachinery::{Value, go};

/// A file path, with its source if the volume is projected.
struct File {
    path: String,
    source: String,
}

/// Adds a warning per overlapping path, up to `max` warnings in `out`.
pub(super) fn warnings(spec: &Value, max: usize, out: &mut Vec<String>) {
    for volume in spec.list_at(&["volumes"]) {
        let name = go::quote(volume.text_at(&["name"]));
        let quoted = |source: &Value, field: &str| go::quote(source.text_at(&[field]));
        if let Some(source) = present(volume, "configMap") {
            let of = format!("ConfigMap {}", quoted(source, "name"));
            overlaps(&name, &of, &files(source, ""), max, out);
        }
        if let Some(source) = present(volume, "secret") {
            let of = format!("Secret {}", quoted(source, "secretName"));
            overlaps(&name, &of, &files(source, ""), max, out);
        }
        if let Some(source) = present(volume, "downwardAPI") {
            overlaps(&name, "DownwardAPI", &files(source, ""), max, out);
        }
        if let Some(source) = present(volume, "projected") {
            let mut all = Vec::new();
            for source in source.list_at(&["sources"]) {
                match projected(source) {
                    Some(files) => all.extend(files),
                    None => out.push(format!("volume {name} (Projected) has no sources provided")),
                }
            }
            overlaps(&name, "Projected", &all, max, out);
        }
    }
}

/// Returns the files of a projected source, or `None` for an unknown source.
fn projected(source: &Value) -> Option<Vec<File>> {
    let named = |what: &str, holder: &Value| format!("{what} {}", go::quote(holder.text_at(&["name"])));
    if let Some(map) = present(source, "configMap").filter(|it| it.get("items").is_some()) {
        return Some(files(map, &named("ConfigMap", map)));
    }
    if let Some(secret) = present(source, "secret").filter(|it| it.get("items").is_some()) {
        return Some(files(secret, &named("Secret", secret)));
    }
    if let Some(downward) = present(source, "downwardAPI").filter(|it| it.get("items").is_some()) {
        return Some(files(downward, "DownwardAPI"));
    }
    if let Some(token) = present(source, "serviceAccountToken") {
        let source = "ServiceAccountToken".to_owned();
        return Some(vec![File { path: token.text_at(&["path"]).to_owned(), source }]);
    }
    let any = ["configMap", "secret", "downwardAPI"].iter().any(|field| present(source, field).is_some());
    any.then(Vec::new)
}

fn overlaps(volume: &str, of: &str, files: &[File], max: usize, out: &mut Vec<String>) {
    let mut before: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        let path = file.path.trim_end_matches('/');
        if path.is_empty() {
            continue;
        }
        for other in in_the_way(&before, path, max) {
            if out.len() >= max {
                return;
            }
            let other = &files[other];
            let (file, other) =
                (describe_file(path, &file.source), describe_file(other.path.trim_end_matches('/'), &other.source));
            out.push(format!("volume {volume} ({of}): overlapping paths: {file} with {other}"));
        }
        before.entry(path).or_default().push(index);
    }
}

/// Returns the earlier files with the same path, at a parent directory of it, or below it; at most `max`.
fn in_the_way(before: &BTreeMap<&str, Vec<usize>>, path: &str, max: usize) -> Vec<usize> {
    let directory = format!("{path}/");
    let outer = path.match_indices('/').filter_map(|(at, _)| before.get(&path[..at]));
    let inner = before.range(directory.as_str()..).take_while(|(other, _)| other.starts_with(&directory));
    let all = outer.chain(before.get(path)).chain(inner.map(|(_, files)| files));
    let mut all: Vec<_> = all.flatten().copied().take(max).collect();
    all.sort_unstable();
    all
}

fn describe_file(path: &str, source: &str) -> String {
    let mut out = go::quote(path);
    if !source.is_empty() {
        write!(out, " ({source})").expect("writing to a String cannot fail");
    }
    out
}

fn files(holder: &Value, source: &str) -> Vec<File> {
    let items = holder.list_at(&["items"]).iter();
    items.map(|item| File { path: item.text_at(&["path"]).to_owned(), source: source.to_owned() }).collect()
}

fn present<'a>(holder: &'a Value, field: &str) -> Option<&'a Value> {
    holder.get(field).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    #[test]
    fn overlapping_files_produce_warnings() {
        let check = |projected: Value, expect: &[&str]| {
            let mut out = Vec::new();
            warnings(&value!({"volumes": [{"name": "v", "projected": projected}]}), 9, &mut out);
            assert_eq!(out, expect);
        };
        check(value!({"sources": [{}]}), &["volume \"v\" (Projected) has no sources provided"]);
        check(value!({"sources": [{"configMap": {"name": "c"}}]}), &[]);
        check(
            value!({"sources": [
                {"serviceAccountToken": {"path": "a"}},
                {"configMap": {"name": "c", "items": [{"key": "k", "path": "a/b/"}, {"key": "k", "path": "ab"}]}}
            ]}),
            &[
                "volume \"v\" (Projected): overlapping paths: \"a/b\" (ConfigMap \"c\") with \"a\" (ServiceAccountToken)",
            ],
        );
    }
}
