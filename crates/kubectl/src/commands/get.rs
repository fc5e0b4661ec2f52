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
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "get",
    group: Group::BasicIntermediate,
    summary: "Display one or many resources",
    description: "Display one or many resources.

 Prints a table of the most important information about the specified resources. You can filter the list using a label selector and the --selector flag. If the desired resource type is namespaced you will only see results in the current namespace if you don't specify any namespace.

 By specifying the output as 'template' and providing a Go template as the value of the --template flag, you can filter the attributes of the fetched resources.

Use \"kubectl api-resources\" for a complete list of supported resources.",
    examples: r#"  # List all pods in ps output format
  kubectl get pods
  
  # List all pods in ps output format with more information (such as node name)
  kubectl get pods -o wide
  
  # List a single replication controller with specified NAME in ps output format
  kubectl get replicationcontroller web
  
  # List deployments in JSON output format, in the "v1" version of the "apps" API group
  kubectl get deployments.v1.apps -o json
  
  # List a single pod in JSON output format
  kubectl get -o json pod web-pod-13je7
  
  # List a pod identified by type and name specified in "pod.yaml" in JSON output format
  kubectl get -f pod.yaml -o json
  
  # List resources from a directory with kustomization.yaml - e.g. dir/kustomization.yaml
  kubectl get -k dir/
  
  # Return only the phase value of the specified pod
  kubectl get -o template pod/web-pod-13je7 --template={{.status.phase}}
  
  # List resource information in custom columns
  kubectl get pod test-pod -o custom-columns=CONTAINER:.spec.containers[0].name,IMAGE:.spec.containers[0].image
  
  # List all replication controllers and services together in ps output format
  kubectl get rc,services
  
  # List one or more resources by their type and names
  kubectl get rc/web service/frontend pods/web-pod-13je7
  
  # List the 'status' subresource for a single pod
  kubectl get pod web-pod-13je7 --subresource status
  
  # List all deployments in namespace 'backend'
  kubectl get deployments.apps --namespace backend
  
  # List all pods existing in all namespaces
  kubectl get pods --all-namespaces"#,
    usage: "kubectl get [(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file|custom-columns|custom-columns-file|wide] (TYPE[.VERSION][.GROUP] [NAME | -l label] | TYPE[.VERSION][.GROUP]/NAME ...) [flags] [options]",
    flags: &[flags::SELECTOR, flags::DIRECTORY, flags::ALL_NAMESPACES, &[
        Flag::bool("allow-missing-template-keys", "If true, ignore any errors in templates when a field or map key is missing in the template. Only applies to golang and jsonpath output formats.").default("true"),
        Flag::int("chunk-size", "500", "Return large lists in chunks rather than all at once. Pass 0 to disable."),
        Flag::text("field-selector", "", "Selector (field query) to filter on, supports '=', '==', and '!='.(e.g. --field-selector key1=value1,key2=value2). The server only supports a limited number of field queries per type."),
        flags::filename("Filename, directory, or URL to files identifying the resource to get from a server."),
        Flag::bool("ignore-not-found", "If set to true, suppresses NotFound error for specific objects that do not exist. Using this flag with commands that query for collections of resources has no effect when no resources are found."),
        Flag::list("label-columns", "Accepts a comma separated list of labels that are going to be presented as columns. Names are case-sensitive. You can also use multiple flag options like -L label1 -L label2...").short('L'),
        Flag::bool("no-headers", "When using the default or custom-column output format, don't print headers (default print headers)."),
        Flag::text("output", "", "Output format. One of: (json, yaml, kyaml, name, go-template, go-template-file, template, templatefile, jsonpath, jsonpath-as-json, jsonpath-file, custom-columns, custom-columns-file, wide). See custom columns [https://kubernetes.io/docs/reference/kubectl/#custom-columns], golang template [http://golang.org/pkg/text/template/#pkg-overview] and jsonpath template [https://kubernetes.io/docs/reference/kubectl/jsonpath/].").short('o'),
        Flag::bool("output-watch-events", "Output watch event objects when --watch or --watch-only is used. Existing objects are output as initial ADDED events."),
        Flag::text("raw", "", "Raw URI to request from the server.  Uses the transport specified by the kubeconfig file."),
        Flag::bool("server-print", "If true, have the server return the appropriate table output. Supports extension APIs and CRDs.").default("true"),
        Flag::bool("show-kind", "If present, list the resource type for the requested object(s)."),
        Flag::bool("show-labels", "When printing, show all labels as the last column (default hide labels column)"),
        Flag::bool("show-managed-fields", "If true, keep the managedFields when printing objects in JSON or YAML format."),
        Flag::text("sort-by", "", "If non-empty, sort list types using this field specification.  The field specification is expressed as a JSONPath expression (e.g. '{.metadata.name}'). The field in the API resource specified by this JSONPath expression must be an integer or a string."),
        Flag::text("subresource", "", "If specified, gets the subresource of the requested object."),
        Flag::text("template", "", "Template string or path to template file to use when -o=go-template, -o=go-template-file. The template format is golang templates [http://golang.org/pkg/text/template/#pkg-overview]."),
        Flag::bool("watch", "After listing/getting the requested object, watch for changes.").short('w'),
        Flag::bool("watch-only", "Watch for changes to the requested object(s), without listing/getting first."),
    ]],
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
        return watch::run(context, invocation, printer).await;
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

/// Returns what the command line selects.
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
