//! `kubectl get`: objects as tables, documents or templates.

mod table;
mod watch;

use std::io::Write;

use apimachinery::{Value, value};
use http::Method;

use crate::command::{Command, Flag, Group};
use crate::commands::raw;
use crate::print::sort::sort_objects;
use crate::print::{Format, Formats, Printer};
use crate::request::Path;
use crate::resources::{Builder, Found};
use crate::stream::terminal;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "get",
    group: Group::BasicIntermediate,
    summary: "List objects of one or more types",
    description: "Print objects as a table, or in the format of --output. Objects are selected by type, name, \
         label, field or manifest; those of namespaced types come from the current namespace unless another one or \
         --all-namespaces is given. Run 'kubectl api-resources' to list the resource types.",
    examples: "  # List the pods of the current namespace, with their nodes and addresses
  kubectl get pods -o wide

  # List the Deployments and Services with the label app=web in all namespaces
  kubectl get deployments,services -l app=web --all-namespaces

  # Print the Deployment web as YAML
  kubectl get deployment web -o yaml

  # List pods by age, with columns of your own
  kubectl get pods --sort-by=.metadata.creationTimestamp -o custom-columns=POD:.metadata.name,NODE:.spec.nodeName

  # Watch the pods of the namespace data
  kubectl get pods -n data --watch",
    usage: "kubectl get [(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file|custom-columns|custom-columns-file|wide] (TYPE[.VERSION][.GROUP] [NAME | -l label] | TYPE[.VERSION][.GROUP]/NAME ...) [flags] [options]",
    flags: &[
        flags::SELECTOR,
        flags::DIRECTORY,
        flags::ALL_NAMESPACES,
        &[
            Flag::bool(
                "allow-missing-template-keys",
                "Do not fail if a Go template or JSONPath template uses a field or key that an object does not have.",
            )
            .default("true"),
            Flag::int(
                "chunk-size",
                "500",
                "Number of objects per request for large lists; 0 requests all objects in one request.",
            ),
            Flag::text(
                "field-selector",
                "",
                "Select objects by fields with '=', '==' and '!=', for example --field-selector status.phase=Running; \
                 each type supports only a few fields.",
            ),
            flags::filename("Files, directories or URLs of manifests with the objects to get."),
            Flag::bool("ignore-not-found", "Do not fail if a named object does not exist; has no effect on lists."),
            Flag::list(
                "label-columns",
                "Labels to show as columns, separated by commas or with the flag repeated; names are case-sensitive.",
            )
            .short('L'),
            Flag::bool("no-headers", "Leave out the header of tables and custom columns."),
            Flag::text(
                "output",
                "",
                "Format of the output. One of: (json, yaml, kyaml, name, go-template, go-template-file, template, \
                 templatefile, jsonpath, jsonpath-as-json, jsonpath-file, custom-columns, custom-columns-file, wide), \
                 see https://kubernetes.io/docs/reference/kubectl/#custom-columns, \
                 https://kubernetes.io/docs/reference/kubectl/jsonpath/ and https://pkg.go.dev/text/template.",
            )
            .short('o'),
            Flag::bool(
                "output-watch-events",
                "Print the events of --watch or --watch-only; existing objects come first as ADDED.",
            ),
            Flag::text("raw", "", "Path to request from the server unchanged, with the connection of the kubeconfig."),
            Flag::bool(
                "server-print",
                "Let the server make the tables, which also covers custom resources and extension APIs.",
            )
            .default("true"),
            Flag::bool("show-kind", "Show the type of each object before its name."),
            Flag::bool("show-labels", "Show all labels in the last column."),
            Flag::bool("show-managed-fields", "Keep metadata.managedFields in JSON and YAML output."),
            Flag::text(
                "sort-by",
                "",
                "Sort lists by the integer or string at this JSONPath expression, for example '{.metadata.name}'.",
            ),
            Flag::text("subresource", "", "Subresource of the objects to get."),
            Flag::text(
                "template",
                "",
                "Go template for -o go-template, or the path of its file for -o go-template-file; see \
                 https://pkg.go.dev/text/template.",
            ),
            Flag::bool("watch", "Print the objects, and then each change to them.").short('w'),
            Flag::bool("watch-only", "Print only changes, not the existing objects."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

const SUGGESTION: &str = "Use \"kubectl api-resources\" for a complete list of supported resources.";

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if !invocation.text("raw").is_empty() {
        return get_raw(context, invocation).await;
    }
    check(context, invocation)?;
    let printer = Format::of(invocation, Formats::Get).printer()?;
    if invocation.bool("watch") || invocation.bool("watch-only") {
        return terminal::interruptible(watch::run(context, invocation, printer)).await;
    }
    if printer.is_human() {
        return table::run(context, invocation, &printer).await;
    }
    objects(context, invocation, printer).await
}

fn check(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let output = invocation.text("output");
    let watches = invocation.bool("watch") || invocation.bool("watch-only");
    if invocation.bool("watch") && invocation.is_set("sort-by") {
        writeln!(context.err(), "warning: --watch requested, --sort-by will be ignored for watch events received")?;
    } else if invocation.bool("watch-only") && invocation.is_set("sort-by") {
        writeln!(context.err(), "warning: --watch-only requested, --sort-by will be ignored")?;
    } else if !watches
        && invocation.args.is_empty()
        && invocation.list("filename").is_empty()
        && invocation.text("kustomize").is_empty()
    {
        writeln!(context.err(), "You must specify the type of resource to get. {SUGGESTION}\n")?;
        return Err(Failure::usage(
            &invocation.name(),
            "Required resource not specified.\nUse \"kubectl explain <resource>\" for a detailed description of that \
             resource (e.g. kubectl explain pods).",
        ));
    }
    if invocation.bool("show-labels") && !matches!(output, "" | "wide") {
        return Err(Failure::new(format!("--show-labels option cannot be used with {output} printer")));
    }
    if invocation.bool("output-watch-events") && !watches {
        return Err(Failure::new("--output-watch-events option can only be used with --watch or --watch-only"));
    }
    Ok(())
}

async fn get_raw(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let path = invocation.text("raw");
    if !invocation.args.is_empty() {
        return Err(Failure::new("arguments may not be passed when --raw is specified"));
    }
    if invocation.bool("watch") || invocation.bool("watch-only") || !invocation.text("selector").is_empty() {
        return Err(Failure::new(
            "--raw may not be specified with other flags that filter the server request or alter the output",
        ));
    }
    if !invocation.text("output").is_empty() {
        return Err(Failure::new("--raw and --output are mutually exclusive"));
    }
    raw::check_path(path)?;
    raw::send(context, Method::GET, path, "").await
}

/// Returns the objects that the command line selects.
fn builder<'a>(context: &'a Context, invocation: &Invocation) -> Result<Builder<'a>, Failure> {
    Ok(Builder::new(context)
        .filenames(invocation)
        .namespace(&context.namespace()?)
        .all_namespaces(invocation.bool("all-namespaces"))
        .selector(invocation.text("selector"))
        .field_selector(invocation.text("field-selector"))
        .types_or_names(true, &invocation.args)
        .latest())
}

/// Prints objects in a format that is not a table: one object, or a `List` of them.
async fn objects(context: &Context, invocation: &Invocation, mut printer: Printer) -> Result<(), Failure> {
    let sorted_by = invocation.text("sort-by");
    let chunk_size = if sorted_by.is_empty() { invocation.int("chunk-size") } else { 0 };
    let builder = builder(context, invocation)?.subresource(invocation.text("subresource")).chunk_size(chunk_size);
    let Found { infos, mut failures, single } = builder.found().await?;
    let ignores = invocation.bool("ignore-not-found");
    if ignores {
        failures.retain(|failure| !failure.is_not_found());
    }
    if single && !failures.is_empty() || infos.is_empty() && ignores {
        return Failure::all(failures);
    }
    let mut objects: Vec<Value> = infos.into_iter().map(|info| info.object).collect();
    let object = if single && objects.len() == 1 {
        objects.swap_remove(0)
    } else {
        if !sorted_by.is_empty() {
            sort_objects(&mut objects, sorted_by).map_err(|error| Failure::new(error.to_string()))?;
        }
        value!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects})
    };
    match printer.print(&object) {
        Ok(text) => context.out().write_all(text.as_bytes())?,
        Err(error) => {
            context.out().write_all(error.output.as_bytes())?;
            failures.push(Failure::new(error.message));
        }
    }
    Failure::all(failures)
}

/// Returns the path of a list or an object.
fn path(target: &client::Target<'_>) -> Result<Path, Failure> {
    Ok(Path::new(target.path().map_err(client::Error::from)?))
}
