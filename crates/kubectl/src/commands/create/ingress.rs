//! `kubectl create ingress`.

use super::creation::{self, Creation};
use crate::command::{Command, Flag};
use crate::generate::ingress::{self, Ingress};
use crate::{Context, Failure, Invocation, flags};

pub static COMMAND: Command = Command {
    name: "ingress",
    aliases: &["ing"],
    summary: "Create an ingress with the specified name",
    description: "Create an ingress with the specified name.",
    examples: r#"  # Create a single ingress called 'simple' that directs requests to foo.com/bar to svc
  # svc1:8080 with a TLS secret "my-cert"
  kubectl create ingress simple --rule="foo.com/bar=svc1:8080,tls=my-cert"
  
  # Create a catch all ingress of "/path" pointing to service svc:port and Ingress Class as "otheringress"
  kubectl create ingress catch-all --class=otheringress --rule="/path=svc:port"
  
  # Create an ingress with two annotations: ingress.annotation1 and ingress.annotations2
  kubectl create ingress annotated --class=default --rule="foo.com/bar=svc:port" \
  --annotation ingress.annotation1=foo \
  --annotation ingress.annotation2=bla
  
  # Create an ingress with the same host and multiple paths
  kubectl create ingress multipath --class=default \
  --rule="foo.com/=svc:port" \
  --rule="foo.com/admin/=svcadmin:portadmin"
  
  # Create an ingress with multiple hosts and the pathType as Prefix
  kubectl create ingress ingress1 --class=default \
  --rule="foo.com/path*=svc:8080" \
  --rule="bar.com/admin*=svc2:http"
  
  # Create an ingress with TLS enabled using the default ingress certificate and different path types
  kubectl create ingress ingtls --class=default \
  --rule="foo.com/=svc:https,tls" \
  --rule="foo.com/path/subpath*=othersvc:8080"
  
  # Create an ingress with TLS enabled using a specific secret and pathType as Prefix
  kubectl create ingress ingsecret --class=default \
  --rule="foo.com/*=svc:8080,tls=secret1"
  
  # Create an ingress with a default backend
  kubectl create ingress ingdefault --class=default \
  --default-backend=defaultsvc:http \
  --rule="foo.com/*=svc:8080,tls=secret1""#,
    usage: "kubectl create ingress NAME --rule=host/path=service:port[,tls[=secret]]  [options]",
    flags: &[
        flags::SAVE_CONFIG,
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        &[
            Flag::array("annotation", "Annotation to insert in the ingress object, in the format annotation=value"),
            Flag::text("class", "", "Ingress Class to be used"),
            Flag::text("default-backend", "", "Default service for backend, in format of svcname:port"),
            flags::field_manager("kubectl-create"),
            Flag::array(
                "rule",
                "Rule in format host/path=service:port[,tls=secretname]. Paths containing the leading character '*' are considered pathType=Prefix. tls argument is optional.",
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
