//! Common parts of the subcommands of `kubectl create`: the name, the flags, the request and the output.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::iter::once;

use apimachinery::meta::{self, Scope};
use apimachinery::{Resource, Value};
use client::{Target, WriteOptions};

use crate::changes::{self, DryRun, Form, Results};
use crate::generate::rbac::Rule;
use crate::generate::sources::{self, Entry};
use crate::generate::{self, Name, last_applied};
use crate::{Context, Failure, Invocation, Namespace};

pub(super) static CLUSTER_ROLES: Resource =
    Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
pub(super) static CLUSTER_ROLE_BINDINGS: Resource =
    Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding");
pub(super) static CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
pub(super) static CRON_JOBS: Resource = Resource::namespaced("batch", "v1", "cronjobs", "CronJob");
pub(super) static DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");
pub(super) static INGRESSES: Resource = Resource::namespaced("networking.k8s.io", "v1", "ingresses", "Ingress");
pub(super) static JOBS: Resource = Resource::namespaced("batch", "v1", "jobs", "Job");
pub(super) static NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces", "Namespace");
pub(super) static POD_DISRUPTION_BUDGETS: Resource =
    Resource::namespaced("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget");
pub(super) static PRIORITY_CLASSES: Resource =
    Resource::cluster("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass");
pub(super) static RESOURCE_QUOTAS: Resource = Resource::namespaced("", "v1", "resourcequotas", "ResourceQuota");
pub(super) static ROLES: Resource = Resource::namespaced("rbac.authorization.k8s.io", "v1", "roles", "Role");
pub(super) static ROLE_BINDINGS: Resource =
    Resource::namespaced("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding");
pub(super) static SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
pub(super) static SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
pub(super) static SERVICE_ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount");

/// The creation of one object.
pub(super) struct Creation<'a> {
    context: &'a Context,
    invocation: &'a Invocation,
    name: &'a str,
    namespace: Namespace,
    dry_run: DryRun,
    options: WriteOptions,
    results: Results<'a>,
    save: bool,
}

/// The types that a rule of a role names.
pub(super) struct Types(Vec<(GroupResource, Result<GroupResource, Failure>)>);

/// A group and the name of a resource.
type GroupResource = (String, String);

impl<'a> Creation<'a> {
    pub(super) fn new(context: &'a Context, invocation: &'a Invocation) -> Result<Self, Failure> {
        let name = name(invocation)?;
        let namespace = context.namespace()?;
        let dry_run = DryRun::of(context, invocation)?;
        let results = Results::new(context, invocation, dry_run, Form::Typed)?;
        let options = changes::write_options(invocation, dry_run)?;
        let save = invocation.bool("save-config");
        Ok(Self { context, invocation, name, namespace, dry_run, options, results, save })
    }

    /// Ignores `--save-config`.
    #[must_use]
    pub(super) fn without_saving(self) -> Self {
        Self { save: false, ..self }
    }

    /// Returns the name, with the namespace if it was given on the command line.
    pub(super) fn name(&self) -> Name<'_> {
        Name { name: self.name, namespace: self.namespace.explicit.then_some(self.namespace.name.as_str()) }
    }

    /// Returns the arguments after the name.
    pub(super) fn command(&self) -> &'a [String] {
        self.invocation.args.get(1..).unwrap_or_default()
    }

    /// Prints warnings.
    pub(super) fn warn(&self, warnings: &[String]) -> Result<(), Failure> {
        for warning in warnings {
            writeln!(self.context.err(), "{warning}")?;
        }
        Ok(())
    }

    /// Creates the object and prints it. `failed` precedes the message of the server.
    pub(super) async fn create(mut self, mut object: Value, resource: &Resource, failed: &str) -> Result<(), Failure> {
        if self.save {
            last_applied::save(&mut object);
        }
        if self.dry_run != DryRun::Client {
            let namespace = if resource.scope == Scope::Namespaced { self.namespace.name.as_str() } else { "" };
            let target = Target::within(resource, namespace);
            let created = self.context.client()?.create(&target, &object, &self.options).await;
            object = generate::typed(created.map_err(|error| failure(error.into(), failed))?);
        }
        self.results.print(&object, "created")
    }
}

impl Types {
    /// Returns the group and the plural name of a type.
    pub(super) fn find(&self, group: &str, name: &str) -> Result<GroupResource, Failure> {
        let found = self.0.iter().find(|((have_group, have), _)| have_group == group && have == name);
        found.map_or_else(|| Ok((group.to_owned(), name.to_owned())), |(_, found)| found.clone())
    }
}

/// Returns the only argument before `--`.
pub(super) fn name(invocation: &Invocation) -> Result<&str, Failure> {
    match invocation.dash.unwrap_or(invocation.args.len()) {
        1 => Ok(&invocation.args[0]),
        count => {
            let problem = format_args!("exactly one NAME is required, got {count}");
            Err(Failure::usage(&invocation.name(), problem))
        }
    }
}

/// Resolves the types that a rule names by discovery.
pub(super) async fn find_types(context: &Context, rule: &Rule) -> Result<Types, Failure> {
    let mut types = Vec::new();
    for resource in rule.resources.iter().filter(|resource| !matches!(resource.resource.as_str(), "" | "*")) {
        let (group, name) = (&resource.group, &resource.resource);
        let text = if group.is_empty() { name.clone() } else { format!("{name}.{group}") };
        let found = context.mapper().await?.resource(&text).await;
        let found = found
            .map(|mapping| (mapping.resource.group.to_string(), mapping.resource.plural.to_string()))
            .map_err(|failure| {
                let unknown = failure.status().is_none() && failure.message.starts_with("the server doesn't have");
                let group = if unknown && !group.is_empty() { format!(" in group {group:?}") } else { String::new() };
                Failure::plain(format!("{}{group}", failure.message))
            });
        types.push(((group.clone(), name.clone()), found));
    }
    Ok(Types(types))
}

/// Returns five random characters of generated names.
pub(super) fn random_suffix() -> String {
    meta::name_suffix(RandomState::new().hash_one(std::process::id()))
}

pub(super) fn from_literals(literals: &[String]) -> impl Iterator<Item = Result<Entry, generate::Error>> {
    literals.iter().map(|literal| sources::literal(literal))
}

pub(super) fn from_files(files: &[String]) -> impl Iterator<Item = Result<Entry, generate::Error>> {
    files.iter().flat_map(|file| entries(sources::read_file(file)))
}

/// Reads environment files; `kind` names the target in messages.
pub(super) fn from_env_files(files: &[String], kind: &str) -> impl Iterator<Item = Result<Entry, generate::Error>> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    files.iter().flat_map(move |file| entries(sources::read_env_file(file, kind, variable)))
}

fn entries(read: Result<Vec<Entry>, generate::Error>) -> Box<dyn Iterator<Item = Result<Entry, generate::Error>>> {
    match read {
        Ok(entries) => Box::new(entries.into_iter().map(Ok)),
        Err(error) => Box::new(once(Err(error))),
    }
}

fn failure(failure: Failure, failed: &str) -> Failure {
    if failed.is_empty() {
        return failure;
    }
    Failure::new(format!("{failed}{}", changes::inner_message(&failure)))
}
