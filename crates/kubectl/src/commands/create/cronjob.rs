//! `kubectl create cronjob`.

use super::creation::{self, Creation};
use crate::changes;
use crate::command::{Command, Flag};
use crate::generate::workload::{self, CronJob};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "cronjob",
    aliases: &["cj"],
    summary: "Create a cron job",
    description: "Create a cron job, which starts a job with one container whenever the schedule is due. Arguments \
                  after -- replace the command of the image.",
    examples: r#"  # Run the image every night at half past two
  kubectl create cronjob backup --image=registry.example/backup:3 --schedule="30 2 * * *"
  
  # Run a command every ten minutes, without restarting failed containers
  kubectl create cj cleanup --image=alpine --schedule="*/10 * * * *" --restart=Never -- rm -rf /cache/tmp"#,
    usage: "kubectl create cronjob NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...] [flags] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::text("image", "", "Image of the container."),
            Flag::text("restart", "", "Restart policy of the pods: OnFailure or Never."),
            Flag::text("schedule", "", "Times at which jobs start, in cron format."),
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
