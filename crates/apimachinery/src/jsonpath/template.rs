//! Templates: text, paths in braces, `{range}` and `{end}`.

use super::{EvalError, MissingKeys, Node, ParseError, Segment, Walk, parse};
use crate::{Value, go};

/// Text with paths in braces.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    nodes: Vec<Node>,
    missing: MissingKeys,
}

impl Template {
    pub fn parse(text: &str, missing: MissingKeys) -> Result<Self, ParseError> {
        Ok(Self { nodes: parse::template(text)?, missing })
    }

    /// Returns the values of each text and action in order, those inside a range once for each of its values.
    pub fn find<'a>(&'a self, root: &'a Value) -> Result<Vec<Vec<&'a Value>>, EvalError> {
        let walk = Walk { missing: self.missing, results_max: usize::MAX };
        let mut run = Run { walk, nodes: &self.nodes, last_end: None, depth: 0, results: Vec::new() };
        run.block(0, Some(root))?;
        Ok(run.results)
    }

    /// Formats the values of an object: those of one action are separated by spaces.
    pub fn execute(&self, root: &Value) -> Result<String, EvalError> {
        let mut out = String::new();
        for values in self.find(root)? {
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(&print(value));
            }
        }
        Ok(out)
    }
}

/// Formats a result like kubectl: objects and lists as JSON, others as text.
pub(super) fn print(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) | Value::Object(_) => go::json(value),
        _ => go::display(value),
    }
}

struct Run<'a> {
    walk: Walk,
    nodes: &'a [Node],
    /// The last `{end}` that ended a range.
    last_end: Option<usize>,
    /// The number of open ranges.
    depth: usize,
    results: Vec<Vec<&'a Value>>,
}

impl<'a> Run<'a> {
    /// Evaluates nodes up to the end of the range that starts before `start`, or up to the last one. A range without
    /// values evaluates its nodes with nothing, only to find its end.
    fn block(&mut self, start: usize, current: Option<&'a Value>) -> Result<(), EvalError> {
        let mut at = start;
        while let Some(node) = self.nodes.get(at) {
            let values = match node {
                Node::Text(text) => vec![text],
                Node::Action(steps) => self.walk.follow(steps, Vec::from_iter(current))?,
            };
            if node.has("end") {
                if self.depth == 0 {
                    return Err(EvalError::End);
                }
                self.last_end = Some(at);
                return Ok(());
            }
            if node.has("range") {
                self.range(at + 1, &values)?;
                // The nodes of a range without `{end}` are evaluated once more after the range.
                at = self.last_end.filter(|end| *end > at).unwrap_or(at);
            } else {
                self.results.push(values);
            }
            at += 1;
        }
        Ok(())
    }

    fn range(&mut self, body: usize, values: &[&'a Value]) -> Result<(), EvalError> {
        self.depth += 1;
        if values.is_empty() {
            let base_len = self.results.len();
            self.block(body, None)?;
            self.results.truncate(base_len);
        }
        for value in values {
            self.block(body, Some(value))?;
        }
        self.depth -= 1;
        Ok(())
    }
}

impl Node {
    fn has(&self, word: &str) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Action(steps) => steps.iter().filter_map(Segment::identifier).any(|found| found == word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json, value};

    fn run(text: &str, missing: MissingKeys) -> String {
        let list = value!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"app": "x"}}, "spec": {"replicas": 3, "f": 1.5, "none": null,
                "list": [1, 2, 3]}, "status": {"on": true, "list": [{"ip": "1"}, {"ip": "2"}]}},
            {"metadata": {"name": "b"}, "spec": {"replicas": 1, "html": "<&>"}, "status": {"list": [{"ip": "3"}]}}
        ], "empty": []});
        match Template::parse(text, missing) {
            Ok(template) => template.execute(&list).unwrap_or_else(|error| format!("error: {error}")),
            Err(error) => format!("parse: {error}"),
        }
    }

    #[test]
    fn templates_print_like_kubectl() {
        let check = |text: &str, expect: &str| assert_eq!(run(text, MissingKeys::Allow), expect, "{text}");
        // The expected results are those of k8s.io/client-go/util/jsonpath v1.36.
        let cases = json::parse(include_bytes!("template/cases.json")).unwrap();
        for case in cases.as_array().unwrap() {
            check(case[0].as_str().unwrap(), case[1].as_str().unwrap());
        }
    }

    #[test]
    fn missing_keys_can_be_errors() {
        let check = |text: &str, expect: &str| assert_eq!(run(text, MissingKeys::Reject), expect, "{text}");
        check("{.none}", "error: none is not found");
        check("{.items[*].metadata.labels.app}", "x");
        check("{.items[?(@.metadata.labels.app)].metadata.name}", "a");
        check("{.items[?(@.metadata.labels.app==\"x\")].metadata.name}", "error: labels is not found");
        check("{range .empty[*]}{.name}{end}ok", "ok");
    }
}
