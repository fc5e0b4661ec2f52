//! `kubectl create priorityclass`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::policy::{self, PriorityClass};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "priorityclass",
    aliases: &["pc"],
    summary: "Create a priority class with the specified name",
    description: "Create a priority class with the specified name, value, globalDefault and description.",
    examples: r#"  # Create a priority class named high-priority
  kubectl create priorityclass high-priority --value=1000 --description="high priority"
  
  # Create a priority class named default-priority that is considered as the global default priority
  kubectl create priorityclass default-priority --value=1000 --global-default=true --description="default priority"
  
  # Create a priority class named high-priority that cannot preempt pods with lower priority
  kubectl create priorityclass high-priority --value=1000 --description="high priority" --preemption-policy="Never""#,
    usage: "kubectl create priorityclass NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text(
                "description",
                "",
                "description is an arbitrary string that usually provides guidelines on when this priority class should be used.",
            ),
            flags::field_manager("kubectl-create"),
            Flag::bool(
                "global-default",
                "global-default specifies whether this PriorityClass should be considered as the default priority.",
            ),
            Flag::text(
                "preemption-policy",
                "PreemptLowerPriority",
                "preemption-policy is the policy for preempting pods with lower priority.",
            ),
            Flag::int("value", "0", "the value of this priority class."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let object = policy::priority_class(PriorityClass {
        name: creation.name().name,
        value: invocation.int("value"),
        global_default: invocation.bool("global-default"),
        description: invocation.text("description"),
        preemption_policy: invocation.text("preemption-policy"),
    });
    creation.create(object, &creation::PRIORITY_CLASSES, "failed to create priorityclass: ").await
}
