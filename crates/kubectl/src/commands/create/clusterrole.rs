//! `kubectl create clusterrole`.

use apimachinery::go;

use super::creation::{self, Creation};
use crate::command::{Command, Flag, FlagKind};
use crate::generate::rbac::{self, Rule};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "clusterrole",
    summary: "Create a cluster role",
    description: "Create a cluster role.",
    examples: r#"  # Create a cluster role named "pod-reader" that allows user to perform "get", "watch" and "list" on pods
  kubectl create clusterrole pod-reader --verb=get,list,watch --resource=pods
  
  # Create a cluster role named "pod-reader" with ResourceName specified
  kubectl create clusterrole pod-reader --verb=get --resource=pods --resource-name=readablepod --resource-name=anotherpod
  
  # Create a cluster role named "foo" with API Group specified
  kubectl create clusterrole foo --verb=get,list,watch --resource=rs.apps
  
  # Create a cluster role named "foo" with SubResource specified
  kubectl create clusterrole foo --verb=get,list,watch --resource=pods,pods/status
  
  # Create a cluster role name "foo" with NonResourceURL specified
  kubectl create clusterrole "foo" --verb=get --non-resource-url=/logs/*
  
  # Create a cluster role name "monitoring" with AggregationRule specified
  kubectl create clusterrole monitoring --aggregation-rule="rbac.example.com/aggregate-to-monitoring=true""#,
    usage: "kubectl create clusterrole NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag {
                kind: FlagKind::Array,
                ..Flag::text("aggregation-rule", "", "An aggregation label selector for combining ClusterRoles.")
            },
            flags::field_manager("kubectl-create"),
            Flag::list("non-resource-url", "A partial url that user should have access to."),
            Flag::list("resource", "Resource that the rule applies to"),
            Flag::array(
                "resource-name",
                "Resource in the white list that the rule applies to, repeat this flag for multiple items",
            ),
            Flag::list("verb", "Verb that applies to the resources contained in the rule"),
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
