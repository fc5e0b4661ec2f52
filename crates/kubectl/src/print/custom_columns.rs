//! `-o custom-columns` and `-o custom-columns-file`.

use apimachinery::jsonpath::{MissingKeys, Template};
use apimachinery::{Value, go};

use super::format::PrintError;
use super::jsonpath::{RelaxedError, relaxed};
use super::tabwriter::TabWriter;
use super::{escape_terminal, items};

/// A specification of columns is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("custom-columns format specified but no custom columns given")]
    Empty,
    #[error("unexpected custom-columns spec: {0}, expected <header>:<json-path-expr>")]
    Column(String),
    #[error(
        "invalid template, missing header line. Expected format is one line of space separated headers, one line of \
         space separated column specs."
    )]
    NoHeaders,
    #[error(
        "invalid template, missing spec line. Expected format is one line of space separated headers, one line of \
         space separated column specs."
    )]
    NoSpecs,
    #[error("number of headers ({headers}) and field specifications ({specs}) don't match")]
    Count { headers: usize, specs: usize },
    #[error(transparent)]
    Path(#[from] RelaxedError),
}

/// Prints one column per path.
#[derive(Clone, Debug)]
pub struct CustomColumns {
    columns: Vec<Column>,
    /// Whether the headers are still to be printed.
    prints_headers: bool,
}

#[derive(Clone, Debug)]
struct Column {
    header: String,
    path: String,
}

impl CustomColumns {
    /// Parses `HEADER:path,HEADER:path`.
    pub fn parse(spec: &str, headers: Headers) -> Result<Self, SpecError> {
        if spec.is_empty() {
            return Err(SpecError::Empty);
        }
        let columns = spec.split(',').map(|column| {
            let (header, path) = column.split_once(':').ok_or_else(|| SpecError::Column(column.to_owned()))?;
            Ok(Column { header: header.to_owned(), path: relaxed(path)? })
        });
        let columns = columns.collect::<Result<_, SpecError>>()?;
        Ok(Self { columns, prints_headers: headers == Headers::Shown })
    }

    /// Parses a file of two lines: headers and paths, separated by white space.
    pub fn parse_file(text: &str) -> Result<Self, SpecError> {
        let mut lines = text.lines();
        let headers: Vec<_> = lines.next().ok_or(SpecError::NoHeaders)?.split_whitespace().collect();
        let specs: Vec<_> = lines.next().ok_or(SpecError::NoSpecs)?.split_whitespace().collect();
        if headers.len() != specs.len() {
            return Err(SpecError::Count { headers: headers.len(), specs: specs.len() });
        }
        let columns = headers.iter().zip(specs);
        let columns = columns.map(|(header, spec)| Ok(Column { header: (*header).to_owned(), path: relaxed(spec)? }));
        Ok(Self { columns: columns.collect::<Result<_, RelaxedError>>()?, prints_headers: true })
    }

    /// Returns the cells of an object, or of all items of a list, separated by tabs; headers come before the first row.
    pub fn rows(&mut self, object: &Value) -> Result<String, PrintError> {
        let mut out = String::new();
        if std::mem::take(&mut self.prints_headers) {
            let headers: Vec<_> = self.columns.iter().map(|column| column.header.as_str()).collect();
            out.push_str(&headers.join("\t"));
            out.push('\n');
        }
        let paths = self.columns.iter().map(|column| Template::parse(&column.path, MissingKeys::Allow));
        let paths = match paths.collect::<Result<Vec<_>, _>>() {
            Ok(paths) => paths,
            Err(error) => return Err(PrintError { output: out, message: error.to_string() }),
        };
        for item in items(object) {
            match paths.iter().map(|path| cell(path, item)).collect::<Result<Vec<_>, _>>() {
                Ok(cells) => {
                    out.push_str(&cells.join("\t"));
                    out.push('\n');
                }
                Err(error) => return Err(PrintError { output: out, message: error.to_string() }),
            }
        }
        Ok(out)
    }

    /// Returns the aligned rows of an object.
    pub fn print(&mut self, object: &Value) -> Result<String, PrintError> {
        let mut writer = TabWriter::for_tables();
        match self.rows(object) {
            Ok(rows) => Ok(writer.format(&rows)),
            Err(error) => Err(PrintError { output: writer.format(&error.output), ..error }),
        }
    }
}

/// Whether a header line is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    #[default]
    Shown,
    Hidden,
}

fn cell(path: &Template, item: &Value) -> Result<String, apimachinery::jsonpath::EvalError> {
    let found = path.find(item)?;
    let mut values = Vec::new();
    if found.first().is_none_or(Vec::is_empty) {
        values.push("<none>".to_owned());
    }
    values.extend(found.into_iter().flatten().map(|value| escape_terminal(&go::display(value)).into_owned()));
    Ok(values.join(","))
}

#[cfg(test)]
mod tests {
    use apimachinery::{json, value};

    use super::*;

    fn list() -> Value {
        value!({"apiVersion": "v1", "kind": "List", "items": [
            {"metadata": {"name": "first-pod", "labels": {"a": "b"}}, "spec": {"n": 1.5, "list": [1, "x"], "no": null}},
            {"metadata": {"name": "b"}, "spec": {"list": [], "text": "a\u{1b}[31m"}}
        ]})
    }

    #[test]
    fn columns_are_printed_like_kubectl() {
        let check = |spec: &str, expect: &str| {
            let printed = CustomColumns::parse(spec, Headers::Shown).map(|mut columns| columns.print(&list()));
            let printed = match printed {
                Ok(Ok(text)) => text,
                Ok(Err(error)) => format!("{}error: {error}", error.output),
                Err(error) => format!("error: {error}"),
            };
            assert_eq!(printed, expect, "{spec}");
        };
        // The expected results are those of kubectl v1.36.
        let cases = json::parse(include_bytes!("custom_columns/cases.json")).unwrap();
        for case in cases.as_array().unwrap() {
            check(case[0].as_str().unwrap(), case[1].as_str().unwrap());
        }
    }

    #[test]
    fn files_have_a_line_of_headers_and_a_line_of_paths() {
        let mut columns = CustomColumns::parse_file("NAME  N\n{metadata.name} spec.n\n").unwrap();
        assert_eq!(columns.print(&list()).unwrap(), "NAME        N\nfirst-pod   1.5\nb           <none>\n");
        assert_eq!(columns.print(&list()["items"][1]).unwrap(), "b     <none>\n");
        assert_eq!(CustomColumns::parse_file("A B\nx\n").unwrap_err(), SpecError::Count { headers: 2, specs: 1 });
        assert_eq!(CustomColumns::parse_file("A B\n").unwrap_err(), SpecError::NoSpecs);
        assert_eq!(CustomColumns::parse_file("").unwrap_err(), SpecError::NoHeaders);
    }
}
