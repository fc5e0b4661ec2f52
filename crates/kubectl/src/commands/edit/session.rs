//! An editing session: opens the editor until the changes are stored or the edit is cancelled.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use apimachinery::patch::{merge, require_unchanged, strategic};
use apimachinery::status::Reason as StatusReason;
use apimachinery::{GroupVersionKind, Value, go, json, value, yaml};
use client::{FieldValidation, Patch, WriteOptions};

use super::editor::Editor;
use super::text::{self, Reason};
use crate::changes::{self, DryRun, Form, Results};
use crate::commands::create;
use crate::failure::chain;
use crate::generate::last_applied;
use crate::resources::{Info, read_documents};
use crate::{Context, Failure, Invocation, print};

/// The use of an edited object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The object on the server is patched.
    Normal,
    /// The object is created.
    BeforeCreate,
    /// The annotation with the last applied configuration is replaced.
    LastApplied,
}

pub(super) struct Session<'a> {
    context: &'a Context,
    invocation: &'a Invocation,
    mode: Mode,
    editor: Editor,
    as_json: bool,
    validation: FieldValidation,
    options: WriteOptions,
    results: Results<'a>,
    /// `managedFields` by UID, which the editor does not contain.
    managed_fields: BTreeMap<String, Value>,
}

/// The outcome of storing the edited objects.
#[derive(Default)]
struct Outcome {
    reasons: Vec<Reason>,
    /// The number of objects that the server rejected for another reason than their content.
    retryable: usize,
    not_found: usize,
    /// The number of objects with invalid content.
    invalid: usize,
    file: Option<PathBuf>,
}

impl<'a> Session<'a> {
    pub(super) fn new(context: &'a Context, invocation: &'a Invocation, mode: Mode) -> Result<Self, Failure> {
        let output = invocation.text("output");
        if mode != Mode::BeforeCreate && !matches!(output, "" | "json" | "yaml" | "kyaml") {
            return Err(Failure::new(format!(
                "unable to match a printer suitable for the output format {}, allowed formats are: json,kyaml,yaml",
                go::quote(output)
            )));
        }
        if mode != Mode::Normal && invocation.has("output-patch") && invocation.bool("output-patch") {
            return Err(Failure::new("the edit mode doesn't support output the patch"));
        }
        let results = Results::new(context, invocation, DryRun::None, Form::Untyped)?;
        let validation = changes::field_validation(invocation)?;
        let options = changes::write_options(invocation, DryRun::None)?;
        Ok(Self {
            context,
            invocation,
            mode,
            editor: Editor::from_env(),
            as_json: invocation.text("output") == "json",
            validation,
            options,
            results,
            managed_fields: BTreeMap::new(),
        })
    }

    /// Edits objects together until their changes are stored.
    pub(super) async fn edit(mut self, mut infos: Vec<Info>) -> Result<(), Failure> {
        let mut outcome = Outcome::default();
        let (mut original, mut edited) = (String::new(), String::new());
        let mut again = false;
        loop {
            let mut rendered = if self.as_json {
                String::new()
            } else {
                text::header(&outcome.reasons, self.mode == Mode::LastApplied)
            };
            if again {
                rendered.push_str(&text::without_comments(&edited));
            } else {
                self.hide_managed_fields(&mut infos);
                rendered.push_str(&self.show(&infos)?);
                original.clone_from(&rendered);
            }
            let (bytes, file) = match self.launch(&rendered) {
                Ok(launched) => launched,
                Err(failure) => return Err(self.preserve(failure, outcome.file.as_deref())),
            };
            let before = std::mem::replace(&mut edited, bytes);
            if again && text::content(&before) == text::content(&edited) {
                let failure = Failure::new("Edit cancelled, no valid changes were saved.");
                return Err(self.preserve(failure, Some(&file)));
            }
            remove(outcome.file.as_deref());
            outcome = Outcome { file: Some(file.clone()), ..Outcome::default() };
            if let Err(problem) = self.validate(&edited) {
                let details = vec![format!("<nil>: Invalid value: \"The edited file failed validation\": {problem}")];
                let name = subject(&infos[0]);
                writeln!(self.context.err(), "error: {name} is invalid")?;
                outcome.reasons.push(Reason { head: format!("{name} was not valid"), details });
                again = true;
                continue;
            }
            let cancelled = if text::content(&original) == text::content(&edited) {
                Some("Edit cancelled, no changes made.")
            } else if text::has_content(&edited) {
                None
            } else {
                Some("Edit cancelled, saved file was empty.")
            };
            if let Some(message) = cancelled {
                remove(Some(&file));
                writeln!(self.context.err(), "{message}")?;
                return Ok(());
            }
            let updated = match self.parse(&edited).await {
                Ok(updated) => updated,
                Err(failure) => {
                    let head = format!("The edited file had a syntax error: {}", failure.message);
                    outcome.reasons.push(Reason { head, details: Vec::new() });
                    again = true;
                    continue;
                }
            };
            if let Err(failure) = self.store(&mut infos, updated, &mut outcome).await {
                return Err(self.preserve(failure, Some(&file)));
            }
            if let Some(end) = self.conclude(&outcome, &file)? {
                return end;
            }
            again = !outcome.reasons.is_empty();
        }
    }

    /// Returns the result of the session; `None` to open the editor again.
    fn conclude(&self, outcome: &Outcome, file: &Path) -> Result<Option<Result<(), Failure>>, Failure> {
        let path = file.display();
        if outcome.retryable > 0 {
            writeln!(self.context.err(), "You can run `kubectl replace -f {path}` to try this update again.")?;
            return Ok(Some(Err(Failure::silent(1))));
        }
        if outcome.not_found > 0 {
            let path = go::quote(&path.to_string());
            writeln!(self.context.err(), "The edits you made on deleted resources have been saved to {path}")?;
            return Ok(Some(Err(Failure::silent(1))));
        }
        if outcome.invalid == 0 {
            remove(Some(file));
            return Ok(Some(Ok(())));
        }
        Ok(None)
    }

    fn launch(&self, rendered: &str) -> Result<(String, PathBuf), Failure> {
        self.context.out().flush()?;
        let windows = self.invocation.bool("windows-line-endings");
        let rendered = if windows { rendered.replace('\n', "\r\n") } else { rendered.to_owned() };
        let extension = if self.as_json { ".json" } else { ".yaml" };
        let (bytes, file) = self.editor.edit(rendered.as_bytes(), extension)?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), file))
    }

    /// Prints the path of the file with the changes of a failed session, and returns the failure.
    fn preserve(&self, failure: Failure, file: Option<&Path>) -> Failure {
        if let Some(file) = file.filter(|file| file.exists()) {
            let path = go::quote(&file.display().to_string());
            let _ = writeln!(self.context.err(), "A copy of your changes has been stored to {path}");
        }
        failure
    }

    fn hide_managed_fields(&mut self, infos: &mut [Info]) {
        for info in infos {
            let uid = uid(&info.object);
            if let Some(metadata) = info.object.get_mut("metadata").and_then(Value::as_object_mut)
                && let Some(fields) = metadata.remove("managedFields")
            {
                self.managed_fields.insert(uid, fields);
            }
        }
    }

    fn restore_managed_fields(&self, infos: &mut [Info]) {
        for info in infos {
            let Some(fields) = self.managed_fields.get(&uid(&info.object)) else { continue };
            if let Some(metadata) = info.object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("managedFields", fields.clone());
            }
        }
    }

    fn show(&self, infos: &[Info]) -> Result<String, Failure> {
        let object = match infos {
            [one] => one.object.clone(),
            several => {
                let items: Vec<Value> = several.iter().map(|info| info.object.clone()).collect();
                value!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
            }
        };
        match self.invocation.text("output") {
            "json" => Ok(print::json::print(&object)),
            "kyaml" => Ok(print::kyaml::print(&object)),
            _ => Ok(yaml::to_string(&object)),
        }
    }

    fn validate(&self, edited: &str) -> Result<(), String> {
        if self.validation == FieldValidation::Ignore {
            return Ok(());
        }
        let object = yaml::parse(edited).map_err(|error| chain(&error))?;
        if object.is_null() {
            return Err("invalid object to validate".to_owned());
        }
        let unset =
            |field: &'static str| object.str_at(&[field]).is_none_or(str::is_empty).then(|| format!("{field} not set"));
        match [unset("apiVersion"), unset("kind")].into_iter().flatten().collect::<Vec<_>>().as_slice() {
            [] => Ok(()),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }

    async fn parse(&self, edited: &str) -> Result<Vec<Info>, Failure> {
        let mut infos = Vec::new();
        for document in read_documents(edited.as_bytes(), "edited-file", false)? {
            let object = document.object;
            let kind = GroupVersionKind::of_object(&object).map_err(|error| Failure::new(error.to_string()))?;
            let mapping = self.context.mapper().await?.kind(&kind).await?;
            let text = |path: &[&str]| object.str_at(path).unwrap_or_default().to_owned();
            let (name, namespace) = (text(&["metadata", "name"]), text(&["metadata", "namespace"]));
            infos.push(Info { mapping, namespace, name, object, source: document.source });
        }
        Ok(infos)
    }

    async fn store(
        &mut self,
        originals: &mut [Info],
        mut updated: Vec<Info>,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        self.restore_managed_fields(&mut updated);
        self.restore_managed_fields(originals);
        let namespace = self.context.namespace()?.name;
        for info in &mut updated {
            require_namespace(info, &namespace)?;
            if self.invocation.has("save-config") && self.invocation.bool("save-config") {
                last_applied::save_untyped(&mut info.object);
            }
            changes::record(self.invocation, &mut info.object);
        }
        for info in updated {
            match self.mode {
                Mode::Normal => self.patch(originals, info, outcome).await?,
                Mode::LastApplied => self.annotate(originals, info).await?,
                Mode::BeforeCreate => {
                    let created = create::create(self.context, &info, &self.options).await?;
                    self.results.print(&created, "created")?;
                }
            }
        }
        Ok(())
    }

    async fn patch(&mut self, originals: &[Info], info: Info, outcome: &mut Outcome) -> Result<(), Failure> {
        let original = find_original(originals, &info)?;
        if original.object == info.object {
            return self.results.print(&info.object, "skipped");
        }
        let patch = difference(&original.object, &info.object)?;
        if self.invocation.bool("output-patch") {
            let (Patch::Strategic(tree) | Patch::Merge(tree) | Patch::Json(tree) | Patch::Apply(tree)) = &patch;
            self.results.write(&format!("Patch: {}\n", go::json(tree)))?;
        }
        let target = info.target().subresource(self.invocation.text("subresource"));
        match self.context.client()?.patch(&target, &patch, &self.options).await {
            Ok(patched) => self.results.print(&patched, "edited"),
            Err(error) => {
                let line = outcome.add(&error.into(), &info);
                writeln!(self.context.err(), "{line}")?;
                Ok(())
            }
        }
    }

    /// Replaces the last applied configuration of an object with the edited one.
    async fn annotate(&mut self, originals: &[Info], info: Info) -> Result<(), Failure> {
        let original = find_original(originals, &info)?;
        if original.object == info.object {
            return self.results.print(&info.object, "skipped");
        }
        let patch = last_applied::patch(last_applied::encode(&info.object));
        self.context.client()?.patch(&info.target(), &Patch::Merge(patch), &self.options).await?;
        self.results.print(&info.object, "edited")
    }
}

impl Outcome {
    /// Counts a rejected object, and returns the message about it.
    fn add(&mut self, failure: &Failure, info: &Info) -> String {
        let name = subject(info);
        if failure.is(&StatusReason::Invalid) {
            let causes = failure.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
            let details = causes.into_iter().flatten().map(|cause| format!("{}: {}", cause.field, cause.message));
            self.reasons.push(Reason { head: format!("{name} was not valid"), details: details.collect() });
            self.invalid += 1;
            return format!("error: {name} is invalid");
        }
        if failure.is_not_found() {
            self.not_found += 1;
            return format!("error: {name} could not be found on the server");
        }
        self.retryable += 1;
        format!("error: {name} could not be patched: {}", changes::inner_message(failure))
    }
}

/// Returns the patch between two versions of an object. Its identity must be the same.
fn difference(original: &Value, edited: &Value) -> Result<Patch, Failure> {
    const IDENTITY: &[&[&str]] = &[&["apiVersion"], &["kind"], &["metadata", "name"], &["managedFields"]];
    let changed = || Failure::new("At least one of apiVersion, kind and name was changed");
    let kind = GroupVersionKind::of_object(original).map_err(|error| Failure::new(error.to_string()))?;
    let patch = match (api::catalogue::schema(&kind), original, edited) {
        (Some(schema), Value::Object(from), Value::Object(to)) => {
            let patch = strategic::create_two_way(from, to, schema);
            Patch::Strategic(Value::Object(patch.map_err(|error| Failure::new(error.to_string()))?))
        }
        _ => Patch::Merge(merge::diff(original, edited)),
    };
    let (Patch::Strategic(tree) | Patch::Merge(tree) | Patch::Json(tree) | Patch::Apply(tree)) = &patch;
    require_unchanged(tree, IDENTITY).map_err(|_| changed())?;
    Ok(patch)
}

fn find_original<'i>(originals: &'i [Info], info: &Info) -> Result<&'i Info, Failure> {
    let uid_of = uid(&info.object);
    let found = originals.iter().find(|original| uid(&original.object) == uid_of);
    found.ok_or_else(|| Failure::new(format!("no original object found for {}", json::to_string(&info.object))))
}

fn require_namespace(info: &mut Info, namespace: &str) -> Result<(), Failure> {
    if !info.namespaced() {
        return Ok(());
    }
    if info.namespace.is_empty() {
        namespace.clone_into(&mut info.namespace);
        crate::generate::set_namespace(&mut info.object, namespace);
    }
    if info.namespace != namespace {
        let (own, wanted) = (go::quote(&info.namespace), go::quote(namespace));
        let given = &info.namespace;
        return Err(Failure::new(format!(
            "the namespace from the provided object {own} does not match the namespace {wanted}. You must pass \
             '--namespace={given}' to perform this operation."
        )));
    }
    Ok(())
}

/// Formats an object for messages: `deployments.apps "web"`.
fn subject(info: &Info) -> String {
    let resource = &info.mapping.resource;
    let name = go::quote(&info.name);
    if resource.group.is_empty() {
        format!("{} {name}", resource.plural)
    } else {
        format!("{}.{} {name}", resource.plural, resource.group)
    }
}

fn uid(object: &Value) -> String {
    object.str_at(&["metadata", "uid"]).unwrap_or_default().to_owned()
}

fn remove(file: Option<&Path>) {
    if let Some(file) = file {
        // The file is temporary; it may be deleted already.
        let _ = std::fs::remove_file(file);
    }
}
