//! Any object, field by field: for kinds without a specific description.

use apimachinery::{Object, Value};

use super::common;
use super::read::go_value;
use super::writer::{Writer, line};

/// Fields that are not shown, or shown above the others.
const HIDDEN: [&str; 5] =
    [".metadata.managedFields", ".metadata.name", ".metadata.namespace", ".metadata.labels", ".metadata.annotations"];

/// Words that are written in capitals.
const ACRONYMS: [&str; 4] = ["API", "URL", "UID", "GUID"];

pub(super) fn render(w: &mut Writer<'_>, object: &Value) {
    common::identity(w, object);
    common::metadata(w, object);
    if let Some(fields) = object.as_object() {
        write_fields(w, 0, fields, "");
    }
}

fn write_fields(w: &mut Writer<'_>, level: usize, fields: &Object, path: &str) {
    for (field, value) in fields.iter() {
        let path = format!("{path}.{field}");
        if HIDDEN.contains(&path.as_str()) {
            continue;
        }
        let label = label(field);
        match value {
            Value::Object(fields) => {
                line!(w, level, "{label}:");
                write_fields(w, level + 1, fields, &path);
            }
            Value::Array(items) => {
                line!(w, level, "{label}:");
                for item in items {
                    match item {
                        Value::Object(fields) => write_fields(w, level + 1, fields, &path),
                        other => line!(w, level + 1, "{}", go_value(other)),
                    }
                }
            }
            other => line!(w, level, "{label}:\t{}", go_value(other)),
        }
    }
}

/// Returns the label of a field: `lastTransitionTime` is `Last Transition Time`.
fn label(field: &str) -> String {
    if !field.chars().all(|c| c.is_alphabetic() || c == '-') {
        return field.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    let mut parts = split_words(field).into_iter().peekable();
    while let Some(mut part) = parts.next() {
        let is_acronym = part.len() >= 2 && !part.chars().any(|c| c.is_alphabetic() && !c.is_uppercase());
        if is_acronym && parts.peek().is_some_and(|next| next.starts_with(char::is_uppercase)) {
            part.extend(parts.next());
        }
        words.push(capitalize(part));
    }
    words.join(" ")
}

fn capitalize(word: String) -> String {
    let upper = word.to_uppercase();
    if ACRONYMS.contains(&upper.as_str()) {
        return upper;
    }
    if word.to_lowercase() != word {
        return word;
    }
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Splits at changes between lower case, upper case and other characters; a word that starts with a capital keeps it.
fn split_words(text: &str) -> Vec<String> {
    let class = |c: char| (c.is_lowercase(), c.is_uppercase());
    let mut words: Vec<Vec<char>> = Vec::new();
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if class(word[0]) == class(c) => word.push(c),
            _ => words.push(vec![c]),
        }
    }
    for index in 1..words.len() {
        let (before, after) = words.split_at_mut(index);
        let (word, next) = (&mut before[index - 1], &mut after[0]);
        if word.first().is_some_and(|c| c.is_uppercase())
            && next[0].is_lowercase()
            && let Some(capital) = word.pop()
        {
            next.insert(0, capital);
        }
    }
    words.into_iter().filter(|word| !word.is_empty()).map(String::from_iter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_words_with_capitals() {
        let check = |field: &str, label_: &str| assert_eq!(label(field), label_);
        check("apiVersion", "API Version");
        check("lastTransitionTime", "Last Transition Time");
        check("uid", "UID");
        check("podIP", "Pod IP");
        check("podCIDRs", "Pod CIDRs");
        check("PDFLoader", "PDFLoader");
        check("clusterIPs", "Cluster I Ps");
        check("HTTPSProxy", "HTTPSProxy");
        check("respectPDBs", "Respect PDBs");
        check("f:metadata", "f:metadata");
        check("caBundle", "Ca Bundle");
        check("x-kubernetes-list-type", "X - Kubernetes - List - Type");
        check("requestURL", "Request URL");
    }
}
