//! `kubectl apply`: changes objects to match a configuration, and stores the configuration with them.
//!
//! ```text
//! client side: configuration + last-applied annotation + live object ──> three-way patch
//! server side: configuration ──> apply patch, the server tracks the managers of fields
//! ```

mod edit;
mod migrate;
mod patcher;
mod prune;
mod server_side;
mod set;
mod view;

use std::io::Write;

use apimachinery::{Object, Value, value};
use client::{Client, DeleteOptions, FieldValidation, Propagation, WriteOptions};

pub(super) use patcher::{Patcher, describe};
pub(super) use prune::Kinds;

use crate::apply::three_way;
use crate::changes::{self, DryRun, Form, Results};
use crate::command::{Command, Flag, Group};
use crate::generate::last_applied;
use crate::print::{json, omit_managed_fields};
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, flags};

/// The default field manager of client-side apply.
pub(super) const CLIENT_SIDE: &str = "kubectl-client-side-apply";
/// The default field manager of server-side apply.
pub(super) const SERVER_SIDE: &str = "kubectl";

pub(super) static COMMAND: Command = Command {
    name: "apply",
    group: Group::Advanced,
    summary: "Create or update objects to match files",
    description: "Create the objects in files, or update those that exist to match. The last applied configuration \
        is kept in an annotation, so that fields removed from a file are removed from the object; with \
        --server-side, the API server tracks the owner of each field instead. Pruning with --prune is an alpha \
        feature.",
    examples: "  # Apply all manifests in a directory
  kubectl apply -f deploy/

  # Apply a kustomization
  kubectl apply -k overlays/staging

  # Apply standard input, as a test on the server
  cat web.yaml | kubectl apply -f - --dry-run=server

  # Apply on the server, and take over fields of other managers
  kubectl apply -f web.yaml --server-side --force-conflicts

  # Apply, and delete applied config maps labeled app=web that are no longer in the file
  kubectl apply -f web.yaml -l app=web --prune --prune-allowlist=core/v1/ConfigMap",
    usage: "kubectl apply (-f FILENAME | -k DIRECTORY) [options]",
    flags: &[
        flags::OUTPUT,
        flags::DRY_RUN,
        flags::VALIDATE,
        flags::SELECTOR,
        flags::DIRECTORY,
        changes::RECORD,
        SERVER_SIDE_FLAGS,
        &[
            flags::filename("Files, directories, or URLs with the objects to apply."),
            flags::field_manager(CLIENT_SIDE),
            Flag::bool("all", "With --prune, consider all applied objects instead of those of a selector."),
            Flag::text("applyset", "", "Name of the ApplySet that tracks the applied objects (not supported).")
                .hidden(),
            Flag::text(
                "cascade",
                "background",
                "How to treat the dependents of a deleted object: \"background\", \"foreground\", or \"orphan\".",
            )
            .without_value("background"),
            Flag::bool(
                "force",
                "Delete and recreate an object that cannot be patched because of a conflict or an invalid change.",
            ),
            Flag::int(
                "grace-period",
                "-1",
                "Seconds that deleted objects have to terminate; a negative value means the default of their \
                kind.",
            ),
            // DEVIATION: `kubectl apply --openapi-patch` has no effect: patches use the schemas that are built in, and
            // merge patches for other kinds.
            Flag::bool("openapi-patch", "Accepted for compatibility; patches always use the built-in schemas.")
                .default("true"),
            Flag::bool("overwrite", "Resolve conflicts with the live object in favor of the file.").default("true"),
            Flag::bool(
                "prune",
                "Delete applied objects that are no longer in the files; requires --selector or --all.",
            ),
            Flag::array(
                "prune-allowlist",
                "Kinds to prune, as <group/version/kind>, instead of the default kinds; can be repeated.",
            ),
            Flag::text("subresource", "", "Subresource to apply; requires --server-side."),
            Flag::duration("timeout", "0s", "Maximum time that --force waits for a deletion; 0 means no limit."),
            Flag::bool("wait", "Accepted for compatibility; apply does not wait for pruned objects to be gone."),
        ],
    ],
    commands: &[&edit::COMMAND, &set::COMMAND, &view::COMMAND],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// The flags of server-side apply.
pub(super) const SERVER_SIDE_FLAGS: &[Flag] = &[
    Flag::bool("server-side", "Merge the files on the API server instead of the client."),
    Flag::bool("force-conflicts", "With --server-side, take over fields that other managers own."),
];

/// One run of the command.
struct Apply<'a> {
    context: &'a Context,
    invocation: &'a Invocation,
    client: Client,
    dry_run: DryRun,
    server_side: bool,
    options: WriteOptions,
    cascade: Propagation,
    results: Results<'a>,
    visited: prune::AppliedObjects,
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    if !invocation.args.is_empty() {
        let args = invocation.args.join(" ");
        return Err(Failure::usage(&invocation.name(), format_args!("Unexpected args: [{args}]")));
    }
    let dry_run = DryRun::of(context, invocation)?;
    require_files(invocation)?;
    let validation = changes::field_validation(invocation)?;
    let cascade = cascade(invocation.text("cascade"))?;
    let kinds = match invocation.bool("prune") {
        true => Some(Kinds::parse(context, &invocation.list("prune-allowlist")).await?),
        false => None,
    };
    validate(invocation, dry_run)?;
    let server_side = invocation.bool("server-side");
    let options = WriteOptions {
        dry_run: dry_run == DryRun::Server,
        field_manager: field_manager(invocation, server_side),
        field_validation: Some(validation),
        ..WriteOptions::default()
    };
    let results = Results::new(context, invocation, dry_run, Form::Untyped)?;
    let client = context.client()?;
    let visited = prune::AppliedObjects::default();
    let mut apply = Apply { context, invocation, client, dry_run, server_side, options, cascade, results, visited };
    apply.run(kinds, validation).await
}

/// Returns the field manager: the flag, or the default of the kind of apply.
pub(super) fn field_manager(invocation: &Invocation, server_side: bool) -> String {
    match (invocation.is_set("field-manager"), server_side) {
        (false, true) => SERVER_SIDE.to_owned(),
        _ => invocation.text("field-manager").to_owned(),
    }
}

/// Fails without `--filename` and `--kustomize`.
pub(super) fn require_files(invocation: &Invocation) -> Result<(), Failure> {
    if invocation.list("filename").is_empty() && invocation.text("kustomize").is_empty() {
        return Err(Failure::new("must specify one of -f and -k"));
    }
    Ok(())
}

/// Warns about changes of an object that is being deleted.
pub(super) fn warn_if_deleting(context: &Context, object: &Value) {
    if object.at(&["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null()) {
        let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
        write_warning(
            context,
            &format!("Warning: Detected changes to resource {name} which is currently being deleted.\n"),
        );
    }
}

/// Writes to standard error.
pub(super) fn write_warning(context: &Context, text: &str) {
    let _ = context.err().write_all(text.as_bytes());
}

fn cascade(text: &str) -> Result<Propagation, Failure> {
    match text {
        "background" => Ok(Propagation::Background),
        "foreground" => Ok(Propagation::Foreground),
        "orphan" => Ok(Propagation::Orphan),
        other => Err(Failure::new(format!(
            "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
        ))),
    }
}

fn validate(invocation: &Invocation, dry_run: DryRun) -> Result<(), Failure> {
    let flag = |name| invocation.bool(name);
    let (server_side, force, prune) = (flag("server-side"), flag("force"), flag("prune"));
    let selector = !invocation.text("selector").is_empty();
    let problem = if flag("force-conflicts") && !server_side {
        "--force-conflicts only works with --server-side"
    } else if dry_run == DryRun::Client && server_side {
        "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)"
    } else if server_side && force {
        "--force cannot be used with --server-side"
    } else if dry_run == DryRun::Server && force {
        "--dry-run=server cannot be used with --force"
    } else if flag("all") && selector {
        "cannot set --all and --selector at the same time"
    } else if !invocation.text("applyset").is_empty() {
        // DEVIATION: ApplySets, which upstream offers behind an environment variable, are not supported.
        "--applyset is not supported: use --prune with --selector or --all"
    } else if prune && force {
        "--force cannot be used with --prune"
    } else if prune && !flag("all") && !selector {
        "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all flag. If you did not mean to prune all resources, specify a label selector"
    } else if prune && server_side {
        "--prune is in alpha and doesn't currently work on objects created by server-side apply"
    } else if !invocation.text("subresource").is_empty() && !server_side {
        "--subresource can only be specified for --server-side"
    } else {
        return Ok(());
    };
    Err(Failure::new(problem))
}

impl Apply<'_> {
    async fn run(&mut self, kinds: Option<Kinds>, validation: FieldValidation) -> Result<(), Failure> {
        let namespace = self.context.namespace()?;
        if namespace.explicit {
            self.visited.namespaces.insert(namespace.name.clone());
        }
        let found = Builder::new(self.context)
            .validate(validation != FieldValidation::Ignore)
            .namespace(&namespace)
            .filenames(self.invocation)
            .selector(self.invocation.text("selector"))
            .found()
            .await?;
        let mut infos = found.infos;
        // Failures to read objects are one failure beside those to apply objects.
        let mut failures: Vec<Failure> = Failure::list(found.failures).into_iter().collect();
        if infos.is_empty() && failures.is_empty() {
            return Err(Failure::new("no objects passed to apply"));
        }
        for info in &mut infos {
            if let Err(failure) = self.apply(info).await {
                failures.push(failure);
            }
        }
        Failure::all(failures)?;
        self.print_all(&infos)?;
        match kinds {
            Some(kinds) => self.prune(kinds).await,
            None => Ok(()),
        }
    }

    async fn apply(&mut self, info: &mut Info) -> Result<(), Failure> {
        if info.namespaced() {
            self.visited.namespaces.insert(info.namespace.clone());
        }
        changes::record(self.invocation, &mut info.object);
        if info.name.is_empty()
            && let Some(prefix) = info.object.str_at(&["metadata", "generateName"]).filter(|name| !name.is_empty())
        {
            return Err(Failure::new(format!("from {prefix}: cannot use generate name with apply")));
        }
        if self.server_side {
            return self.apply_on_server(info).await;
        }
        let mut modified = info.object.clone();
        last_applied::save_untyped(&mut modified);
        match info.fetch(&self.client, "").await {
            Ok(()) => self.update(info, &modified).await,
            Err(failure) if failure.is_not_found() => self.create(info, modified).await,
            Err(failure) => {
                let verb = format!("retrieving current configuration of:\n{}\nfrom server for:", describe(info));
                Err(failure.when(&verb, &info.source))
            }
        }
    }

    async fn create(&mut self, info: &mut Info, mut object: Value) -> Result<(), Failure> {
        three_way::prune_nulls(&mut object);
        if self.dry_run == DryRun::Client {
            info.object = object;
        } else {
            let created = self.client.create(&info.collection(), &object, &self.options).await;
            let created = created.map_err(|error| Failure::from(error).when("creating", &info.source))?;
            info.refresh(created);
        }
        self.visited.add(&info.object);
        self.print(info, "created")
    }

    async fn update(&mut self, info: &mut Info, modified: &Value) -> Result<(), Failure> {
        self.visited.add(&info.object);
        let annotations = info.object.at(&["metadata", "annotations"]).and_then(Value::as_object);
        if annotations.is_none_or(|annotations| !annotations.contains_key(last_applied::ANNOTATION)) {
            let name = format!("{}/{}", info.mapping.resource, info.name);
            write_warning(
                self.context,
                &format!(
                    "Warning: resource {name} is missing the {} annotation which is required by kubectl apply. kubectl apply should only be used on resources created declaratively by either kubectl create --save-config or kubectl apply. The missing annotation will be patched automatically.\n",
                    last_applied::ANNOTATION
                ),
            );
        }
        let patcher = Patcher {
            context: self.context,
            client: &self.client,
            options: self.options.clone(),
            overwrite: self.invocation.bool("overwrite"),
            force: self.invocation.bool("force").then(|| self.delete_options()),
            timeout: self.invocation.duration("timeout"),
            resource_version: None,
        };
        let patched = match self.dry_run {
            DryRun::Client => Patcher::patch_local(info, modified),
            DryRun::None | DryRun::Server => patcher.patch(info, modified).await,
        };
        let (patch, object) = patched.map_err(|(patch, failure)| {
            let patch = if patch.is_null() { String::new() } else { patch.to_string() };
            let verb = format!("applying patch:\n{patch}\nto:\n{}\nfor:", describe(info));
            failure.when(&verb, &info.source)
        })?;
        info.refresh(object);
        warn_if_deleting(self.context, &info.object);
        let unchanged = patch.as_object().is_some_and(Object::is_empty);
        self.print(info, if unchanged { "unchanged" } else { "configured" })
    }

    /// Prints a message about an object, unless all objects are printed at the end.
    fn print(&mut self, info: &Info, operation: &str) -> Result<(), Failure> {
        if self.prints_objects() {
            return Ok(());
        }
        self.results.print(&info.object, operation)?;
        // The server's warnings about the next object come after this message.
        Ok(self.context.out().flush()?)
    }

    fn print_all(&mut self, infos: &[Info]) -> Result<(), Failure> {
        if !self.prints_objects() {
            return Ok(());
        }
        match infos {
            [] => Ok(()),
            [info] => self.results.print(&info.object, ""),
            _ if self.invocation.text("output") == "json" => {
                // Upstream prints a typed list, whose fields are not sorted, with untyped items.
                let show_managed_fields = self.invocation.bool("show-managed-fields");
                let items: Vec<String> = infos
                    .iter()
                    .map(|info| {
                        let mut object = info.object.clone();
                        if !show_managed_fields {
                            omit_managed_fields(&mut object);
                        }
                        object.to_string()
                    })
                    .collect();
                let list =
                    format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{}]}}"#, items.join(","));
                self.results.write(&(json::indent(&list) + "\n"))
            }
            _ => {
                let items = Value::Array(infos.iter().map(|info| info.object.clone()).collect());
                let list = value!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
                self.results.print(&list, "")
            }
        }
    }

    fn prints_objects(&self) -> bool {
        !matches!(self.invocation.text("output"), "" | "name")
    }

    fn delete_options(&self) -> DeleteOptions {
        DeleteOptions {
            grace_seconds: u32::try_from(self.invocation.int("grace-period")).ok(),
            propagation: Some(self.cascade),
            dry_run: self.dry_run == DryRun::Server,
            ..DeleteOptions::default()
        }
    }
}
