//! `kubectl create priorityclass`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::policy::{self, PriorityClass};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "priorityclass",
    aliases: &["pc"],
    summary: "Create a priority class",
    description: "Create a priority class, which gives pods a scheduling priority. Pods with a higher value are \
                  scheduled first and can preempt others.",
    examples: r#"  # Create a class for important pods
  kubectl create priorityclass critical --value=100000 --description="Pods that serve customers"
  
  # Create the class of pods that name none
  kubectl create priorityclass normal --value=1000 --global-default
  
  # Create a class whose pods wait for free resources instead of preempting others
  kubectl create pc batch --value=5000 --preemption-policy=Never"#,
    usage: "kubectl create priorityclass NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::text("description", "", "Text that explains when to use the class."),
            flags::field_manager("kubectl-create"),
            Flag::bool("global-default", "Use the class for pods that name no priority class."),
            Flag::text(
                "preemption-policy",
                "PreemptLowerPriority",
                "Whether pods of the class preempt pods with lower priority: PreemptLowerPriority or Never.",
            ),
            Flag::int32("value", "0", "Priority of the pods; a higher value takes precedence."),
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
