//! `kubectl create cronjob`.

use super::creation::{self, Creation};
use crate::changes;
use crate::command::{Command, Flag};
use crate::generate::workload::{self, CronJob};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "cronjob",
    aliases: &["cj"],
    summary: "Create a cron job with the specified name",
    description: "Create a cron job with the specified name.",
    examples: r#"  # Create a cron job
  kubectl create cronjob my-job --image=busybox --schedule="*/1 * * * *"
  
  # Create a cron job with a command
  kubectl create cronjob my-job --image=busybox --schedule="*/1 * * * *" -- date"#,
    usage: "kubectl create cronjob NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...] [flags] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::text("image", "", "Image name to run."),
            Flag::text("restart", "", "job's restart policy. supported values: OnFailure, Never"),
            Flag::text("schedule", "", "A schedule in the Cron format the job should be run with."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    changes::require(invocation, &["image", "schedule"])?;
    let creation = Creation::new(context, invocation)?;
    let object = workload::cron_job(CronJob {
        name: creation.name(),
        image: invocation.text("image"),
        schedule: invocation.text("schedule"),
        restart: invocation.text("restart"),
        command: creation.command(),
    });
    creation.create(object, &creation::CRON_JOBS, "failed to create cronjob: ").await
}
