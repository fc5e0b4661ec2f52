//! `kubectl taint`: adds taints to nodes and removes them.

mod plan;

use apimachinery::{Value, value};
use client::Patch;

use crate::changes::{self, DryRun, Form, Results};
use crate::command::{Command, Flag, Group};
use crate::resources::Builder;
use crate::{Context, Failure, Invocation, flags};
use plan::Changes;

pub(super) static COMMAND: Command = Command {
    name: "taint",
    group: Group::ClusterManagement,
    summary: "Add or remove taints of nodes",
    description: "Add taints to nodes or remove them. A taint has the form key=value:effect or key:effect, where the \
        effect is NoSchedule, PreferNoSchedule, or NoExecute; a final \"-\" removes it. Keys have up to \
        253 characters and an optional DNS prefix such as example.com/, values up to 63; both start with a \
        letter or digit and consist of letters, digits, hyphens, dots, and underscores.",
    examples: "  # Reserve worker-1 for pods that tolerate the taint
  kubectl taint nodes worker-1 reserved=batch:NoSchedule

  # Change the value of the taint
  kubectl taint nodes worker-1 reserved=gpu:NoSchedule --overwrite

  # Remove the taints with this key, whatever their effect
  kubectl taint nodes worker-1 reserved-

  # Evict pods from all nodes of a rack
  kubectl taint nodes -l rack=r7 example.com/broken:NoExecute",
    usage: "kubectl taint NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N [options]",
    flags: &[
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        flags::SELECTOR,
        &[
            Flag::bool(
                "overwrite",
                "Replace the value of taints that exist with the same key and effect instead of failing.",
            ),
            Flag::bool("all", "Change all nodes of the cluster."),
            flags::field_manager("kubectl-taint"),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let dry_run = DryRun::of(context, invocation)?;
    let options = changes::write_options(invocation, dry_run)?;
    let (resources, changes) = arguments(invocation)?;
    check(context, invocation, &resources, &changes).await?;
    let (all, selector) = (invocation.bool("all"), invocation.text("selector"));
    let builder = Builder::new(context).namespace(&context.namespace()?).latest().selector(selector);
    let builder = match all || !selector.is_empty() {
        true => builder.types_or_names(false, &["node".to_owned()]).select_all(all),
        false => builder.names("node", &resources[1..]),
    };
    // As in kubectl, the message does not mention a dry run.
    let mut results = Results::new(context, invocation, DryRun::None, Form::Typed)?;
    let found = builder.found().await?;
    let mut failures = found.failures;
    for info in found.infos {
        let taints = info.object.at(&["spec", "taints"]).and_then(Value::as_array).unwrap_or_default();
        let planned = changes.apply(&info.name, taints, invocation.bool("overwrite"));
        let (operation, taints) = match planned {
            Ok(planned) => planned,
            Err(problems) if problems.len() > 1 => {
                failures.push(Failure::plain(problems.join("\n")));
                continue;
            }
            Err(problems) => {
                failures.push(Failure::new(problems.concat()));
                continue;
            }
        };
        let taints = if taints.is_empty() { Value::Null } else { Value::Array(taints) };
        let patch = value!({"spec": {"taints": taints}});
        let object = match dry_run {
            DryRun::Client => apimachinery::patch::merge::apply(info.object.clone(), patch),
            _ => match context.client()?.patch(&info.target(), &Patch::Strategic(patch), &options).await {
                Ok(object) => object,
                Err(error) => {
                    failures.push(error.into());
                    continue;
                }
            },
        };
        results.print(&object, operation)?;
    }
    Failure::all(failures)
}

/// Splits the arguments into the type with names, and changes of taints.
fn arguments(invocation: &Invocation) -> Result<(Vec<String>, Changes), Failure> {
    let is_change = |arg: &String| arg.contains('=') || arg.contains(':') || arg.ends_with('-');
    let first = invocation.args.iter().position(is_change).unwrap_or(invocation.args.len());
    let (resources, changes) = invocation.args.split_at(first);
    if let Some(late) = changes.iter().find(|arg| !is_change(arg)) {
        return Err(Failure::new(format!("all resources must be specified before taint changes: {late}")));
    }
    if resources.is_empty() {
        return Err(Failure::new("one or more resources must be specified as <resource> <name>"));
    }
    if changes.is_empty() {
        return Err(Failure::new("at least one taint update is required"));
    }
    let changes = Changes::parse(changes).map_err(|problem| Failure::usage(&invocation.name(), problem))?;
    Ok((resources.to_vec(), changes))
}

async fn check(
    context: &Context,
    invocation: &Invocation,
    resources: &[String],
    changes: &Changes,
) -> Result<(), Failure> {
    let resource = resources[0].to_lowercase();
    let mapping = context.mapper().await?.resource(&resource).await;
    let mapping = mapping.map_err(|failure| Failure::plain(failure.message))?;
    if mapping.resource.kind != "Node" {
        return Err(Failure::new(format!("invalid resource type {resource}, only node types are supported")));
    }
    let conflicts = changes.conflicts();
    if !conflicts.is_empty() {
        let conflicts = conflicts.join(", ");
        return Err(Failure::new(format!(
            "can not both modify and remove the following taint(s) in the same command: {conflicts}"
        )));
    }
    let (all, selector) = (invocation.bool("all"), invocation.text("selector"));
    if all && !selector.is_empty() {
        return Err(Failure::new("setting 'all' parameter with a non empty selector is prohibited"));
    }
    if !all && selector.is_empty() && resources.len() < 2 {
        let problem = "at least one resource name must be specified since 'all' parameter is not set";
        return Err(Failure::new(problem));
    }
    Ok(())
}
