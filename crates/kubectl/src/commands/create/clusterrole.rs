//! `kubectl create clusterrole`.

use apimachinery::go;

use super::creation::{self, Creation};
use crate::command::{Command, Flag, FlagKind};
use crate::generate::rbac::{self, Rule};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "clusterrole",
    summary: "Create a cluster role with one rule",
    description: "Create a cluster role, which grants verbs on resources in all namespaces, on cluster-scoped \
                  resources, or on URL paths. With --aggregation-rule, the rules come from other cluster roles that \
                  have the given labels.",
    examples: "  # Allow reading nodes and persistent volumes
  kubectl create clusterrole infra-reader --verb=get,list,watch --resource=nodes,persistentvolumes
  
  # Allow scaling one stateful set
  kubectl create clusterrole db-scaler --verb=update --resource=statefulsets.apps/scale --resource-name=db
  
  # Allow reading the metrics of the API server
  kubectl create clusterrole metrics-reader --verb=get --non-resource-url=/metrics
  
  # Combine the cluster roles that have a label
  kubectl create clusterrole support --aggregation-rule=example.com/part-of-support=true",
    usage: "kubectl create clusterrole NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag {
                kind: FlagKind::Array,
                ..Flag::text("aggregation-rule", "", "Labels, as key=value, of the cluster roles to combine.")
            },
            flags::field_manager("kubectl-create"),
            Flag::list("non-resource-url", "URL path that the rule allows, such as /healthz or /logs/*."),
            Flag::list("resource", "Resource of the rule, as resource, resource.group, or either with /subresource."),
            Flag::array("resource-name", "Name of an object to which the rule is restricted; can be repeated."),
            Flag::list("verb", "Verb that the rule allows on the resources or URL paths."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let aggregation = aggregation(invocation)?;
    let creation = Creation::new(context, invocation)?;
    let (verbs, resources) = (invocation.list("verb"), invocation.list("resource"));
    let urls = invocation.list("non-resource-url");
    let rule = Rule::new(&verbs, &resources, &invocation.list("resource-name"), &urls);
    let types = creation::find_types(context, &rule).await?;
    let role = rbac::cluster_role(creation.name().name, &rule, &aggregation, |group, name| types.find(group, name))?;
    creation.warn(&role.warnings)?;
    creation.create(role.object, &creation::CLUSTER_ROLES, "").await
}

/// Parses `--aggregation-rule`: pairs separated by commas.
fn aggregation(invocation: &Invocation) -> Result<Vec<(String, String)>, Failure> {
    let mut pairs = Vec::new();
    for value in invocation.list("aggregation-rule") {
        for pair in value.split(',').filter(|pair| !pair.is_empty()) {
            let Some((key, label)) = pair.split_once('=') else {
                return Err(Failure::new(format!(
                    "invalid argument {} for \"--aggregation-rule\" flag: malformed pair, expect string=string\nSee \
                     'kubectl create clusterrole --help' for usage.",
                    go::quote(&value)
                )));
            };
            pairs.push((key.trim().to_owned(), label.trim().to_owned()));
        }
    }
    Ok(pairs)
}
