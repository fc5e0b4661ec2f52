//! YAML and TOML texts as trees with the line of each key.

use apimachinery::{Object, Str, Value, yaml};
use toml_edit::{Array, Document, InlineTable, Item, Table};

/// A tree, and the path and line of each key in the order of the text.
type Parsed = (Value, Vec<(Vec<Str>, usize)>);

/// Parses a single YAML document without duplicate keys. An empty text is `null`.
pub(super) fn yaml(text: &str) -> Result<Parsed, String> {
    let mut documents = yaml::documents(text).with_bool_words_as_text().with_lines();
    let described = |error: yaml::Error| match error {
        // The parser's own message names the line.
        yaml::Error::Syntax(error) => format!("yaml: {error}"),
        error => error.to_string(),
    };
    let root = documents.next().transpose().map_err(described)?.unwrap_or_default();
    if let Some(repeated) = documents.repeated().first() {
        return Err(repeated.clone());
    }
    let lines = documents.lines().to_vec();
    match documents.next() {
        None => Ok((root, lines)),
        Some(Ok(_)) => Err("the file has more than one document".to_owned()),
        Some(Err(error)) => Err(described(error)),
    }
}

/// Parses a TOML document.
pub(super) fn toml(text: &str) -> Result<Parsed, String> {
    let document = Document::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        format!("line {line}: {}", error.message())
    })?;
    let mut reader = TomlReader { text, lines: Vec::new() };
    let root = reader.table(document.as_table(), &[]);
    let TomlReader { mut lines, .. } = reader;
    lines.sort_by_key(|(_, line)| *line);
    Ok((root, lines))
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

struct TomlReader<'t> {
    text: &'t str,
    lines: Vec<(Vec<Str>, usize)>,
}

impl TomlReader<'_> {
    fn table(&mut self, table: &Table, path: &[Str]) -> Value {
        let mut object = Object::new();
        for (name, item) in table {
            let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            let path = self.enter(path, name, span);
            let value = match item {
                Item::None => Value::Null,
                Item::Value(value) => self.value(value, &path),
                Item::Table(table) => self.table(table, &path),
                Item::ArrayOfTables(tables) => {
                    let items = tables.iter().enumerate().map(|(index, table)| {
                        let path = self.enter(&path, &index.to_string(), table.span());
                        self.table(table, &path)
                    });
                    Value::Array(items.collect())
                }
            };
            object.insert(name, value);
        }
        Value::Object(object)
    }

    fn value(&mut self, value: &toml_edit::Value, path: &[Str]) -> Value {
        match value {
            toml_edit::Value::String(text) => text.value().as_str().into(),
            toml_edit::Value::Integer(number) => Value::Int(*number.value()),
            toml_edit::Value::Float(number) => Value::Float(*number.value()),
            toml_edit::Value::Boolean(flag) => Value::Bool(*flag.value()),
            toml_edit::Value::Datetime(time) => time.value().to_string().as_str().into(),
            toml_edit::Value::Array(items) => self.array(items, path),
            toml_edit::Value::InlineTable(table) => self.inline_table(table, path),
        }
    }

    fn array(&mut self, items: &Array, path: &[Str]) -> Value {
        let items = items.iter().enumerate().map(|(index, item)| {
            let path = self.enter(path, &index.to_string(), item.span());
            self.value(item, &path)
        });
        Value::Array(items.collect())
    }

    fn inline_table(&mut self, table: &InlineTable, path: &[Str]) -> Value {
        let mut object = Object::new();
        for (name, item) in table {
            let path = self.enter(path, name, item.span());
            let value = self.value(item, &path);
            object.insert(name, value);
        }
        Value::Object(object)
    }

    fn enter(&mut self, path: &[Str], name: &str, span: Option<std::ops::Range<usize>>) -> Vec<Str> {
        let path: Vec<Str> = path.iter().cloned().chain([name.into()]).collect();
        if let Some(span) = span {
            self.lines.push((path.clone(), line_of(self.text, span.start)));
        }
        path
    }
}
