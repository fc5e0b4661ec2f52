//! `-o jsonpath` and `-o jsonpath-as-json`, and the relaxed paths of `--sort-by` and custom columns.

use apimachinery::jsonpath::{EvalError, MissingKeys, ParseError, Template};
use apimachinery::{Value, go};

use super::{format::PrintError, json};

/// A path is not in one of the relaxed forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{{name1.name2}}' or '{{.name1.name2}}'"
)]
pub struct RelaxedError;

/// Prints the values that a template selects.
#[derive(Clone, Debug)]
pub struct JsonPathPrinter {
    text: String,
    template: Template,
    as_json: bool,
}

impl JsonPathPrinter {
    pub fn new(text: &str, missing: MissingKeys) -> Result<Self, ParseError> {
        Ok(Self { text: text.to_owned(), template: Template::parse(text, missing)?, as_json: false })
    }

    /// Prints the values of each action as a JSON list.
    #[must_use]
    pub fn as_json(self) -> Self {
        Self { as_json: true, ..self }
    }

    pub fn print(&self, object: &Value) -> Result<String, PrintError> {
        let printed = if self.as_json { self.print_lists(object) } else { self.template.execute(object) };
        printed.map_err(|error| {
            let (text, quoted) = (&self.text, go::quote(&self.text));
            PrintError::new(format!(
                "error executing jsonpath {quoted}: Error executing template: {error}. Printing more information for \
                 debugging the template:\n\ttemplate was:\n\t\t{text}\n\tobject given to jsonpath engine \
                 was:\n\t\t{}\n\n\n",
                go_syntax(object)
            ))
        })
    }

    fn print_lists(&self, object: &Value) -> Result<String, EvalError> {
        let lists = self.template.find(object)?;
        Ok(lists.iter().map(|values| json::print(&Value::Array(values.iter().copied().cloned().collect()))).collect())
    }
}

/// Completes a path that lacks its braces or its leading dot: `metadata.name` is `{.metadata.name}`.
pub fn relaxed(path: &str) -> Result<String, RelaxedError> {
    if path.is_empty() {
        return Ok(String::new());
    }
    let inside = path.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(path);
    // A single dot is a field name, not the prefix of one.
    let inside = inside.strip_prefix('.').filter(|rest| !rest.is_empty()).unwrap_or(inside);
    if inside.is_empty() || inside.contains(['{', '}']) {
        return Err(RelaxedError);
    }
    Ok(format!("{{.{inside}}}"))
}

/// Formats a value like Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => go::quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(object) => {
            let entries = object.iter().map(|(key, value)| format!("{}:{}", go::quote(key), go_syntax(value)));
            format!("map[string]interface {{}}{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        _ => go::display(value),
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn relaxed_paths_are_completed() {
        let check = |path: &str, expect: Result<&str, RelaxedError>| {
            assert_eq!(relaxed(path).as_deref().map_err(|error| *error), expect, "{path}");
        };
        check("metadata.name", Ok("{.metadata.name}"));
        check(".metadata.name", Ok("{.metadata.name}"));
        check("{metadata.name}", Ok("{.metadata.name}"));
        check("{.metadata.name}", Ok("{.metadata.name}"));
        check("..name", Ok("{..name}"));
        check(".", Ok("{..}"));
        check("", Ok(""));
        check("{}", Err(RelaxedError));
        check("{.a}{.b}", Err(RelaxedError));
        check("{.a", Err(RelaxedError));
    }

    #[test]
    fn failures_show_the_template_and_the_object() {
        let printer = JsonPathPrinter::new("{.a[5]}", MissingKeys::Allow).unwrap();
        let error = printer.print(&value!({"a": ["x", null, 1]})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error executing jsonpath \"{.a[5]}\": Error executing template: array index out of bounds: index 5, \
             length 3. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{.a[5]}\n\tobject \
             given to jsonpath engine was:\n\t\tmap[string]interface {}{\"a\":[]interface {}{\"x\", interface \
             {}(nil), 1}}\n\n\n"
        );
    }

    #[test]
    fn values_are_printed_as_json_lists() {
        let printer = JsonPathPrinter::new("{.a}{.b[*]}", MissingKeys::Allow).unwrap().as_json();
        let printed = printer.print(&value!({"a": "<", "b": [1, {"c": 2}]})).unwrap();
        assert_eq!(printed, "[\n    \"\\u003c\"\n]\n[\n    1,\n    {\n        \"c\": 2\n    }\n]\n");
    }
}
