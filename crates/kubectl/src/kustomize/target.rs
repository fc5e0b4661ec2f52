//! Builds a kustomization: loads its resources and applies its transformations in order.

use std::path::Path;

use apimachinery::{Object, Value, yaml};

use super::Error;
use super::file::{FILE_NAMES, Kustomization, Reader, ReplacementSource};
use super::generate::{self, Kind};
use super::hash;
use super::loader::{Loader, Restriction};
use super::name_reference;
use super::order;
use super::patch;
use super::replacement::{self, Replacement};
use super::resource::{Resource, Set};
use super::transform;

/// Objects with this annotation are input for kustomizations and not part of the output.
const LOCAL_CONFIG: &str = "config.kubernetes.io/local-config";

/// Builds the kustomization in a directory.
pub(super) fn build(
    directory: &Path,
    restriction: Restriction,
    warnings: &mut Vec<String>,
) -> Result<Vec<Value>, Error> {
    let loader = Loader::open(directory, restriction)?;
    let kustomization = read(&loader, warnings)?;
    let mut set = accumulate(&kustomization, &loader, Set::default(), warnings)?;
    for resource in set.resources.iter_mut().filter(|resource| resource.needs_hash) {
        let suffix = hash::hash(resource);
        resource.store_previous_id();
        resource.set_name(&format!("{}-{suffix}", resource.name()));
    }
    name_reference::update(&mut set)?;
    set.resources.retain(|resource| !is_local(resource));
    order::sort(&mut set, kustomization.sort.as_ref())?;
    Ok(set.resources.into_iter().map(finished).collect())
}

/// Parses the objects in a text; lists are expanded. Each object needs a kind and a name.
pub(super) fn parse_resources(text: &str) -> Result<Vec<Resource>, Error> {
    let mut pending: std::collections::VecDeque<Value> =
        documents(text).map_err(|error| Error::new(error.to_string()))?.into();
    let mut resources = Vec::new();
    while let Some(object) = pending.pop_front() {
        match &object {
            Value::Null => continue,
            Value::Object(fields) if fields.is_empty() => continue,
            _ => check(&object)?,
        }
        let is_list = object.str_at(&["kind"]).is_some_and(|kind| kind.ends_with("List"));
        match object.get("items").filter(|_| is_list) {
            None => resources.push(Resource::new(object)),
            Some(Value::Array(items)) => pending.extend(items.iter().cloned()),
            Some(Value::Null) => {}
            Some(other) => {
                let kind = object.str_at(&["kind"]).unwrap_or_default();
                let found = other.kind();
                return Err(Error::new(format!("expected array in {kind}/items, but found {found}")));
            }
        }
    }
    Ok(resources)
}

/// Parses YAML as kustomize does: `yes` and `on` are texts.
fn documents(text: &str) -> Result<Vec<Value>, yaml::Error> {
    yaml::documents(text).with_bool_words_as_text().collect()
}

fn check(object: &Value) -> Result<(), Error> {
    let text = |path: &[&str]| object.str_at(path).unwrap_or_default();
    let (version, kind) = (text(&["apiVersion"]), text(&["kind"]));
    let (name, namespace) = (text(&["metadata", "name"]), text(&["metadata", "namespace"]));
    let description = format!("{{{{{version} {kind}}} {{{{{name} {namespace}}} map[] map[]}}}}");
    if object.as_object().is_none() || kind.is_empty() {
        return Err(Error::new(format!("missing kind in object {description}")));
    }
    if name.is_empty() && !kind.ends_with("List") {
        return Err(Error::new(format!("missing metadata.name in object {description}")));
    }
    Ok(())
}

fn read(loader: &Loader, warnings: &mut Vec<String>) -> Result<Kustomization, Error> {
    let root = loader.root().display().to_string();
    let mut found: Option<String> = None;
    for name in FILE_NAMES {
        if let Ok(text) = loader.load_text(name)
            && found.replace(text).is_some()
        {
            return Err(Error::new(format!("Found multiple kustomization files under: {root}")));
        }
    }
    let Some(text) = found else {
        return Err(Error::new(format!(
            "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{root}'"
        )));
    };
    Kustomization::parse(&text, &root, warnings)
}

/// Adds the resources of a kustomization to `set` and transforms them.
fn accumulate(
    kustomization: &Kustomization,
    loader: &Loader,
    mut set: Set,
    warnings: &mut Vec<String>,
) -> Result<Set, Error> {
    for path in &kustomization.resources {
        let added = add_resource(path, loader, &mut set, warnings);
        added.map_err(|error| error.context("accumulating resources"))?;
    }
    let secrets = kustomization.secrets.iter().map(|arguments| (Kind::Secret, arguments));
    let config_maps = kustomization.config_maps.iter().map(|arguments| (Kind::ConfigMap, arguments));
    for (kind, arguments) in config_maps.chain(secrets) {
        let resource = generate::generate(kind, arguments, loader)?;
        set.absorb(resource).map_err(|error| error.context("merging from generator"))?;
    }
    for path in &kustomization.components {
        set = add_component(path, loader, set, warnings).map_err(|error| error.context("accumulating components"))?;
    }
    for source in &kustomization.strategic_patches {
        patch::apply_strategic(source, &mut set, loader)?;
    }
    for patch in &kustomization.patches {
        patch.apply(&mut set, loader)?;
    }
    set.resources.retain(|resource| !resource.is_empty());
    transform::rename_and_label(kustomization, &mut set)?;
    for patch in &kustomization.json_patches {
        patch.apply_json6902(&mut set, loader)?;
    }
    for (name, count) in &kustomization.replicas {
        transform::set_replicas(name, *count, &mut set)?;
    }
    for image in &kustomization.images {
        set.resources.iter_mut().try_for_each(|resource| image.transform(resource))?;
    }
    let replacements = load_replacements(&kustomization.replacements, loader)?;
    replacement::apply_all(&replacements, &mut set)?;
    Ok(set)
}

/// Adds the objects of a file, or of the kustomization in a directory.
fn add_resource(path: &str, loader: &Loader, set: &mut Set, warnings: &mut Vec<String>) -> Result<(), Error> {
    let from = |error: Error| error.context(format!("accumulating resources from '{path}'"));
    let file_error = match loader.load_text(path) {
        Ok(text) => match parse_file(&text, path) {
            Ok(resources) => {
                let added = resources.into_iter().try_for_each(|resource| set.append(resource));
                return added.map_err(|error| error.context(format!("merging resources from '{path}'")));
            }
            Err((error, true)) => return Err(from(error)),
            Err((error, false)) => from(error),
        },
        Err(error) => from(error),
    };
    let as_base = || {
        let base = loader.enter(path)?;
        let root = base.root().display().to_string();
        let kustomization =
            read(&base, warnings).map_err(|error| error.context(format!("couldn't make target for path '{root}'")))?;
        if kustomization.component {
            return Err(Error::new(format!("expected kind != 'Component' for path '{root}'")));
        }
        let built = accumulate(&kustomization, &base, Set::default(), warnings)
            .map_err(|error| error.context(format!("recursed accumulation of path '{root}'")))?;
        set.append_all(built).map_err(|error| error.context(format!("recursed merging from path '{root}'")))
    };
    let mut as_base = as_base;
    as_base().map_err(|error| error.context(format!("accumulation err='{file_error}'")))
}

/// Parses a file. The flag of an error is true if the file is not YAML.
fn parse_file(text: &str, path: &str) -> Result<Vec<Resource>, (Error, bool)> {
    if let Err(error) = documents(text) {
        return Err((Error::new(format!("MalformedYAMLError: {error} in File: {path}")), true));
    }
    parse_resources(text).map_err(|error| (error, false))
}

/// Applies a component to the resources so far.
fn add_component(path: &str, loader: &Loader, set: Set, warnings: &mut Vec<String>) -> Result<Set, Error> {
    let quoted = |what: &str, error: Error| Error::new(format!("{what} {:?}", error.to_string()));
    let base = loader.enter(path).map_err(|error| quoted("loader.New", error))?;
    let root = base.root().display().to_string();
    let apply = || {
        let kustomization =
            read(&base, warnings).map_err(|error| error.context(format!("couldn't make target for path '{root}'")))?;
        if !kustomization.component {
            return Err(Error::new(format!("expected kind 'Component' for path '{root}' but got 'Kustomization'")));
        }
        accumulate(&kustomization, &base, set, warnings)
            .map_err(|error| error.context(format!("recursed accumulation of path '{root}'")))
    };
    apply().map_err(|error| quoted("accumulateDirectory:", error))
}

fn load_replacements(sources: &[ReplacementSource], loader: &Loader) -> Result<Vec<Replacement>, Error> {
    let mut replacements = Vec::new();
    let read = |fields: &Object| Replacement::read(Reader::new(fields, "Replacement"));
    for source in sources {
        match source {
            ReplacementSource::Inline(replacement) => replacements.push((**replacement).clone()),
            ReplacementSource::Path(path) => {
                let text = loader.load_text(path)?;
                match yaml::parse(&text).map_err(|error| Error::new(error.to_string()))? {
                    Value::Object(fields) => replacements.push(read(&fields)?),
                    Value::Array(items) => {
                        for item in items.iter().filter_map(Value::as_object) {
                            replacements.push(read(item)?);
                        }
                    }
                    other => {
                        return Err(Error::new(format!(
                            "unsupported replacement type encountered within replacement path: {}",
                            other.kind()
                        )));
                    }
                }
            }
        }
    }
    Ok(replacements)
}

fn is_local(resource: &Resource) -> bool {
    let annotation = resource.object.str_at(&["metadata", "annotations", LOCAL_CONFIG]);
    annotation.is_some_and(|value| value != "false")
}

/// Returns the object for the output; empty annotations are removed.
fn finished(resource: Resource) -> Value {
    let mut object = resource.object;
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && metadata.get("annotations").is_some_and(|value| value.as_object().is_none_or(Object::is_empty))
    {
        metadata.remove("annotations");
    }
    object
}
