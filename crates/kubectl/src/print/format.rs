//! `-o`: from a format's name to its printer.

use std::fmt;
use std::io::Write;
use std::path::Path;

use apimachinery::jsonpath::MissingKeys;
use apimachinery::{Value, go};

use super::custom_columns::{CustomColumns, Headers};
use super::go_template::GoTemplate;
use super::jsonpath::JsonPathPrinter;
use super::yaml::YamlPrinter;
use super::{json, kyaml, name, omit_managed_fields};
use crate::{Failure, Invocation};

/// The formats that a command offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formats {
    /// json, yaml, name and templates.
    Common,
    /// Also custom columns and wide tables.
    Get,
}

/// The flags that select a printer.
#[derive(Clone, Copy, Debug)]
pub struct Format<'a> {
    pub formats: Formats,
    /// `--output`
    pub output: &'a str,
    /// `--template`
    pub template: &'a str,
    /// `--allow-missing-template-keys`
    pub missing: MissingKeys,
    /// `--show-managed-fields`
    pub show_managed_fields: bool,
    /// `--no-headers`
    pub headers: Headers,
}

/// Prints objects in a format.
#[derive(Debug)]
pub struct Printer {
    kind: PrinterKind,
    show_managed_fields: bool,
}

/// A format with its state.
#[derive(Debug)]
pub enum PrinterKind {
    /// Human-readable output: a table, or a message such as `pod/a created`.
    Human,
    /// A table with all columns.
    Wide,
    Json,
    Yaml(YamlPrinter),
    Kyaml,
    Name,
    JsonPath(JsonPathPrinter),
    GoTemplate(GoTemplate),
    CustomColumns(CustomColumns),
}

/// `--output` or `--template` has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(String);

/// An object cannot be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintError {
    /// Text that is printed nevertheless.
    pub output: String,
    pub message: String,
}

const TEMPLATE_FORMATS: [&str; 4] = ["template", "go-template", "go-template-file", "templatefile"];
const JSONPATH_FORMATS: [&str; 3] = ["jsonpath", "jsonpath-file", "jsonpath-as-json"];
const COLUMN_FORMATS: [&str; 2] = ["custom-columns", "custom-columns-file"];
const OBJECT_FORMATS: [&str; 4] = ["json", "yaml", "kyaml", "name"];

impl Formats {
    /// Returns the names in the order of `--help`.
    pub fn names(self) -> Vec<&'static str> {
        let mut names = OBJECT_FORMATS.to_vec();
        names.extend(["go-template", "go-template-file", "template", "templatefile"]);
        names.extend(["jsonpath", "jsonpath-as-json", "jsonpath-file"]);
        if self == Self::Get {
            names.extend(COLUMN_FORMATS);
            names.push("wide");
        }
        names
    }
}

impl<'a> Format<'a> {
    /// Returns the format that the flags of a command select.
    pub fn of(invocation: &'a Invocation, formats: Formats) -> Self {
        let bool = |name| invocation.has(name) && invocation.bool(name);
        Self {
            formats,
            output: invocation.text("output"),
            template: if invocation.has("template") { invocation.text("template") } else { "" },
            missing: match invocation.has("allow-missing-template-keys") && !bool("allow-missing-template-keys") {
                true => MissingKeys::Reject,
                false => MissingKeys::Allow,
            },
            show_managed_fields: bool("show-managed-fields"),
            headers: if bool("no-headers") { Headers::Hidden } else { Headers::Shown },
        }
    }

    pub const fn new(formats: Formats, output: &'a str) -> Self {
        Self {
            formats,
            output,
            template: "",
            missing: MissingKeys::Allow,
            show_managed_fields: false,
            headers: Headers::Shown,
        }
    }

    /// Returns the printer; reads the template from its file if necessary.
    pub fn printer(&self) -> Result<Printer, FormatError> {
        self.kind().map(|kind| Printer { kind, show_managed_fields: self.show_managed_fields })
    }

    fn kind(&self) -> Result<PrinterKind, FormatError> {
        let output = if self.output.is_empty() && !self.template.is_empty() { "go-template" } else { self.output };
        match output.to_lowercase().as_str() {
            "" => return Ok(PrinterKind::Human),
            "json" => return Ok(PrinterKind::Json),
            "yaml" => return Ok(PrinterKind::Yaml(YamlPrinter::default())),
            "kyaml" => return Ok(PrinterKind::Kyaml),
            "name" => return Ok(PrinterKind::Name),
            _ => {}
        }
        if let Some((format, text)) = self.split(output, &JSONPATH_FORMATS) {
            return self.jsonpath(format, text);
        }
        if let Some((format, text)) = self.split(output, &TEMPLATE_FORMATS) {
            return self.go_template(format, text);
        }
        if self.formats == Formats::Get {
            if output == "wide" {
                return Ok(PrinterKind::Wide);
            }
            if let Some((format, text)) = self.split(output, &COLUMN_FORMATS) {
                return self.custom_columns(format, text);
            }
        }
        let mut allowed = self.formats.names();
        allowed.sort_unstable();
        let (output, allowed) = (go::quote(self.output), allowed.join(","));
        Err(FormatError(format!(
            "unable to match a printer suitable for the output format {output}, allowed formats are: {allowed}"
        )))
    }

    /// Splits `format=text`; with `--template`, the format stands alone.
    fn split<'o>(&'o self, output: &'o str, formats: &[&str]) -> Option<(&'o str, &'o str)> {
        let (format, text) = match output.split_once('=') {
            Some(split) if self.template.is_empty() => split,
            _ => (output, self.template),
        };
        formats.contains(&format).then_some((format, text))
    }

    fn jsonpath(&self, format: &str, text: &str) -> Result<PrinterKind, FormatError> {
        let text = template_text(text, format == "jsonpath-file")?;
        let printer = JsonPathPrinter::new(&text, self.missing)
            .map_err(|error| FormatError(format!("error parsing jsonpath {text}, {error}")))?;
        Ok(PrinterKind::JsonPath(if format == "jsonpath-as-json" { printer.as_json() } else { printer }))
    }

    fn go_template(&self, format: &str, text: &str) -> Result<PrinterKind, FormatError> {
        let text = template_text(text, matches!(format, "templatefile" | "go-template-file"))?;
        let template = GoTemplate::parse(&text, self.missing)
            .map_err(|error| FormatError(format!("error parsing template {text}, {error}")))?;
        Ok(PrinterKind::GoTemplate(template))
    }

    fn custom_columns(&self, format: &str, text: &str) -> Result<PrinterKind, FormatError> {
        let columns = if text.is_empty() || format == "custom-columns" {
            CustomColumns::parse(text, self.headers)
        } else {
            let file = std::fs::read_to_string(text)
                .map_err(|error| FormatError(format!("error reading template {text}, {}\n", go_error(text, &error))))?;
            CustomColumns::parse_file(&file)
        };
        columns.map(PrinterKind::CustomColumns).map_err(|error| FormatError(error.to_string()))
    }
}

impl Printer {
    pub const fn kind(&self) -> &PrinterKind {
        &self.kind
    }

    /// Whether the output is human-readable: a table or a message instead of the object.
    pub const fn is_human(&self) -> bool {
        matches!(self.kind, PrinterKind::Human | PrinterKind::Wide)
    }

    /// Prints an object or a list to `out`, also the text before a failure.
    pub fn write(&mut self, object: &Value, out: &mut impl Write) -> Result<(), Failure> {
        match self.print(object) {
            Ok(text) => Ok(out.write_all(text.as_bytes())?),
            Err(error) => {
                out.write_all(error.output.as_bytes())?;
                Err(Failure::new(error.message))
            }
        }
    }

    /// Prints an object, or in human-readable output its operation: `pod/a labeled`.
    pub fn write_operation(&mut self, object: &Value, done: &str, out: &mut impl Write) -> Result<(), Failure> {
        match self.kind {
            PrinterKind::Human => Ok(out.write_all(name::print_operation(object, done).as_bytes())?),
            _ => self.write(object, out),
        }
    }

    /// Prints an object or a list. The caller prints tables and messages; here they are printed like `name`.
    pub fn print(&mut self, object: &Value) -> Result<String, PrintError> {
        let hidden = !self.show_managed_fields && has_managed_fields(object);
        let mut stripped = Value::Null;
        let object = match &self.kind {
            PrinterKind::Json | PrinterKind::Yaml(_) | PrinterKind::Kyaml if hidden => {
                stripped.clone_from(object);
                omit_managed_fields(&mut stripped);
                &stripped
            }
            _ => object,
        };
        match &mut self.kind {
            PrinterKind::Human | PrinterKind::Wide | PrinterKind::Name => Ok(name::print(object)),
            PrinterKind::Json => Ok(json::print(object)),
            PrinterKind::Yaml(printer) => Ok(printer.print(object)),
            PrinterKind::Kyaml => Ok(kyaml::print(object)),
            PrinterKind::JsonPath(printer) => printer.print(object),
            PrinterKind::GoTemplate(template) => template.print(object),
            PrinterKind::CustomColumns(columns) => columns.print(object),
        }
    }
}

impl PrintError {
    /// Creates an error without output.
    pub const fn new(message: String) -> Self {
        Self { output: String::new(), message }
    }
}

impl fmt::Display for PrintError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for PrintError {}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        Self::new(error.0)
    }
}

fn has_managed_fields(object: &Value) -> bool {
    let has = |object: &Value| object.at(&["metadata", "managedFields"]).is_some();
    has(object) || object.get("items").and_then(Value::as_array).unwrap_or_default().iter().any(has)
}

fn template_text(text: &str, is_file: bool) -> Result<String, FormatError> {
    if text.is_empty() {
        return Err(FormatError("template format specified but no template given".to_owned()));
    }
    if !is_file {
        return Ok(text.to_owned());
    }
    std::fs::read_to_string(Path::new(text))
        .map_err(|error| FormatError(format!("error reading --template {text}, {}", go_error(text, &error))))
}

/// Formats a failure to open a file like Go.
fn go_error(path: &str, error: &std::io::Error) -> String {
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => return format!("read {path}: is a directory"),
        _ => error.to_string(),
    };
    format!("open {path}: {reason}")
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn printed(format: Format<'_>) -> String {
        let object = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "managedFields": []}});
        match format.printer() {
            Ok(mut printer) => printer.print(&object).unwrap_or_else(|error| format!("error: {error}")),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn formats_select_their_printer() {
        let check = |output: &str, expect: &str| assert_eq!(printed(Format::new(Formats::Get, output)), expect);
        check("name", "pod/a\n");
        check("YAML", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n");
        check("jsonpath={.metadata.name}", "a");
        check("jsonpath={#=}", "error: error parsing jsonpath {#=}, unrecognized character in action: U+0023 '#'");
        check("go-template={{.kind}}", "Pod");
        check("template={{.kind}}", "Pod");
        check("go-template={{.kind", "error: error parsing template {{.kind, template: output:1: unclosed action");
        check("custom-columns=N:.kind", "N\nPod\n");
        check("custom-columns", "error: custom-columns format specified but no custom columns given");
        check("jsonpath", "error: template format specified but no template given");
        check("go-template-file=/none", "error: error reading --template /none, open /none: no such file or directory");
        check(
            "x",
            "error: unable to match a printer suitable for the output format \"x\", allowed formats are: \
             custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,jsonpath-as-json,\
             jsonpath-file,kyaml,name,template,templatefile,wide,yaml",
        );
    }

    #[test]
    fn common_formats_lack_those_of_get() {
        for output in ["wide", "custom-columns=A:.b"] {
            let error = Format::new(Formats::Common, output).printer().unwrap_err().to_string();
            assert!(error.starts_with("unable to match a printer"), "{error}");
            assert!(!error.contains("wide,"), "{error}");
        }
    }

    #[test]
    fn template_flag_supplies_the_text() {
        let format = Format { template: "{{.kind}}!", ..Format::new(Formats::Common, "") };
        assert_eq!(printed(format), "Pod!");
        assert_eq!(printed(Format { template: "{.kind}", output: "jsonpath", ..format }), "Pod");
    }

    #[test]
    fn managed_fields_are_hidden_unless_requested() {
        let format = Format { show_managed_fields: true, ..Format::new(Formats::Get, "yaml") };
        assert_eq!(printed(format), "apiVersion: v1\nkind: Pod\nmetadata:\n  managedFields: []\n  name: a\n");
    }
}
