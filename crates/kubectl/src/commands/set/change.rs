//! Common parts of the subcommands of `kubectl set`: the objects, the patch of each, and the output.

use apimachinery::patch::strategic;
use apimachinery::{GroupVersionKind, Object, Value, go};
use client::{Patch, WriteOptions};

use crate::changes::{self, DryRun, Form, Results};
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, generate};

pub(super) const LOCAL_SERVER: &str = "cannot specify --local and --dry-run=server - did you mean --dry-run=client?";
const LOCAL: &str = "error: you must specify resources by --filename when --local is set.
Example resource specifications include:
   '-f rsrc.yaml'
   '--filename=rsrc.json'";

/// A change of objects.
pub(super) struct Change<'a> {
    context: &'a Context,
    invocation: &'a Invocation,
    pub dry_run: DryRun,
    options: WriteOptions,
    results: Results<'a>,
    pub failures: Vec<Failure>,
}

/// The result of an edit of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EditResult {
    /// The object is patched and printed, even if nothing changed.
    Always,
    /// The object is patched and printed if it changed.
    IfChanged,
    /// The object is not changed.
    Skip,
    /// As `Maybe`, but a patch of the server is followed by a failure.
    IfChangedThenFail(&'static str),
}

impl<'a> Change<'a> {
    pub(super) fn new(context: &'a Context, invocation: &'a Invocation) -> Result<Self, Failure> {
        let dry_run = DryRun::of(context, invocation)?;
        let results = Results::new(context, invocation, dry_run, Form::Typed)?;
        let options = changes::write_options(invocation, dry_run)?;
        Ok(Self { context, invocation, dry_run, options, results, failures: Vec::new() })
    }

    /// Returns the objects with the form of their Go types. Arguments are not allowed with `--local`.
    pub(super) async fn infos(&self, resources: &[String]) -> Result<Vec<Info>, Failure> {
        let invocation = self.invocation;
        let local = invocation.bool("local");
        if local && !resources.is_empty() && invocation.path.last() != Some(&"serviceaccount") {
            return Err(Failure::new(LOCAL));
        }
        let mut builder =
            Builder::new(self.context).local(local).namespace(&self.context.namespace()?).filenames(invocation);
        if !local {
            if invocation.has("selector") {
                builder = builder.selector(invocation.text("selector"));
            }
            builder = builder.types_or_names(invocation.bool("all"), resources).latest();
        }
        let mut infos = builder.infos().await?;
        for info in &mut infos {
            info.object = generate::typed(info.object.take());
        }
        Ok(infos)
    }

    /// Checks flags that most subcommands have.
    pub(super) fn validate(&self) -> Result<(), Failure> {
        if self.invocation.bool("local") && self.dry_run == DryRun::Server {
            return Err(Failure::new(LOCAL_SERVER));
        }
        if self.invocation.bool("all") && !self.invocation.text("selector").is_empty() {
            return Err(Failure::new("cannot set --all and --selector at the same time"));
        }
        Ok(())
    }

    /// Edits an object, patches it on the server and prints it. `failed` precedes the message of the server.
    pub(super) async fn apply(
        &mut self,
        mut info: Info,
        edit: impl FnOnce(&mut Value) -> Result<EditResult, generate::Error>,
        failed: &str,
    ) -> Result<(), Failure> {
        let before = info.object.clone();
        let edited = edit(&mut info.object).map_err(|error| self.edit_failure(&info, &error))?;
        if edited == EditResult::Skip {
            return Ok(());
        }
        if self.invocation.has("record") {
            changes::record(self.invocation, &mut info.object);
        }
        let patch = two_way(&before, &info.object)?;
        if patch.is_empty() && edited != EditResult::Always {
            return Ok(());
        }
        let operation = operation(self.invocation);
        if self.invocation.bool("local") || self.dry_run == DryRun::Client {
            return self.results.print(&generate::typed(info.object), operation);
        }
        let patch = Patch::Strategic(Value::Object(patch));
        let patched = self.context.client()?.patch(&info.target(), &patch, &self.options).await.map_err(|error| {
            let failure = Failure::from(error);
            if failed.is_empty() {
                failure
            } else {
                Failure::new(format!("{failed}{}", changes::inner_message(&failure)))
            }
        })?;
        if let EditResult::IfChangedThenFail(problem) = edited {
            return Err(Failure::new(problem));
        }
        self.results.print(&generate::typed(patched), operation)
    }

    /// Records a failure. The other objects are still changed.
    pub(super) fn keep(&mut self, result: Result<(), Failure>) {
        self.failures.extend(result.err());
    }

    pub(super) fn done(self) -> Result<(), Failure> {
        Failure::all(self.failures)
    }

    fn edit_failure(&self, info: &Info, error: &generate::Error) -> Failure {
        if matches!(self.invocation.path.last(), Some(&"selector")) {
            return Failure::new(error.to_string());
        }
        let plural = &info.mapping.resource.plural;
        Failure::new(format!("error: {plural}/{} {error}\n", info.name))
    }
}

/// Returns the strategic merge patch from one object to another.
fn two_way(before: &Value, after: &Value) -> Result<Object, Failure> {
    let kind = GroupVersionKind::of_object(after).map_err(|error| Failure::new(error.to_string()))?;
    let Some(schema) = api::catalogue::schema(&kind) else {
        let (kind, version) = (go::quote(&kind.kind), go::quote(&kind.api_version()));
        return Err(Failure::new(format!(
            "no kind {kind} is registered for version {version} in scheme \"pkg/scheme/scheme.go:28\""
        )));
    };
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return Ok(Object::new()) };
    strategic::create_two_way(before, after, schema).map_err(|error| Failure::new(error.to_string()))
}

/// Returns the operation in the message about a changed object.
fn operation(invocation: &Invocation) -> &'static str {
    match invocation.path.last() {
        Some(&"env") => "env updated",
        Some(&"image") => "image updated",
        Some(&"resources") => "resource requirements updated",
        Some(&"selector") => "selector updated",
        Some(&"serviceaccount") => "serviceaccount updated",
        _ => "subjects updated",
    }
}
