//! `kubectl explain`: the documentation of a type and its fields, from the server's OpenAPI.

mod plaintext;

use std::io::Write;

use apimachinery::GroupVersion;

use crate::command::{Command, Flag, Group};
use crate::request::{self, Path};
use crate::{Context, Failure, Invocation, Mapping, http_cache};

pub(super) static COMMAND: Command = Command {
    name: "explain",
    group: Group::BasicIntermediate,
    summary: "Show the documentation of a resource type",
    description: "Show the fields of a resource type with their types and documentation, as published by the \
         server in OpenAPI format. To see one field, append its path: TYPE.FIELD[.FIELD...]. Run 'kubectl \
         api-resources' to list the resource types.",
    examples: "  # Show the fields of Deployments
  kubectl explain deployments

  # Show a field within Pods
  kubectl explain pods.spec.containers.resources

  # Show the names of all fields in the spec of a Service
  kubectl explain services.spec --recursive

  # Use a specific version of the API
  kubectl explain horizontalpodautoscalers --api-version=autoscaling/v2",
    usage: "kubectl explain TYPE [--recursive=FALSE|TRUE] [--api-version=api-version-group] [-o|--output=plaintext|plaintext-openapiv2] [options]",
    flags: &[&[
        Flag::text("api-version", "", "API version to use, as GROUP/VERSION."),
        Flag::text("output", "plaintext", "Format of the output: plaintext or plaintext-openapiv2.").short('o'),
        Flag::bool("recursive", "Also list the fields within fields.").short('R'),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let name = match invocation.args.as_slice() {
        [name] => name,
        [] => {
            return Err(Failure::new(
                "You must specify the type of resource to explain. Use \"kubectl api-resources\" for a complete list of \
                 supported resources.",
            ));
        }
        _ => return Err(Failure::new("We accept only this format: explain RESOURCE")),
    };
    let output = invocation.text("output");
    // DEVIATION: plaintext-openapiv2 prints the format of plaintext. Servers without OpenAPI v3 are not supported.
    if !matches!(output, "plaintext" | "plaintext-openapiv2") {
        return Err(Failure::new(format!("unrecognized format: {output}")));
    }
    let (mapping, fields) = find(context, name).await?;
    let api_version = invocation.text("api-version");
    let version: GroupVersion = if api_version.is_empty() {
        mapping.resource.group_version()
    } else {
        api_version.parse().map_err(|error: apimachinery::gvk::InvalidGroupVersion| Failure::new(error.to_string()))?
    };
    let client = context.client()?;
    let paths = request::get(&client, Path::new("/openapi/v3"), request::JSON).await?;
    let key = if version.group.is_empty() { format!("api/{version}") } else { format!("apis/{version}") };
    let plural = &mapping.resource.plural;
    let Some(url) = paths.str_at(&["paths", &key, "serverRelativeURL"]) else {
        let (group, version) = (&version.group, &version.version);
        return Err(Failure::new(format!("couldn't find resource for \"{group}/{version}, Resource={plural}\"")));
    };
    let document = if url.contains("?hash=") {
        http_cache::get(context, url).await?
    } else {
        request::get(&client, Path::new(url), request::JSON).await?
    };
    let (text, done) = plaintext::render(&document, &version, plural, &fields, invocation.bool("recursive"));
    context.out().write_all(text.as_bytes())?;
    done
}

/// Splits `deployments.apps.spec` into the type, with or without its group, and the fields.
async fn find(context: &Context, name: &str) -> Result<(Mapping, Vec<String>), Failure> {
    let words: Vec<&str> = name.split('.').collect();
    if words[0].is_empty() {
        return Err(Failure::new("invalid jsonpath syntax, first node must be field node"));
    }
    let found = context.mapper().await?.resources(words[0]).await?;
    if found.is_empty() {
        return Err(Failure::plain(format!("the server doesn't have a resource type {:?}", words[0])));
    }
    for mapping in &found {
        let full = mapping.resource.to_string();
        if let Some(rest) = name.strip_prefix(&full)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            let fields = rest.split('.').skip(1).filter(|field| !field.is_empty()).map(str::to_owned);
            return Ok((mapping.clone(), fields.collect()));
        }
    }
    let fields = words[1..].iter().filter(|field| !field.is_empty()).map(|field| (*field).to_owned());
    Ok((found[0].clone(), fields.collect()))
}
