//! The arguments of each command that can be completed.

use crate::kubeconfig::Section;

/// The arguments of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arguments {
    Files,
    None,
    /// The name of an entry of the kubeconfig.
    Entry(Section),
    Shell,
    Type,
    /// A name of a type.
    Name(&'static str),
    /// Any number of names of a type.
    Names(&'static str),
    /// A type and names, or `TYPE/NAME` any number of times. An empty list allows all types.
    Objects(&'static [&'static str]),
    /// A type and a name, or `TYPE/NAME`.
    Object(&'static [&'static str]),
    /// A pod, or `TYPE/NAME` of an object that owns pods.
    Pod,
    PodAndContainer,
    PodAndPort,
    /// A path, or `POD:PATH`.
    Copied,
}

const ROLLED_OUT: &[&str] = &["deployment", "daemonset", "statefulset"];
const SCALED: &[&str] = &["deployment", "replicaset", "replicationcontroller", "statefulset"];
const EXPOSED: &[&str] = &["pod", "service", "replicationcontroller", "deployment", "replicaset"];
const TEMPLATES: &[&str] =
    &["daemonsets", "deployments", "pods", "cronjobs", "replicasets", "replicationcontrollers", "statefulsets"];

/// Returns the arguments of the command with these names.
// DEVIATION: kubectl completes no arguments of `certificate`, `config get-contexts`, `explain`, `wait`, and of `set` other
// than `image`.
pub(super) fn of(names: &[&str]) -> Arguments {
    match names {
        ["config", "use-context" | "delete-context" | "rename-context" | "set-context" | "get-contexts"] => {
            Arguments::Entry(Section::Contexts)
        }
        ["config", "set-cluster" | "delete-cluster"] => Arguments::Entry(Section::Clusters),
        ["config", "set-credentials" | "delete-user"] => Arguments::Entry(Section::Users),
        ["completion"] => Arguments::Shell,
        ["explain"] => Arguments::Type,
        ["cordon" | "uncordon" | "drain"] | ["top", "node"] => Arguments::Name("nodes"),
        ["top", "pod"] => Arguments::Name("pods"),
        ["create", "token"] => Arguments::Name("serviceaccounts"),
        ["certificate", _] => Arguments::Names("certificatesigningrequests"),
        ["exec" | "attach"] => Arguments::Pod,
        ["logs"] => Arguments::PodAndContainer,
        ["port-forward"] => Arguments::PodAndPort,
        ["cp"] => Arguments::Copied,
        ["get" | "describe" | "delete" | "edit" | "label" | "annotate" | "patch" | "wait" | "debug"] => {
            Arguments::Objects(&[])
        }
        ["apply", "edit-last-applied" | "view-last-applied"] => Arguments::Objects(&[]),
        ["rollout", "pause" | "resume"] => Arguments::Objects(&["deployment"]),
        ["rollout", "status"] => Arguments::Object(ROLLED_OUT),
        ["rollout", _] => Arguments::Objects(ROLLED_OUT),
        ["scale" | "autoscale"] => Arguments::Objects(SCALED),
        ["expose"] => Arguments::Objects(EXPOSED),
        ["taint"] => Arguments::Objects(&["node"]),
        ["set", "image" | "env" | "resources" | "serviceaccount"] => Arguments::Object(TEMPLATES),
        ["set", "selector"] => Arguments::Object(&["service"]),
        ["events" | "version" | "cluster-info" | "api-resources" | "api-versions" | "options" | "proxy"] => {
            Arguments::None
        }
        _ => Arguments::Files,
    }
}
