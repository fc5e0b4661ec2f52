//! The objects in the text of a manifest, each with its line.

use apimachinery::list::{self, KindMissing};
use apimachinery::{GroupVersionKind, Value, json, yaml};

/// An object of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    pub object: Value,
    /// The first line of the document; items of a list have the line of the list.
    pub line: usize,
}

/// The text cannot be used as a whole: no object of it is applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct ParseError {
    /// Zero if the problem has no line.
    pub line: usize,
    pub problem: String,
}

/// Parses YAML, or JSON if the text starts with a brace and is JSON. Lists are replaced by their items.
pub(crate) fn parse(text: &str) -> Result<Vec<Document>, ParseError> {
    let mut documents = Vec::new();
    if text.trim_start().starts_with('{')
        && let Ok(objects) = json::parse_all(text.as_bytes())
    {
        for object in objects {
            add(object, 1, &mut documents)?;
        }
        return Ok(documents);
    }
    let mut parsed = yaml::documents(text).with_lines();
    while let Some(object) = parsed.next() {
        let object = object.map_err(|error| match error {
            yaml::Error::Syntax(error) => ParseError { line: error.marker().line(), problem: error.info().clone() },
            error => ParseError { line: 0, problem: error.to_string() },
        })?;
        if let Some(repeated) = parsed.repeated().first() {
            return Err(ParseError { line: 0, problem: repeated.clone() });
        }
        let line = parsed.lines().first().map_or(1, |(_, line)| *line);
        add(object, line, &mut documents)?;
    }
    Ok(documents)
}

fn add(object: Value, line: usize, documents: &mut Vec<Document>) -> Result<(), ParseError> {
    let invalid = |problem: &str| ParseError { line, problem: problem.to_owned() };
    if object.is_null() {
        return Ok(());
    }
    if object.as_object().is_none() {
        return Err(invalid("the document is not an object: it needs apiVersion, kind and metadata"));
    }
    let mut objects = Vec::new();
    list::flatten(object, &mut objects).map_err(|KindMissing(_)| invalid("kind is not set"))?;
    for object in objects {
        if object.text_at(&["apiVersion"]).is_empty() || GroupVersionKind::of_object(&object).is_err() {
            return Err(invalid("apiVersion is not set, or not of the form GROUP/VERSION"));
        }
        if object.text_at(&["metadata", "name"]).is_empty() {
            return Err(invalid("metadata.name is not set; an object in a file needs a name"));
        }
        documents.push(Document { object, line });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_their_lines() {
        let text = "# first\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n---\n# c\n\
            apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n";
        let found = parse(text).unwrap();
        let found: Vec<_> = found.iter().map(|it| (it.object.text_at(&["kind"]), it.line)).collect();
        assert_eq!(found, [("Secret", 3), ("Pod", 9)]);
        let json = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}"#;
        assert_eq!(parse(&format!("{json}\n{json}")).unwrap().len(), 2);
        assert_eq!(parse("{apiVersion: v1, kind: Pod, metadata: {name: a}}").unwrap().len(), 1, "YAML in braces");
        assert_eq!(parse("\n# nothing\n---\n").unwrap(), []);
    }

    #[test]
    fn unusable_documents_are_reported_with_the_line() {
        let check = |text: &str, line: usize, expect: &str| {
            let error = parse(text).unwrap_err();
            assert!(error.line == line && error.problem.contains(expect), "{text}: {error:?}");
        };
        check("apiVersion: v1\nkind: Pod\nspec: [a\n", 3, "unclosed bracket");
        check("a: 1\na: 2\n", 0, "line 2: key \"a\" already set");
        check("\n\ntext\n", 1, "is not an object");
        check("---\napiVersion: v1\n", 2, "kind is not set");
        check("kind: Pod\n", 1, "apiVersion is not set");
        check("apiVersion: a/b/c\nkind: Pod\n", 1, "apiVersion is not set, or not");
        check("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n", 1, "needs a name");
        check(r#"{"apiVersion": "v1","#, 1, "");
    }
}
