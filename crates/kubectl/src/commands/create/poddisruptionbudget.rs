//! `kubectl create poddisruptionbudget`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::policy::{self, DisruptionBudget};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "poddisruptionbudget",
    aliases: &["pdb"],
    summary: "Create a pod disruption budget with the specified name",
    description: "Create a pod disruption budget with the specified name, selector, and desired minimum available pods.",
    examples: "  # Create a pod disruption budget named my-pdb that will select all pods with the app=rails label
  # and require at least one of them being available at any point in time
  kubectl create poddisruptionbudget my-pdb --selector=app=rails --min-available=1
  
  # Create a pod disruption budget named my-pdb that will select all pods with the app=nginx label
  # and require at least half of the pods selected to be available at any point in time
  kubectl create pdb my-pdb --selector=app=nginx --min-available=50%",
    usage: "kubectl create poddisruptionbudget NAME --selector=SELECTOR --min-available=N [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::text(
                "max-unavailable",
                "",
                "The maximum number or percentage of unavailable pods this budget requires.",
            ),
            Flag::text("min-available", "", "The minimum number or percentage of available pods this budget requires."),
            Flag::text(
                "selector",
                "",
                "A label selector to use for this budget. Only equality-based selector requirements are supported.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let object = policy::disruption_budget(DisruptionBudget {
        name: creation.name(),
        selector: invocation.text("selector"),
        min_available: invocation.text("min-available"),
        max_unavailable: invocation.text("max-unavailable"),
    })?;
    creation.create(object, &creation::POD_DISRUPTION_BUDGETS, "failed to create poddisruptionbudgets: ").await
}
