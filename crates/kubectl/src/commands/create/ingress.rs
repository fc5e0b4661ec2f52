//! `kubectl create ingress`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::ingress::{self, Ingress};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "ingress",
    aliases: &["ing"],
    summary: "Create an ingress",
    description: "Create an ingress, which routes HTTP requests to services by host and path. Give at least one rule \
                  or a default backend. A path that ends with * matches as a prefix, any other path matches exactly.",
    examples: r#"  # Route all requests for a host to port 8080 of the service web, with TLS from a secret
  kubectl create ingress web --rule="shop.example/*=web:8080,tls=web-tls"
  
  # Route two paths of a host to different services
  kubectl create ingress shop --class=internal --rule="shop.example/api*=api:http" --rule="shop.example/status=web:80"
  
  # Route requests for any host, and set an annotation
  kubectl create ingress docs --rule="/docs*=docs:80" --annotation=example.com/owner=web-team
  
  # Send requests that match no rule to a default service
  kubectl create ing fallback --default-backend=errors:80 --rule="shop.example/*=web:8080,tls""#,
    usage: "kubectl create ingress NAME --rule=host/path=service:port[,tls[=secret]]  [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::array("annotation", "Annotation of the ingress, as key=value; can be repeated."),
            Flag::text("class", "", "Name of the ingress class."),
            Flag::text("default-backend", "", "Service for requests that match no rule, as service:port."),
            flags::field_manager("kubectl-create"),
            Flag::array(
                "rule",
                "Route as host/path=service:port[,tls[=secret]]; a path that ends with '*' has pathType=Prefix.",
            ),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let creation = Creation::new(context, invocation)?;
    let object = ingress::ingress(Ingress {
        name: creation.name(),
        class: invocation.text("class"),
        rules: &invocation.list("rule"),
        annotations: &invocation.list("annotation"),
        default_backend: invocation.text("default-backend"),
    })?;
    creation.create(object, &creation::INGRESSES, "failed to create ingress: ").await
}
