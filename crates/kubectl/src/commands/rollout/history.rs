//! `kubectl rollout history`: the revisions of a workload.

use super::revisions::{self, History, Revision};
use super::{FILENAME, find, require_resource};
use crate::changes::{DryRun, Form, Results};
use crate::command::{Command, Flag};
use crate::describe;
use crate::print::tabwriter::TabWriter;
use crate::resources::Info;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "history",
    summary: "List the revisions of a workload",
    description: "List the revisions of a Deployment, DaemonSet, or StatefulSet with their change causes, or show \
        the pod template of one revision.",
    examples: "  # List the revisions of web
  kubectl rollout history deployment/web

  # Show the pod template of revision 4 of log-agent
  kubectl rollout history daemonset/log-agent --revision=4

  # Print revision 4 of web as YAML
  kubectl rollout history deployment/web --revision=4 -o yaml",
    usage: "kubectl rollout history (TYPE NAME | TYPE/NAME) [flags] [options]",
    flags: &[
        flags::OUTPUT,
        flags::SELECTOR,
        flags::DIRECTORY,
        &[FILENAME, Flag::int("revision", "0", "Show the pod template of this revision instead of a list.")],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    require_resource(invocation)?;
    let revision = invocation.int("revision");
    if revision < 0 {
        return Err(Failure::new(format!("revision must be a positive integer: {revision}")));
    }
    let found = find(context, invocation).await?;
    let mut results = Results::new(context, invocation, DryRun::None, Form::Typed)?;
    let mut failures = found.failures;
    for info in found.infos {
        if let Err(failure) = show(context, invocation, &info, revision, &mut results).await {
            failures.push(failure);
        }
    }
    Failure::all(failures)
}

async fn show(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    revision: i64,
    results: &mut Results<'_>,
) -> Result<(), Failure> {
    let workload =
        revisions::workload(info).ok_or_else(|| revisions::unsupported(info, "history", "history viewer"))?;
    let history = revisions::read(context, workload, info).await?;
    if invocation.is_set("output") {
        let selected: Vec<&Revision> = match revision {
            0 => sorted(&history),
            number => vec![history.find(number).ok_or_else(unknown_revision)?],
        };
        return selected.into_iter().try_for_each(|revision| results.print(&history.at(revision)?, ""));
    }
    let text = match revision {
        _ if history.revisions.is_empty() => "No rollout history found.".to_owned(),
        0 => overview(&history),
        number => details(&history, number)?,
    };
    let title = if revision > 0 { format!("with revision #{revision}") } else { String::new() };
    results.print(&info.object, &format!("{title}\n{text}"))
}

fn unknown_revision() -> Failure {
    Failure::new("unable to find the specified revision")
}

fn sorted(history: &History) -> Vec<&Revision> {
    let mut revisions: Vec<&Revision> = history.revisions.iter().collect();
    revisions.sort_by_key(|revision| revision.number);
    revisions
}

fn overview(history: &History) -> String {
    let lines = sorted(history)
        .into_iter()
        .map(|revision| format!("{}\t{}\n", revision.number, revision.change_cause().unwrap_or("<none>")));
    let text: String = std::iter::once("REVISION\tCHANGE-CAUSE\n".to_owned()).chain(lines).collect();
    TabWriter::new(0, 2).format(&text)
}

fn details(history: &History, number: i64) -> Result<String, Failure> {
    let revision = history.find(number).ok_or_else(unknown_revision)?;
    Ok(describe::template(&history.annotated_template(revision)?))
}
