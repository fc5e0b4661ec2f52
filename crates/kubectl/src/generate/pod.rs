//! `run`: a pod with one container, and the service of `--expose`.

use std::sync::LazyLock;

use apimachinery::{Value, go, names, value};
use regex::Regex;

use super::expose::{self, Exposure};
use super::{Error, Name, atoi, labels, pairs, put, texts, typed};

/// Options of `run` that make the pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pod<'a> {
    pub name: &'a str,
    pub image: &'a str,
    pub image_pull_policy: &'a str,
    /// `a=b,c=d`; `run=NAME` if empty.
    pub labels: &'a str,
    /// `key=value`
    pub annotations: &'a [String],
    /// `KEY=value`
    pub env: &'a [String],
    pub port: &'a str,
    pub stdin: bool,
    pub leave_stdin_open: bool,
    pub tty: bool,
    pub privileged: bool,
    /// `Always` if empty.
    pub restart: &'a str,
    /// Arguments after the name.
    pub args: &'a [String],
    /// `args` are the command of the container, not its arguments.
    pub command: bool,
}

/// The form of an image reference: name, tag and digest.
static IMAGE: LazyLock<Regex> = LazyLock::new(|| {
    const HOST: &str = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    const PATH: &str = r"[a-z0-9]+(?:(?:[._]|__|[-]+)[a-z0-9]+)*";
    let domain = format!(r"(?:{HOST}(?:\.{HOST})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?");
    let tag = r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}";
    let digest = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
    let reference = format!(r"^(?:{domain}/)?{PATH}(?:/{PATH})*(?::{tag})?(?:@{digest})?$");
    Regex::new(&reference).expect("the expression is valid")
});

/// Checks an image name.
pub fn validate_image(image: &str) -> Result<(), Error> {
    if image.is_empty() {
        return Err(Error::new("--image is required"));
    }
    if !IMAGE.is_match(image) {
        return Err(Error::new(format!("Invalid image name {}: invalid reference format", go::quote(image))));
    }
    Ok(())
}

/// Returns the restart policy of `--restart`; an empty one depends on whether the pod is interactive.
pub fn restart_policy(restart: &str, interactive: bool) -> Result<&str, Error> {
    match restart {
        "" if interactive => Ok("OnFailure"),
        "" => Ok("Always"),
        "Always" | "OnFailure" | "Never" => Ok(restart),
        other => Err(Error::usage(format!("invalid restart policy: {other}"))),
    }
}

/// Checks `--image-pull-policy`.
pub fn validate_pull_policy(policy: &str) -> Result<(), Error> {
    match policy {
        "" | "Always" | "IfNotPresent" | "Never" => Ok(()),
        other => Err(Error::usage(format!("invalid image pull policy: {other}"))),
    }
}

/// Returns the pod.
pub fn pod(options: Pod<'_>) -> Result<Value, Error> {
    let env = env(options.env)?;
    let annotations = pairs::parse(options.annotations, "annotations")?;
    let labels = match options.labels {
        "" => value!({"run": (options.name)}),
        text => Value::Object(labels::parse(text)?),
    };
    let mut container = value!({
        "name": (options.name),
        "image": (options.image),
        "stdin": (options.stdin),
        "stdinOnce": (options.stdin && !options.leave_stdin_open),
        "tty": (options.tty),
        "imagePullPolicy": (options.image_pull_policy)
    });
    if options.privileged {
        put(&mut container, &["securityContext", "privileged"], true);
    }
    if !options.args.is_empty() {
        put(&mut container, &[if options.command { "command" } else { "args" }], texts(options.args));
    }
    if !env.is_empty() {
        put(&mut container, &["env"], env);
    }
    if !options.port.is_empty() {
        put(&mut container, &["ports"], vec![value!({"containerPort": (atoi(options.port)?)})]);
    }
    let restart = if options.restart.is_empty() { "Always" } else { options.restart };
    let mut pod = Name { name: options.name, namespace: None }.object("v1", "Pod");
    put(&mut pod, &["metadata", "labels"], labels);
    put(&mut pod, &["metadata", "annotations"], annotations.into_iter().collect::<apimachinery::Object>());
    let spec = value!({"containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": restart});
    put(&mut pod, &["spec"], spec);
    Ok(typed(pod))
}

/// Returns the service of `--expose`: it selects the pod and has its port and labels.
pub fn service(options: Pod<'_>) -> Result<Value, Error> {
    let run = format!("run={}", options.name);
    let selector = if options.labels.is_empty() { run.as_str() } else { options.labels };
    let exposure = Exposure {
        name: options.name,
        selector: selector.to_owned(),
        labels: options.labels.to_owned(),
        ports: vec![options.port.to_owned()],
        ..Exposure::default()
    };
    expose::service(&exposure)
}

fn env(variables: &[String]) -> Result<Vec<Value>, Error> {
    let variable = |text: &String| {
        let invalid = || Error::new(format!("invalid env: {text}"));
        let (name, value) = text.split_once('=').ok_or_else(invalid)?;
        if name.is_empty() || !names::env_var_name(name).is_empty() {
            return Err(invalid());
        }
        Ok(value!({"name": name, "value": value}))
    };
    variables.iter().map(variable).collect()
}
