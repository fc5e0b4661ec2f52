//! `kubectl kuberc view`.

use std::io::{BufRead, Write};

use apimachinery::{Object, Value, value};

use super::{empty, location, read, save};
use crate::command::{Command, Flag};
use crate::print::format::PrinterKind;
use crate::print::{Format, Formats, json};
use crate::{Context, Failure, Invocation};

pub(super) static VIEW: Command = Command {
    name: "view",
    summary: "Print the user preferences",
    description: "Print the kuberc file in YAML or another format.",
    examples: "  # Print the preferences as YAML
  kubectl kuberc view

  # Print the preferences of another file as JSON
  kubectl kuberc view --kuberc ./team.kuberc --output json",
    usage: "kubectl kuberc view [options]",
    flags: &[&[
        Flag::bool(
            "allow-missing-template-keys",
            "Treat fields and keys that a Go template or JSONPath expression does not find as empty instead of failing.",
        )
        .default("true"),
        Flag::text(
            "output",
            "yaml",
            "Print the result in another format. One of: (json, yaml, kyaml, name, go-template, \
                go-template-file, template, templatefile, jsonpath, jsonpath-as-json, jsonpath-file).",
        )
        .short('o'),
        Flag::bool("show-managed-fields", "Include metadata.managedFields in JSON and YAML output."),
        Flag::text(
            "template",
            "",
            "Go template, or the file that holds it, for -o=go-template and -o=go-template-file; the syntax \
                is described at http://golang.org/pkg/text/template/#pkg-overview.",
        ),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// The order of fields in JSON, which is that of kubectl's types.
const ORDER: [&str; 12] = [
    "kind",
    "apiVersion",
    "defaults",
    "aliases",
    "credentialPluginPolicy",
    "credentialPluginAllowlist",
    "name",
    "command",
    "prependArgs",
    "appendArgs",
    "options",
    "default",
];

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let location = location(invocation)?;
    let file = location.file.display();
    let Some(mut preference) = read(&location.file)? else {
        if location.explicit {
            return Err(Failure::new(format!("kuberc file not found at {file}")));
        }
        writeln!(context.out(), "kuberc file not found at {file}")?;
        write!(context.out(), "Would you like to generate a default kuberc file with recommended options? (y/N): ")?;
        context.out().flush()?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        if line.trim().eq_ignore_ascii_case("y") {
            return save(context, recommended(), &location.file);
        }
        return Ok(());
    };
    for list in ["defaults", "aliases"] {
        if preference.get(list).is_none_or(Value::is_null) {
            preference.insert(list, Value::Array(Vec::new()));
        }
    }
    let preference = Value::Object(preference);
    let mut printer = Format::of(invocation, Formats::Common).printer()?;
    match printer.kind() {
        PrinterKind::Json => Ok(context.out().write_all(json::print_ordered(&preference, &ORDER).as_bytes())?),
        _ => printer.write(&preference, &mut context.out()),
    }
}

/// Returns the preferences that kubectl recommends: server-side apply, and a confirmation before objects are deleted.
fn recommended() -> Object {
    let mut preference = empty();
    let defaults = value!([
        {"command": "apply", "options": [{"name": "server-side", "default": "true"}]},
        {"command": "delete", "options": [{"name": "interactive", "default": "true"}]},
    ]);
    preference.insert("defaults", defaults);
    preference
}
