//! `kubectl create poddisruptionbudget`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::policy::{self, DisruptionBudget};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "poddisruptionbudget",
    aliases: &["pdb"],
    summary: "Create a pod disruption budget",
    description: "Create a pod disruption budget, which limits how many of the selected pods voluntary disruptions \
                  take down at the same time. Set either --min-available or --max-unavailable.",
    examples: "  # Keep at least two pods of the database running
  kubectl create poddisruptionbudget db --selector=app=db --min-available=2
  
  # Allow the eviction of a quarter of the web pods at a time
  kubectl create pdb web --selector=app=web,tier=frontend --max-unavailable=25%",
    usage: "kubectl create poddisruptionbudget NAME --selector=SELECTOR --min-available=N [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::text("max-unavailable", "", "Number or percentage of selected pods that may be unavailable."),
            Flag::text("min-available", "", "Number or percentage of selected pods that must stay available."),
            Flag::text(
                "selector",
                "",
                "Labels of the pods that the budget protects; only equality-based requirements are supported.",
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
