//! `kubectl set resources`.

use apimachinery::Value;

use super::change::{Change, Edited};
use crate::changes::RECORD;
use crate::command::{Command, Flag};
use crate::generate::set;
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "resources",
    summary: "Update resource requests/limits on objects with pod templates",
    description: r#"Specify compute resource requirements (CPU, memory) for any resource that defines a pod template.  If a pod is successfully scheduled, it is guaranteed the amount of resource requested, but may burst up to its specified limits.

 For each compute resource, if a limit is specified and a request is omitted, the request will default to the limit.

 Possible resources include (case insensitive): Use "kubectl api-resources" for a complete list of supported resources.."#,
    examples: r#"  # Set a deployments nginx container cpu limits to "200m" and memory to "512Mi"
  kubectl set resources deployment nginx -c=nginx --limits=cpu=200m,memory=512Mi
  
  # Set the resource request and limits for all containers in nginx
  kubectl set resources deployment nginx --limits=cpu=200m,memory=512Mi --requests=cpu=100m,memory=256Mi
  
  # Remove the resource requests for resources on containers in nginx
  kubectl set resources deployment nginx --limits=cpu=0,memory=0 --requests=cpu=0,memory=0
  
  # Print the result (in yaml format) of updating nginx container limits from a local, without hitting the server
  kubectl set resources -f path/to/file.yaml --limits=cpu=200m,memory=512Mi --local -o yaml"#,
    usage: "kubectl set resources (-f FILENAME | TYPE NAME)  ([--limits=LIMITS & --requests=REQUESTS] [options]",
    flags: &[RECORD, flags::OUTPUT, flags::DRY_RUN, flags::SELECTOR, flags::DIRECTORY, &[
        Flag::bool("all", "Select all resources, in the namespace of the specified resource types"),
        Flag::text("containers", "*", "The names of containers in the selected pod templates to change, all containers are selected by default - may use wildcards").short('c'),
        flags::field_manager("kubectl-set"),
        flags::filename("Filename, directory, or URL to files identifying the resource to get from a server."),
        Flag::text("limits", "", "The resource requirement requests for this container.  For example, 'cpu=100m,memory=256Mi'.  Note that server side components may assign requests depending on the server configuration, such as limit ranges."),
        Flag::bool("local", "If true, set resources will NOT contact api-server but run locally."),
        Flag::text("requests", "", "The resource requirement requests for this container.  For example, 'cpu=100m,memory=256Mi'.  Note that server side components may assign requests depending on the server configuration, such as limit ranges."),
    ]],
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
            Ok(if found { Edited::Maybe } else { Edited::No })
        };
        let patched = change.apply(info, edit, "failed to patch resources update to pod template ").await;
        if !found && patched.is_ok() {
            change.failures.push(Failure::new(format!("error: unable to find container named {containers}")));
        }
        change.keep(patched);
    }
    change.done()
}
