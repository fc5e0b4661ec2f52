//! `kubectl set resources`.

use apimachinery::Value;

use super::change::{Change, EditResult};
use crate::changes::RECORD;
use crate::command::{Command, Flag};
use crate::generate::set;
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "resources",
    summary: "Change resource requests and limits of containers",
    description: "Change the CPU, memory, and other resources that containers in pod templates request and are limited \
                  to. The request of a resource defaults to its limit.",
    examples: "  # Set requests and limits of all containers of a deployment
  kubectl set resources deployment web --requests=cpu=250m,memory=128Mi --limits=cpu=1,memory=256Mi
  
  # Limit the memory of one container
  kubectl set resources statefulset db -c exporter --limits=memory=64Mi
  
  # Change a manifest and print the result
  kubectl set resources --local -f worker.yaml --requests=cpu=100m -o yaml",
    usage: "kubectl set resources (-f FILENAME | TYPE NAME)  ([--limits=LIMITS & --requests=REQUESTS] [options]",
    flags: &[
        RECORD,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::SELECTOR,
        flags::DIRECTORY,
        &[
            Flag::bool("all", "Change all objects of the given types in the namespace."),
            Flag::text("containers", "*", "Names of the containers to change, with wildcards.").short('c'),
            flags::field_manager("kubectl-set"),
            flags::filename("Files, directories, or URLs that contain the objects to change."),
            Flag::text(
                "limits",
                "",
                "Limits as resource=quantity pairs separated by commas, such as 'cpu=500m,memory=256Mi'.",
            ),
            Flag::bool("local", "Change the objects in the files without contacting the API server."),
            Flag::text(
                "requests",
                "",
                "Requests as resource=quantity pairs separated by commas, such as 'cpu=100m,memory=128Mi'.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let mut change = Change::new(context, invocation)?;
    let infos = change.infos(&invocation.args).await?;
    change.validate()?;
    let requirements = set::requirements(invocation.text("limits"), invocation.text("requests"))?;
    let containers = invocation.text("containers");
    for info in infos {
        let mut found = false;
        let edit = |object: &mut Value| {
            found = set::resources(object, containers, &requirements)?;
            Ok(if found { EditResult::IfChanged } else { EditResult::Skip })
        };
        let patched = change.apply(info, edit, "failed to patch resources update to pod template ").await;
        if !found && patched.is_ok() {
            change.failures.push(Failure::new(format!("error: unable to find container named {containers}")));
        }
        change.keep(patched);
    }
    change.done()
}
