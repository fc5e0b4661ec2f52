//! `kubectl api-resources`: the types of the server.

use std::io::Write;

use apimachinery::{Object, Str, Value, value};

use crate::command::{Command, Flag};
use crate::print::json::indent;
use crate::print::tabwriter::TabWriter;
use crate::print::{Format, Formats};
use crate::{Context, Failure, Invocation, Mapping};

pub(super) static COMMAND: Command = Command {
    name: "api-resources",
    summary: "List the types of the server's API",
    description: "List the types that the API server offers, with their short names, API versions, scopes, and \
        kinds.",
    examples: "  # List all types
  kubectl api-resources

  # Show their verbs and categories too
  kubectl api-resources -o wide

  # List the types outside of namespaces, sorted by kind
  kubectl api-resources --namespaced=false --sort-by=kind

  # List the names of the types in a group that can be deleted
  kubectl api-resources --api-group=apps --verbs=delete -o name",
    usage: "kubectl api-resources [flags] [options]",
    flags: &[&[
        Flag::text("api-group", "", "List only the types of this API group."),
        Flag::bool("cached", "Accept a cached list instead of asking the server."),
        Flag::list("categories", "List only types that belong to all of these categories."),
        Flag::bool(
            "namespaced",
            "List only types inside of namespaces, or with false only those outside; without the flag, both \
                are listed.",
        )
        .default("true"),
        Flag::bool("no-headers", "Omit the line with the column names."),
        Flag::text("output", "", "Print the result in another format. One of: (json, yaml, kyaml, name, wide).")
            .short('o'),
        Flag::bool("show-managed-fields", "Include metadata.managedFields in JSON and YAML output."),
        Flag::text("sort-by", "", "Column to sort by: 'name' or 'kind'."),
        Flag::list("verbs", "List only types that support all of these verbs."),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if !invocation.args.is_empty() {
        let args = invocation.args.join(" ");
        return Err(Failure::usage(&invocation.name(), format_args!("unexpected arguments: [{args}]")));
    }
    let sort_by = invocation.text("sort-by");
    if !matches!(sort_by, "" | "name" | "kind") {
        return Err(Failure::new("--sort-by accepts only name or kind"));
    }
    let output = invocation.text("output");
    check_output(output)?;
    let mapper = context.mapper().await?;
    if !invocation.bool("cached") {
        mapper.refresh().await?;
    }
    let mut mappings = mapper.preferred().await?;
    mappings.retain(|mapping| matches(invocation, mapping));
    mappings
        .sort_by(|a, b| key(a, sort_by).cmp(key(b, sort_by)).then_with(|| a.resource.plural.cmp(&b.resource.plural)));
    let text = match output {
        "name" => mappings.iter().map(|mapping| format!("{}\n", mapping.resource)).collect(),
        "json" => json(&mappings),
        "" | "wide" => table(&mappings, output == "wide", invocation.bool("no-headers")),
        _ => Format::new(Formats::Common, output).printer()?.print(&document(&mappings))?,
    };
    context.out().write_all(text.as_bytes())?;
    Ok(())
}

fn check_output(output: &str) -> Result<(), Failure> {
    if matches!(output, "" | "wide" | "name" | "json" | "yaml" | "kyaml") {
        return Ok(());
    }
    Err(Failure::new(format!(
        "unable to match a printer suitable for the output format {output:?}, allowed formats are: \
            json,kyaml,name,wide,yaml"
    )))
}

fn matches(invocation: &Invocation, mapping: &Mapping) -> bool {
    let all = |requested: Vec<String>, have: &[Str]| requested.iter().all(|one| have.iter().any(|it| it == one));
    !mapping.verbs.is_empty()
        && (!invocation.is_set("api-group") || mapping.resource.group == invocation.text("api-group"))
        && (!invocation.is_set("namespaced") || mapping.namespaced() == invocation.bool("namespaced"))
        && all(invocation.list("verbs"), &mapping.verbs)
        && all(invocation.list("categories"), &mapping.categories)
}

fn key<'a>(mapping: &'a Mapping, sort_by: &str) -> &'a str {
    match sort_by {
        "name" => &mapping.resource.plural,
        "kind" => &mapping.resource.kind,
        _ => &mapping.resource.group,
    }
}

fn table(mappings: &[Mapping], wide: bool, no_headers: bool) -> String {
    let mut text = String::new();
    if !no_headers {
        text.push_str("NAME\tSHORTNAMES\tAPIVERSION\tNAMESPACED\tKIND");
        text.push_str(if wide { "\tVERBS\tCATEGORIES\n" } else { "\n" });
    }
    for mapping in mappings {
        let resource = &mapping.resource;
        text.push_str(&format!(
            "{}\t{}\t{}\t{}\t{}",
            resource.plural,
            mapping.short_names.join(","),
            resource.api_version(),
            mapping.namespaced(),
            resource.kind
        ));
        if wide {
            text.push_str(&format!("\t{}\t{}", mapping.verbs.join(","), mapping.categories.join(",")));
        }
        text.push('\n');
    }
    TabWriter::for_tables().format(&text)
}

/// Returns the list as an `APIResourceList`.
fn document(mappings: &[Mapping]) -> Value {
    let strings = |list: &[Str]| -> Vec<Value> { list.iter().map(|it| Value::from(it.clone())).collect() };
    let resource = |mapping: &Mapping| {
        let mut item = Object::new();
        item.insert("name", mapping.resource.plural.clone());
        item.insert("singularName", mapping.singular.clone());
        item.insert("namespaced", mapping.namespaced());
        if !mapping.resource.group.is_empty() {
            item.insert("group", mapping.resource.group.clone());
        }
        item.insert("version", mapping.resource.version.clone());
        item.insert("kind", mapping.resource.kind.clone());
        item.insert("verbs", strings(&mapping.verbs));
        if !mapping.short_names.is_empty() {
            item.insert("shortNames", strings(&mapping.short_names));
        }
        if !mapping.categories.is_empty() {
            item.insert("categories", strings(&mapping.categories));
        }
        Value::from(item)
    };
    let resources: Vec<Value> = mappings.iter().map(resource).collect();
    value!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "", "resources": resources})
}

/// Returns the list as JSON with the fields in the order of Go's type.
fn json(mappings: &[Mapping]) -> String {
    const FIELDS: [&str; 9] =
        ["name", "singularName", "namespaced", "group", "version", "kind", "verbs", "shortNames", "categories"];
    let list = document(mappings);
    let item = |item: &Value| {
        let field = |field: &&str| Some(format!("\"{field}\":{}", apimachinery::json::to_string(item.get(field)?)));
        format!("{{{}}}", FIELDS.iter().filter_map(field).collect::<Vec<_>>().join(","))
    };
    let items: Vec<String> =
        crate::print::items(&value!({"items": (list["resources"].clone())})).iter().map(item).collect();
    let items = items.join(",");
    indent(&format!(
        "{{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":\"\",\"resources\":[{items}]}}"
    )) + "\n"
}
