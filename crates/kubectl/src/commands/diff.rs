//! `kubectl diff`: prints the changes that apply would make.

mod mask;
mod unified;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command as Process, ExitStatus};

use apimachinery::{Value, yaml};
use client::{Client, ListOptions, Patch, Target, WriteOptions};

use super::apply::{self, Kinds, Patcher};
use crate::command::{Command, Flag, Group};
use crate::failure::go_io_error;
use crate::generate::last_applied;
use crate::print::omit_managed_fields;
use crate::resources::{Builder, Info};
use crate::{Context, Failure, Invocation, flags};

pub(super) static COMMAND: Command = Command {
    name: "diff",
    group: Group::Advanced,
    summary: "Show what apply would change",
    description: "Compare the live objects with what they would be after kubectl apply, as YAML. The program diff -u \
        -N shows the differences, or the one in KUBECTL_EXTERNAL_DIFF, which must return the same exit codes. The \
        exit code is 0 without differences, 1 with differences, and greater than 1 on errors.",
    examples: "  # Show what a manifest would change
  kubectl diff -f web.yaml

  # Compare a kustomization by the rules of server-side apply
  kubectl diff -k overlays/staging --server-side

  # Include the objects that pruning would delete
  kubectl diff -f deploy/ -l app=web --prune

  # Use another program
  KUBECTL_EXTERNAL_DIFF='colordiff -u -N' kubectl diff -f db.yaml",
    usage: "kubectl diff -f FILENAME [options]",
    flags: &[
        flags::SELECTOR,
        flags::DIRECTORY,
        apply::SERVER_SIDE_FLAGS,
        &[
            flags::filename("Files, directories, or URLs with the objects to compare."),
            flags::field_manager(apply::CLIENT_SIDE),
            Flag::int("concurrency", "1", "Accepted for compatibility; objects are compared one at a time."),
            Flag::bool("prune", "Also show the objects that pruning would delete."),
            Flag::array(
                "prune-allowlist",
                "Kinds to prune, as <group/version/kind>, instead of the default kinds; can be repeated.",
            ),
            Flag::bool("show-managed-fields", "Include managedFields in the comparison."),
            Flag::bool("show-secrets", "Show the values of secrets instead of masking them."),
        ],
    ],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// Maximum number of attempts to compare an object that changes concurrently.
const ATTEMPTS_MAX: usize = 4;

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    // Exit code 1 means that there are differences.
    match compare(context, invocation).await {
        Ok(true) => Err(Failure::silent(1)),
        Ok(false) => Ok(()),
        Err(failure) => Err(failure.with_code(2)),
    }
}

/// Compares all objects; returns whether there are differences.
async fn compare(context: &Context, invocation: &Invocation) -> Result<bool, Failure> {
    if !invocation.args.is_empty() {
        let args = invocation.args.join(" ");
        return Err(Failure::usage(&invocation.name(), format_args!("Unexpected args: [{args}]")));
    }
    apply::require_files(invocation)?;
    let server_side = invocation.bool("server-side");
    if invocation.bool("force-conflicts") && !server_side {
        return Err(Failure::new("--force-conflicts only works with --server-side"));
    }
    let kinds = match invocation.bool("prune") {
        true => Some(Kinds::parse(context, &invocation.list("prune-allowlist")).await?),
        false => None,
    };
    let directory = |name: &str| tempfile::Builder::new().prefix(&format!("{name}-")).tempdir();
    let (live, merged) = (directory("LIVE")?, directory("MERGED")?);
    let infos = Builder::new(context)
        .namespace(&context.namespace()?)
        .filenames(invocation)
        .selector(invocation.text("selector"))
        .infos()
        .await?;
    let client = context.client()?;
    let options = WriteOptions {
        dry_run: true,
        field_manager: apply::field_manager(invocation, server_side),
        force: server_side && invocation.bool("force-conflicts"),
        ..WriteOptions::default()
    };
    let differ = Differ { context, invocation, client, options, server_side };
    let mut visited = DiffedObjects::default();
    for info in infos {
        let (name, before, after) = differ.versions(info, &mut visited).await?;
        write(live.path(), &name, &before)?;
        write(merged.path(), &name, &after)?;
    }
    if let Some(kinds) = kinds {
        for object in differ.pruned(&kinds, &visited).await? {
            write(live.path(), &file_name(&object), &object)?;
        }
    }
    std::io::Write::flush(&mut context.out())?;
    run_program(context, live.path(), merged.path())
}

/// The objects and namespaces of the files.
#[derive(Default)]
struct DiffedObjects {
    namespaces: BTreeSet<String>,
    uids: BTreeSet<String>,
}

struct Differ<'a> {
    context: &'a Context,
    invocation: &'a Invocation,
    client: Client,
    options: WriteOptions,
    server_side: bool,
}

impl Differ<'_> {
    /// Returns the file name of an object, the live object, and the result that apply would have. The live object
    /// is `null` if it does not exist.
    async fn versions(&self, mut info: Info, visited: &mut DiffedObjects) -> Result<(String, Value, Value), Failure> {
        let local = info.object.clone();
        let name = info_name(&info);
        let mut attempt = 1;
        let merged = loop {
            match info.fetch(&self.client, "").await {
                Ok(()) => {}
                Err(failure) if failure.is_not_found() => info.object = Value::Null,
                Err(failure) => return Err(failure),
            }
            visited.namespaces.insert(info.namespace.clone());
            visited.uids.extend(info.object.str_at(&["metadata", "uid"]).map(str::to_owned));
            match self.merged(&info, &local, attempt < ATTEMPTS_MAX).await {
                Err(failure) if failure.is_conflict() && attempt < ATTEMPTS_MAX => attempt += 1,
                outcome => break outcome?,
            }
        };
        let (mut before, mut after) = (info.object, merged);
        apply::warn_if_deleting(self.context, &before);
        if !self.invocation.bool("show-managed-fields") {
            omit_managed_fields(&mut before);
            omit_managed_fields(&mut after);
        }
        let is_secret = after.str_at(&["kind"]) == Some("Secret") && after.str_at(&["apiVersion"]) == Some("v1");
        if is_secret && !self.invocation.bool("show-secrets") {
            mask::mask(&mut before, &mut after);
        }
        Ok((name, before, after))
    }

    /// Returns the result that apply would have.
    async fn merged(&self, info: &Info, local: &Value, locked: bool) -> Result<Value, Failure> {
        if self.server_side {
            let patch = Patch::Apply(local.clone());
            return Ok(self.client.patch(&info.target(), &patch, &self.options).await?);
        }
        if info.object.is_null() {
            return Ok(self.client.create(&info.collection(), local, &self.options).await?);
        }
        let version = info.object.str_at(&["metadata", "resourceVersion"]).map(str::to_owned);
        let patcher = Patcher {
            context: self.context,
            client: &self.client,
            options: self.options.clone(),
            overwrite: true,
            force: None,
            timeout: std::time::Duration::ZERO,
            resource_version: version.filter(|_| locked),
        };
        let patched = patcher.patch(info, &last_applied::configuration(local)).await;
        patched.map(|(_, object)| object).map_err(|(_, failure)| failure)
    }

    /// Returns the objects that `apply --prune` would delete.
    async fn pruned(&self, kinds: &Kinds, visited: &DiffedObjects) -> Result<Vec<Value>, Failure> {
        let options =
            ListOptions { label_selector: self.invocation.text("selector").to_owned(), ..ListOptions::default() };
        let mut pruned = Vec::new();
        for (mapping, namespace) in kinds.targets(&visited.namespaces) {
            let list = self.client.list_all(&Target::within(&mapping.resource, namespace), &options).await?;
            pruned.extend(list.items.into_iter().filter(|object| {
                let uid = object.str_at(&["metadata", "uid"]).unwrap_or_default();
                last_applied::original(object).is_some() && !visited.uids.contains(uid)
            }));
        }
        Ok(pruned)
    }
}

fn info_name(info: &Info) -> String {
    let resource = &info.mapping.resource;
    name_of(&resource.group, &resource.version, &resource.kind, &info.namespace, &info.name)
}

fn file_name(object: &Value) -> String {
    let text = |path: &[&str]| object.str_at(path).unwrap_or_default();
    let version = text(&["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    name_of(group, version, text(&["kind"]), text(&["metadata", "namespace"]), text(&["metadata", "name"]))
}

fn name_of(group: &str, version: &str, kind: &str, namespace: &str, name: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    format!("{group}{dot}{version}.{kind}.{namespace}.{name}")
}

/// Writes an object as YAML; `null` is an empty file.
fn write(directory: &Path, name: &str, object: &Value) -> Result<(), Failure> {
    let text = if object.is_null() { String::new() } else { yaml::to_string(object) };
    Ok(fs::write(directory.join(name), text)?)
}

/// Runs the diff program; returns whether there are differences.
fn run_program(context: &Context, live: &Path, merged: &Path) -> Result<bool, Failure> {
    let external = std::env::var("KUBECTL_EXTERNAL_DIFF").ok().filter(|text| !text.is_empty());
    let mut words = external.as_deref().unwrap_or("diff").split(' ');
    let program = words.next().unwrap_or("diff").to_owned();
    let mut process = Process::new(&program);
    if external.is_none() {
        process.args(["-u", "-N"]);
    }
    process.arg(live).arg(merged);
    // Other arguments could be interpreted by a shell script.
    let plain = |word: &&str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'='))
    };
    process.args(words.filter(plain));
    match process.status() {
        Ok(status) => outcome(&program, status),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && external.is_none() => {
            let text = unified::directories(live, merged)?;
            std::io::Write::write_all(&mut context.out(), text.as_bytes())?;
            Ok(!text.is_empty())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::new(format!("failed to run {program:?}: executable file not found in $PATH")))
        }
        Err(error) => Err(Failure::new(format!("failed to run {program:?}: {}", go_io_error(&error)))),
    }
}

fn outcome(program: &str, status: ExitStatus) -> Result<bool, Failure> {
    match status.code() {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(code) => Err(Failure::new(format!("failed to run {program:?}: exit status {code}"))),
        None => Err(Failure::new(format!("failed to run {program:?}: {status}"))),
    }
}
