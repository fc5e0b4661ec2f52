//! `kubectl create job`: a job that runs an image, or one of a cron job.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::set;
use crate::generate::workload::{self, Job};
use crate::resources::Builder;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "job",
    summary: "Create a job with the specified name",
    description: "Create a job with the specified name.",
    examples: r#"  # Create a job
  kubectl create job my-job --image=busybox
  
  # Create a job with a command
  kubectl create job my-job --image=busybox -- date
  
  # Create a job from a cron job named "a-cronjob"
  kubectl create job test-job --from=cronjob/a-cronjob"#,
    usage: "kubectl create job NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...] [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            flags::field_manager("kubectl-create"),
            Flag::text("from", "", "The name of the resource to create a Job from (only CronJob is supported)."),
            Flag::text("image", "", "Image name to run."),
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
