//! Common parts of commands that change objects: `--dry-run`, `--validate`, `--record` and the printed results.

use std::io::Write;
use std::time::SystemTime;

use apimachinery::json::Encoder;
use apimachinery::jsonpath::MissingKeys;
use apimachinery::time::Time;
use apimachinery::{Value, go};
use client::{FieldValidation, WriteOptions};

use crate::command::Flag;
use crate::print::format::PrinterKind;
use crate::print::{Format, Formats, Printer, json, name, omit_managed_fields};
use crate::{Context, Failure, Invocation, flags};

/// Annotates objects with the command that changed them.
pub const RECORD: &[Flag] =
    &[Flag::bool("record", "Store this command line in the kubernetes.io/change-cause annotation of the object.")
        .deprecated("--record will be removed in the future")];

/// The annotation with the command that changed an object.
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// The value of `--dry-run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// The change is made.
    None,
    /// Nothing is sent.
    Client,
    /// The server processes the request without storing the result.
    Server,
}

/// The types with which kubectl handles the objects of a command, which determine the order of fields in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Go's types of the built-in kinds.
    Typed,
    /// Maps, whose keys are sorted.
    Untyped,
}

/// Prints the objects of a command that changes them: a message, or the object in the format of `--output`.
pub struct Results<'a> {
    context: &'a Context,
    printer: Printer,
    dry_run: DryRun,
    form: Form,
    show_managed_fields: bool,
}

impl DryRun {
    /// Reads `--dry-run`.
    pub fn of(context: &Context, invocation: &Invocation) -> Result<Self, Failure> {
        let text = invocation.text("dry-run");
        let warn = |line: u32, form: &str, instead| {
            let flag = format!("--dry-run{form} can be replaced with --dry-run={instead}.");
            log_warning(context, &format!("helpers.go:{line}"), &flag);
        };
        match text {
            "unchanged" => {
                warn(719, " is deprecated and", "client");
                Ok(Self::Client)
            }
            "client" => Ok(Self::Client),
            "server" => Ok(Self::Server),
            "none" => Ok(Self::None),
            other => match flags::parse_bool(other) {
                Some(true) => {
                    warn(733, &format!("={other} is deprecated (boolean value) and"), "client");
                    Ok(Self::Client)
                }
                Some(false) => {
                    warn(736, &format!("={other} is deprecated (boolean value) and"), "none");
                    Ok(Self::None)
                }
                None => Err(Failure::new(format!(
                    "Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\"."
                ))),
            },
        }
    }

    /// Appends the kind of dry run to a message: `created (dry run)`.
    pub fn message(self, operation: &str) -> String {
        match self {
            Self::None => operation.to_owned(),
            Self::Client => format!("{operation} (dry run)"),
            Self::Server => format!("{operation} (server dry run)"),
        }
    }
}

impl<'a> Results<'a> {
    /// Reads `--output`, `--template` and the flags beside them.
    pub fn new(context: &'a Context, invocation: &Invocation, dry_run: DryRun, form: Form) -> Result<Self, Failure> {
        let missing =
            if invocation.bool("allow-missing-template-keys") { MissingKeys::Allow } else { MissingKeys::Reject };
        let format = Format {
            template: invocation.text("template"),
            missing,
            show_managed_fields: invocation.bool("show-managed-fields"),
            ..Format::new(Formats::Common, invocation.text("output"))
        };
        let printer = format.printer().map_err(|error| Failure::new(error.to_string()))?;
        Ok(Self { context, printer, dry_run, form, show_managed_fields: format.show_managed_fields })
    }

    /// Prints an object after an operation, such as `created`.
    pub fn print(&mut self, object: &Value, operation: &str) -> Result<(), Failure> {
        let text = match self.printer.kind() {
            PrinterKind::Human | PrinterKind::Wide => name::print_operation(object, &self.dry_run.message(operation)),
            PrinterKind::Json if self.form == Form::Typed => typed_json(&self.rendered(object)),
            _ => match self.printer.print(object) {
                Ok(text) => text,
                Err(error) => {
                    self.context.out().write_all(error.output.as_bytes())?;
                    return Err(Failure::new(error.message));
                }
            },
        };
        self.context.out().write_all(text.as_bytes())?;
        Ok(())
    }

    /// Returns the object without managed fields, unless they are requested.
    fn rendered(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if !self.show_managed_fields {
            omit_managed_fields(&mut object);
        }
        object
    }

    /// Writes a text between objects.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        Ok(self.context.out().write_all(text.as_bytes())?)
    }
}

/// Returns an object of a built-in kind as JSON with the fields in the order of its Go type.
pub fn typed_json(object: &Value) -> String {
    let mut text = Vec::new();
    Encoder::new(api::catalogue::find).write(object, &mut text);
    let mut text = json::indent(&String::from_utf8_lossy(&text));
    text.push('\n');
    text
}

/// Reads `--validate`.
pub fn field_validation(invocation: &Invocation) -> Result<FieldValidation, Failure> {
    match invocation.text("validate") {
        "strict" => Ok(FieldValidation::Strict),
        "warn" => Ok(FieldValidation::Warn),
        "ignore" => Ok(FieldValidation::Ignore),
        other => match flags::parse_bool(other) {
            Some(true) => Ok(FieldValidation::Strict),
            Some(false) => Ok(FieldValidation::Ignore),
            None => Err(Failure::new(format!(
                "invalid - validate option {}; must be one of: strict (or true), warn, ignore (or false)",
                go::quote(other)
            ))),
        },
    }
}

/// Returns the options of a write with `--field-manager`, and with `--validate` if the command has it.
pub fn write_options(invocation: &Invocation, dry_run: DryRun) -> Result<WriteOptions, Failure> {
    let field_validation = if invocation.has("validate") { Some(field_validation(invocation)?) } else { None };
    Ok(WriteOptions {
        dry_run: dry_run == DryRun::Server,
        field_manager: invocation.text("field-manager").to_owned(),
        field_validation,
        ..WriteOptions::default()
    })
}

/// Annotates an object with the command line, if `--record` is given.
pub fn record(invocation: &Invocation, object: &mut Value) {
    if !invocation.bool("record") {
        return;
    }
    let Some(fields) = object.as_object_mut() else { return };
    let Some(metadata) = fields.get_or_insert_with("metadata", Value::object).as_object_mut() else { return };
    let annotations = metadata.get_or_insert_with("annotations", Value::object);
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(CHANGE_CAUSE, invocation.command_line());
    }
}

/// Fails if a required flag is not given.
pub fn require(invocation: &Invocation, names: &[&str]) -> Result<(), Failure> {
    let missing: Vec<String> =
        names.iter().filter(|name| !invocation.is_set(name)).map(|name| go::quote(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("required flag(s) {} not set", missing.join(", "))))
}

/// Returns the message of a failure as it appears inside of another one.
pub fn inner_message(failure: &Failure) -> String {
    failure.cause().to_owned()
}

/// Prints a warning in the format of kubectl's log.
pub fn log_warning(context: &Context, place: &str, text: &str) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Time::from_unix(i64::try_from(since.as_secs()).unwrap_or_default(), since.subsec_nanos());
    let now = now.micro().to_string();
    let (month, day, time) = (&now[5..7], &now[8..10], &now[11..26]);
    let pid = std::process::id();
    let _ = writeln!(context.err(), "W{month}{day} {time} {pid:>7} {place}] {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_kind_of_dry_run() {
        for (dry_run, expect) in [
            (DryRun::None, "created"),
            (DryRun::Client, "created (dry run)"),
            (DryRun::Server, "created (server dry run)"),
        ] {
            assert_eq!(dry_run.message("created"), expect);
        }
    }
}
