//! `kubectl create job`: a job that runs an image, or one of a cron job.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::set;
use crate::generate::workload::{self, Job};
use crate::resources::Builder;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "job",
    summary: "Create a job",
    description: "Create a job that runs an image to completion, or start a cron job now. Arguments after -- replace \
                  the command of the image.",
    examples: "  # Run an image once
  kubectl create job migrate --image=registry.example/migrate:5
  
  # Run a command once
  kubectl create job hello --image=alpine -- echo hello
  
  # Start the job of a cron job outside of its schedule
  kubectl create job backup-now --from=cronjob/backup",
    usage: "kubectl create job NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::text("from", "", "Cron job whose template the job uses, as cronjob/name."),
            Flag::text("image", "", "Image of the container."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let options = Job {
        name: creation.name(),
        image: invocation.text("image"),
        from: invocation.text("from"),
        command: creation.command(),
    };
    workload::validate_job(options)?;
    let object = if options.from.is_empty() {
        workload::job(options)?
    } else {
        let from = [options.from.to_owned()];
        let builder = Builder::new(context).namespace(&context.namespace()?).types_or_names(false, &from);
        let infos = builder.latest().infos().await?;
        let [info] = infos.as_slice() else { return Err(Failure::new("from must be an existing cronjob")) };
        let kind = info.mapping.resource.group_version_kind();
        if (kind.group.as_str(), kind.kind.as_str()) != ("batch", "CronJob") {
            return Err(Failure::new(format!("unknown object type {}", set::go_type(&kind))));
        }
        workload::job_from_cron_job(options.name, &info.object)?
    };
    creation.create(object, &creation::JOBS, "failed to create job: ").await
}
