//! The text of an explanation: kind, description and fields of an OpenAPI v3 schema.

use apimachinery::{GroupVersion, Value};

use crate::Failure;

/// Renders a type, or one of its fields. The text before a failure is printed as well.
pub(super) fn render(
    document: &Value,
    version: &GroupVersion,
    plural: &str,
    fields: &[String],
    recursive: bool,
) -> (String, Result<(), Failure>) {
    let Some(gvk) = kind_of_path(document, version, plural) else {
        let (group, version) = (&version.group, &version.version);
        let resource = format!("{group}/{version}, Resource={plural}");
        return (String::new(), Err(Failure::new(format!("GVR ({resource}) not found in OpenAPI schema"))));
    };
    let text = |field| gvk.str_at(&[field]).unwrap_or_default();
    let mut out = String::new();
    if !text("group").is_empty() {
        out.push_str(&format!("GROUP:      {}\n", text("group")));
    }
    out.push_str(&format!("KIND:       {}\nVERSION:    {}\n\n", text("kind"), text("version")));
    let schemas = document.at(&["components", "schemas"]).and_then(Value::as_object);
    let has_kind = |schema: &&Value| {
        let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array).unwrap_or_default();
        kinds.contains(gvk)
    };
    let Some(schema) = schemas.and_then(|schemas| schemas.values().find(has_kind)) else {
        return (out, Err(Failure::new(format!("GVK {gvk:?} not found in OpenAPI schema"))));
    };
    let explained = Explainer { document, recursive }.output(schema, fields, &mut Vec::new());
    if explained.is_empty() {
        let field = fields.last().map(String::as_str).unwrap_or_default();
        return (out, Err(Failure::new(format!("field \"{field}\" does not exist"))));
    }
    out.push_str(&explained);
    out.push('\n');
    (out, Ok(()))
}

/// Returns the kind of a type by its paths.
fn kind_of_path<'a>(document: &'a Value, version: &GroupVersion, plural: &str) -> Option<&'a Value> {
    let GroupVersion { group, version } = version;
    let prefix = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    let paths = [
        format!("{prefix}/{version}/{plural}"),
        format!("{prefix}/{version}/{plural}/{{name}}"),
        format!("{prefix}/{version}/namespaces/{{namespace}}/{plural}"),
        format!("{prefix}/{version}/namespaces/{{namespace}}/{plural}/{{name}}"),
    ];
    let methods = ["get", "post", "put", "patch", "delete"];
    paths.iter().rev().find_map(|path| {
        let path = document.at(&["paths", path])?;
        methods.iter().find_map(|method| path.at(&[method, "x-kubernetes-group-version-kind"]))
    })
}

struct Explainer<'a> {
    document: &'a Value,
    recursive: bool,
}

impl<'a> Explainer<'a> {
    /// Follows the fields to a schema and explains it; empty if a field does not exist.
    fn output(&self, schema: &'a Value, fields: &[String], history: &mut Vec<&'a str>) -> String {
        let reference = reference(schema);
        let resolved = self.resolve(schema);
        let Some((first, rest)) = fields.split_first() else { return self.explain(resolved) };
        if reference.is_some_and(|reference| history.contains(&reference)) {
            return String::new();
        }
        if let Some(property) = resolved.at(&["properties", first]) {
            let mut out = String::new();
            if rest.is_empty() {
                out = format!("FIELD: {first} <{}>\n{}\n\n", self.type_of(property), long_enum(property));
            }
            return out + &self.output(property, rest, &mut Vec::new());
        }
        history.extend(reference);
        if let Some(items) = resolved.get("items") {
            return self.output(items, fields, history);
        }
        if let Some(values) = map_values(resolved) {
            return self.output(values, fields, history);
        }
        let alternatives = resolved.get("allOf").and_then(Value::as_array).unwrap_or_default();
        alternatives
            .iter()
            .map(|schema| self.output(schema, fields, &mut history.clone()))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    fn explain(&self, schema: &'a Value) -> String {
        let description = self.description(schema);
        let description = if description.is_empty() { "<empty>" } else { description.as_str() };
        let mut out = format!("DESCRIPTION:\n{}\n", indent(4, &wrap(description, 76)));
        if let Some(docs) = schema.get("externalDocs") {
            out.push_str(&format!("\nEXTERNAL DOCS:\n{}", external_docs(docs, 0)));
        }
        let mut list = String::new();
        self.field_list(schema, 1, &[], &mut list);
        if !list.is_empty() {
            out.push_str("FIELDS:\n");
            out.push_str(&list);
        }
        out
    }

    fn field_list(&self, schema: &'a Value, level: usize, history: &[&'a str], out: &mut String) {
        let reference = reference(schema);
        if reference.is_some_and(|reference| history.contains(&reference)) {
            return;
        }
        let mut history = history.to_vec();
        history.extend(reference);
        let resolved = self.resolve(schema);
        for (name, property) in
            resolved.get("properties").and_then(Value::as_object).into_iter().flat_map(apimachinery::Object::iter)
        {
            self.field(resolved, name, property, level, out);
            if self.recursive {
                self.field_list(property, level + 1, &history, out);
            }
        }
        for alternative in resolved.get("allOf").and_then(Value::as_array).unwrap_or_default() {
            self.field_list(alternative, level, &history, out);
        }
        if let Some(items) = resolved.get("items") {
            self.field_list(items, level, &history, out);
        }
        if let Some(values) = map_values(resolved) {
            self.field_list(values, level, &history, out);
        }
    }

    fn field(&self, parent: &Value, name: &str, property: &Value, level: usize, out: &mut String) {
        let margin = level * 2;
        out.push_str(&format!("{}\t<{}>", indent(margin, name), self.type_of(property)));
        let required = parent.get("required").and_then(Value::as_array).unwrap_or_default();
        if required.iter().any(|field| field.as_str() == Some(name)) {
            out.push_str(" -required-");
        }
        out.push_str(&short_enum(property, margin));
        out.push('\n');
        if self.recursive {
            return;
        }
        let description =
            property.str_at(&["description"]).filter(|text| !text.is_empty()).unwrap_or("<no description>");
        out.push_str(&indent(margin + 2, &wrap(description, 78 - margin)));
        out.push('\n');
        if let Some(docs) = property.get("externalDocs") {
            out.push_str(&format!("\n{}\n{}", indent(margin + 2, "EXTERNAL DOCS:"), external_docs(docs, margin)));
        }
        out.push('\n');
    }

    /// Returns the description of a schema and of those it consists of, a line each.
    fn description(&self, schema: &Value) -> String {
        let resolved = self.resolve(schema);
        let mut out = String::new();
        if let Some(text) = resolved.str_at(&["description"]).filter(|text| !text.is_empty()) {
            out = format!("{text}\n");
        }
        for alternative in resolved.get("allOf").and_then(Value::as_array).unwrap_or_default() {
            out.push_str(&self.description(alternative));
        }
        for inner in resolved.get("items").into_iter().chain(map_values(resolved)) {
            out.push_str(&self.description(inner));
        }
        out
    }

    /// Returns a short name of a type: `string`, `Object`, `[]Container`, `map[string]string`.
    fn type_of(&self, schema: &Value) -> String {
        if let Some(items) = schema.get("items") {
            return format!("[]{}", self.type_of(items));
        }
        if let Some(values) = map_values(schema) {
            return format!("map[string]{}", self.type_of(values));
        }
        let simple = |schema: &Value| schema.str_at(&["type"]).filter(|name| !name.is_empty()).map(str::to_owned);
        if let Some([alternative]) = schema.get("allOf").and_then(Value::as_array)
            && schema.get("properties").is_none()
        {
            return self.type_of(alternative);
        }
        if let Some(reference) = reference(schema) {
            let referred = self.find(reference).and_then(simple).filter(|name| name != "object");
            return referred.unwrap_or_else(|| {
                let name = reference.rsplit('/').next().unwrap_or_default();
                name.rsplit('.').next().filter(|name| !name.is_empty()).unwrap_or("Object").to_owned()
            });
        }
        simple(schema).filter(|name| name != "object").unwrap_or_else(|| "Object".to_owned())
    }

    fn resolve<'b>(&self, schema: &'b Value) -> &'b Value
    where
        'a: 'b,
    {
        reference(schema).and_then(|reference| self.find(reference)).unwrap_or(schema)
    }

    fn find(&self, reference: &str) -> Option<&'a Value> {
        let keys: Vec<&str> = reference.strip_prefix('#')?.split('/').filter(|key| !key.is_empty()).collect();
        self.document.at(&keys)
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema.str_at(&["$ref"]).filter(|reference| !reference.is_empty())
}

/// Returns the schema of the values of a map.
fn map_values(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|values| values.as_object().is_some_and(|values| !values.is_empty()))
}

fn external_docs(docs: &Value, margin: usize) -> String {
    let mut out = String::new();
    if let Some(text) = docs.str_at(&["description"]).filter(|text| !text.is_empty()) {
        out.push_str(&format!("{}\n", indent(margin + 4, &wrap(text, 76 - margin))));
    }
    if let Some(url) = docs.str_at(&["url"]).filter(|url| !url.is_empty()) {
        out.push_str(&format!("{}\n", indent(margin + 4, &format!("URL: {url}"))));
    }
    out
}

fn enum_values(schema: &Value) -> Vec<String> {
    let show = |value: &Value| match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => text.to_string(),
        other => apimachinery::json::to_string(other),
    };
    schema.get("enum").and_then(Value::as_array).unwrap_or_default().iter().map(show).collect()
}

fn long_enum(schema: &Value) -> String {
    let values = enum_values(schema);
    if values.is_empty() {
        return String::new();
    }
    values.iter().fold("ENUM:".to_owned(), |text, value| format!("{text}\n    {value}"))
}

fn short_enum(schema: &Value, margin: usize) -> String {
    const PRINTED: usize = 4;
    let values = enum_values(schema);
    if values.is_empty() {
        return String::new();
    }
    let more = if values.len() > PRINTED { ", ...." } else { "" };
    let listed = values[..values.len().min(PRINTED)].join(", ");
    format!("\n{}enum: {listed}{more}", " ".repeat(margin))
}

fn indent(margin: usize, text: &str) -> String {
    let pad = " ".repeat(margin);
    format!("{pad}{}", text.replace('\n', &format!("\n{pad}")))
}

/// Breaks lines at spaces so that they have at most `limit` characters. Longer words are not split.
pub(super) fn wrap(text: &str, limit: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / limit);
    let (mut current, mut word, mut space) = (0, String::new(), String::new());
    let count = |text: &str| text.chars().count();
    for c in text.chars() {
        if c == '\n' {
            if word.is_empty() {
                if current + count(&space) <= limit {
                    out.push_str(&space);
                }
            } else {
                out.push_str(&space);
                out.push_str(&word);
            }
            (space, word) = (String::new(), String::new());
            out.push('\n');
            current = 0;
        } else if c.is_whitespace() && c != '\u{a0}' {
            if space.is_empty() || !word.is_empty() {
                current += count(&space) + count(&word);
                out.push_str(&space);
                out.push_str(&word);
                (space, word) = (String::new(), String::new());
            }
            space.push(c);
        } else {
            word.push(c);
            if current + count(&word) + count(&space) > limit && count(&word) < limit {
                out.push('\n');
                current = 0;
                space.clear();
            }
        }
    }
    if word.is_empty() {
        if current + count(&space) <= limit {
            out.push_str(&space);
        }
    } else {
        out.push_str(&space);
        out.push_str(&word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces() {
        let check = |text: &str, limit: usize, expect: &str| assert_eq!(wrap(text, limit), expect);
        check("a bb ccc", 4, "a bb\nccc");
        check("abcdefgh i", 4, "abcdefgh\ni");
        check("a\n\nb c", 10, "a\n\nb c");
        check("one two\n", 7, "one two\n");
    }
}
