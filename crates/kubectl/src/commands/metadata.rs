//! Common parts of `label` and `annotate`.

use std::collections::BTreeMap;
use std::io::Write;

use apimachinery::patch::merge;
use apimachinery::{Object, Value};
use client::Patch;

use crate::changes::{DryRun, Form, Results, record, write_options};
use crate::resources::{Builder, Found, Info};
use crate::{Context, Failure, Invocation};

/// Arguments of the command line: the resources and their changes.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub resources: Vec<String>,
    pub changes: Vec<String>,
}

/// New values and keys to remove.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub new: BTreeMap<String, String>,
    pub removed: Vec<String>,
}

/// The part of the metadata that a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Labels,
    Annotations,
}

/// The effect of changes on an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    pub added: bool,
    pub removed: bool,
}

impl Kind {
    /// Returns the key in the metadata.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Labels => "label",
            Self::Annotations => "annotation",
        }
    }

    const fn example(self) -> &'static str {
        match self {
            Self::Labels => "pod",
            Self::Annotations => "rsrc",
        }
    }
}

impl Arguments {
    /// Splits the arguments; changes come after all resources.
    pub(super) fn split(kind: Kind, args: &[String]) -> Result<Self, Failure> {
        let mut arguments = Self::default();
        for arg in args {
            let is_pair = arg.contains('=') && !arg.starts_with('=');
            if is_pair || arg.ends_with('-') && arg != "-" {
                arguments.changes.push(arg.clone());
            } else if arguments.changes.is_empty() {
                arguments.resources.push(arg.clone());
            } else {
                let name = kind.name();
                return Err(Failure::new(format!("all resources must be specified before {name} changes: {arg}")));
            }
        }
        Ok(arguments)
    }
}

impl Changes {
    /// Applies the changes to a map.
    pub(super) fn apply(&self, object: &mut Value, kind: Kind) -> Effect {
        let mut effect = Effect::default();
        let Some(object) = object.as_object_mut() else { return effect };
        let Some(metadata) = object.get_or_insert_with("metadata", Value::object).as_object_mut() else {
            return effect;
        };
        let mut map = metadata.remove(kind.key()).and_then(|map| map.as_object().cloned()).unwrap_or_default();
        for (key, value) in &self.new {
            let old = map.insert(key.as_str(), value.as_str());
            effect.added |= old.as_ref().and_then(Value::as_str) != Some(value);
        }
        for key in &self.removed {
            effect.removed |= map.remove(key).is_some();
        }
        // As in kubectl, an empty map is kept.
        metadata.insert(kind.key(), map);
        effect
    }

    /// Returns the keys that have another value, with that value.
    pub(super) fn overwritten<'a>(&'a self, object: &'a Value, kind: Kind) -> Vec<(&'a str, &'a str)> {
        let value = |key: &str| object.str_at(&["metadata", kind.key(), key]);
        let changed =
            |(key, new): (&'a String, &String)| value(key).filter(|old| old != new).map(|old| (key.as_str(), old));
        self.new.iter().filter_map(changed).collect()
    }
}

/// Checks the flags, and returns the objects to change.
pub(super) async fn find(
    context: &Context,
    invocation: &Invocation,
    kind: Kind,
    arguments: &Arguments,
    changes: &Changes,
) -> Result<Found, Failure> {
    let (local, all) = (invocation.bool("local"), invocation.bool("all"));
    for selector in ["selector", "field-selector"] {
        if all && !invocation.text(selector).is_empty() {
            return Err(Failure::new(format!("cannot set --all and --{selector} at the same time")));
        }
    }
    let has_files =
        invocation.list("filename").iter().any(|file| !file.is_empty()) || !invocation.text("kustomize").is_empty();
    let example = kind.example();
    if local && invocation.text("dry-run") == "server" {
        return Err(Failure::new("cannot specify --local and --dry-run=server - did you mean --dry-run=client?"));
    }
    if local && !arguments.resources.is_empty() {
        let problem = format!(
            "can only use local files by -f {example}.yaml or --filename={example}.json when --local=true is set"
        );
        return Err(Failure::new(problem));
    }
    if local && !has_files {
        let problem = format!("one or more files must be specified as -f {example}.yaml or --filename={example}.json");
        return Err(Failure::new(problem));
    }
    if !local && arguments.resources.is_empty() && !has_files {
        let problem = "one or more resources must be specified as <resource> <name> or <resource>/<name>";
        return Err(Failure::new(problem));
    }
    if changes.new.is_empty() && changes.removed.is_empty() && !invocation.bool("list") {
        return Err(Failure::new(format!("at least one {} update is required", kind.name())));
    }
    let mut builder = Builder::new(context).local(local).namespace(&context.namespace()?).filenames(invocation);
    if !local {
        builder = builder
            .selector(invocation.text("selector"))
            .field_selector(invocation.text("field-selector"))
            .all_namespaces(invocation.bool("all-namespaces"))
            .types_or_names(all, &arguments.resources)
            .latest();
    }
    let found = builder.found().await?;
    if !found.single && !invocation.text("resource-version").is_empty() {
        return Err(Failure::new("--resource-version may only be used with a single resource"));
    }
    Ok(found)
}

/// Returns the merge patch from one object to the other, and takes `--resource-version` as its precondition.
pub(super) fn patch(invocation: &Invocation, old: &Value, new: &mut Value) -> Patch {
    let mut old = old.clone();
    let version = invocation.text("resource-version");
    if !version.is_empty() {
        for (object, version) in [(&mut old, None), (&mut *new, Some(version))] {
            let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { continue };
            metadata.remove("resourceVersion");
            version.map(|version| metadata.insert("resourceVersion", version));
        }
    }
    Patch::Merge(merge::diff(&old, new))
}

/// Sends the change of an object, and returns the server's response.
pub(super) async fn send(
    context: &Context,
    invocation: &Invocation,
    info: &Info,
    patch: &Patch,
    dry_run: DryRun,
) -> Result<Value, Failure> {
    let options = write_options(invocation, dry_run)?;
    Ok(context.client()?.patch(&info.target(), patch, &options).await?)
}

/// Prints the labels or annotations of an object.
pub(super) fn list(context: &Context, kind: Kind, info: &Info, object: &Value, single: bool) -> Result<(), Failure> {
    let mut out = context.out();
    let indent = if single { "" } else { " " };
    if !single {
        let (resource, name) = (&info.mapping.resource, &info.name);
        writeln!(out, "Listing {} for {}.{}/{name}:", kind.key(), resource.kind, resource.group)?;
    }
    let map = object.at(&["metadata", kind.key()]).and_then(Value::as_object);
    for (key, value) in map.into_iter().flat_map(Object::iter) {
        writeln!(out, "{indent}{key}={}", value.as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// Returns the printer of results.
pub(super) fn results<'a>(
    context: &'a Context,
    invocation: &Invocation,
    dry_run: DryRun,
) -> Result<Results<'a>, Failure> {
    if invocation.bool("list") && !invocation.text("output").is_empty() {
        return Err(Failure::new("--list and --output may not be specified together"));
    }
    Results::new(context, invocation, dry_run, Form::Untyped)
}

/// Annotates an object with the command, if `--record` is given.
pub(super) fn record_command(invocation: &Invocation, object: &mut Value) {
    record(invocation, object);
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn changes_come_after_resources() {
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let split = Arguments::split(Kind::Labels, &args("pods a b=c d-")).unwrap();
        assert_eq!((split.resources, split.changes), (args("pods a"), args("b=c d-")));
        let failure = Arguments::split(Kind::Labels, &args("pods b=c a")).unwrap_err();
        assert_eq!(failure.message, "all resources must be specified before label changes: a");
    }

    #[test]
    fn effect_of_changes_is_reported() {
        let mut object = value!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        let changes = |new: &[(&str, &str)], removed: &[&str]| Changes {
            new: new.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            removed: removed.iter().map(|key| (*key).to_owned()).collect(),
        };
        assert_eq!(changes(&[("a", "1")], &["x"]).apply(&mut object, Kind::Labels), Effect::default());
        assert_eq!(changes(&[("a", "3")], &[]).overwritten(&object, Kind::Labels), [("a", "1")]);
        let effect = changes(&[("a", "3")], &["b"]).apply(&mut object, Kind::Labels);
        assert_eq!(effect, Effect { added: true, removed: true });
        assert_eq!(object, value!({"metadata": {"labels": {"a": "3"}}}));
    }
}
