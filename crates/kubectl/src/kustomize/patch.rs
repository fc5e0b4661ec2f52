//! Patches of resources: strategic merge patches and JSON patches.

use apimachinery::patch::json;
use apimachinery::{Value, yaml};

use super::Error;
use super::loader::Loader;
use super::merge;
use super::resource::{Resource, Set};
use super::selector::Selector;
use super::target::parse_resources;

/// An entry of `patches` or `patchesJson6902`.
#[derive(Clone, Debug, Default)]
pub(super) struct Patch {
    pub path: String,
    pub patch: String,
    pub target: Option<Selector>,
    pub allow_name_change: bool,
    pub allow_kind_change: bool,
}

enum Content {
    Strategic(Vec<Resource>),
    Json(json::Patch),
}

impl Patch {
    /// Applies an entry of `patches`.
    pub(super) fn apply(&self, set: &mut Set, loader: &Loader) -> Result<(), Error> {
        let (content, source) =
            self.load(loader).map_err(|error| error.context(self.configuring("PatchTransformer")))?;
        match (content, &self.target) {
            (Content::Json(_), None) => Err(Error::new(format!("must specify a target for JSON patch {source}"))),
            (Content::Json(patch), Some(target)) => {
                for at in target.select(set)? {
                    set.resources[at].store_previous_id();
                    apply_json(&mut set.resources[at], &patch)?;
                }
                Ok(())
            }
            (Content::Strategic(patches), None) => patches.iter().try_for_each(|patch| {
                let id = patch.original_id();
                let at = set
                    .find(&id)
                    .map_err(|error| error.context(format!("no resource matches strategic merge patch \"{id}\"")))?;
                self.merge(&mut set.resources[at], patch)
            }),
            (Content::Strategic(patches), Some(target)) => match patches.as_slice() {
                [patch] => self.merge_selected(set, &target.select(set)?, patch),
                [] => Ok(()),
                _ => Err(Error::new(format!(
                    "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: {source}"
                ))),
            },
        }
    }

    /// Applies an entry of `patchesJson6902`.
    pub(super) fn apply_json6902(&self, set: &mut Set, loader: &Loader) -> Result<(), Error> {
        let loaded = self.load_json(loader);
        let (patch, target) = loaded.map_err(|error| error.context(self.configuring("PatchJson6902Transformer")))?;
        for at in target.select(set)? {
            apply_json(&mut set.resources[at], &patch)?;
        }
        Ok(())
    }

    fn load_json(&self, loader: &Loader) -> Result<(json::Patch, Selector), Error> {
        let Some(target) = self.target.clone().filter(|target| !target.name.is_empty()) else {
            return Err(Error::new("must specify the target name"));
        };
        let text = match (self.path.as_str(), self.patch.as_str()) {
            ("", "") => return Err(Error::new("empty file path and empty jsonOp")),
            ("", patch) => patch.to_owned(),
            (path, "") => loader.load_text(path)?,
            _ => return Err(Error::new("must specify a file path or jsonOp, not both")),
        };
        match json_patch(&text) {
            Some(patch) => Ok((patch, target)),
            None => Err(Error::new(format!("patch appears to be empty; file={}, JsonOp={text}", self.path))),
        }
    }

    fn load(&self, loader: &Loader) -> Result<(Content, String), Error> {
        let inline = self.patch.trim();
        let (text, source) = match (inline, self.path.as_str()) {
            ("", "") => return Err(Error::new(format!("must specify one of patch and path in\n{}", self.display()))),
            (patch, "") => (patch.to_owned(), format!("[patch: {}]", apimachinery::go::quote(patch))),
            ("", path) => {
                let loaded = loader.load_text(path);
                let text =
                    loaded.map_err(|error| error.context(format!("failed to get the patch file from path({path})")))?;
                (text, format!("[path: {path:?}]"))
            }
            _ => return Err(Error::new(format!("patch and path can't be set at the same time\n{}", self.display()))),
        };
        if let Ok(resources) = parse_resources(&text) {
            return Ok((Content::Strategic(resources), source));
        }
        match json_patch(&text) {
            Some(patch) => Ok((Content::Json(patch), source)),
            None => Err(Error::new(format!("unable to parse SM or JSON patch from {source}"))),
        }
    }

    fn merge_selected(&self, set: &mut Set, selected: &[usize], patch: &Resource) -> Result<(), Error> {
        for at in selected {
            let resource = &mut set.resources[*at];
            let mut patch = patch.clone();
            patch.set_api_version(&resource.gvk().api_version());
            self.merge(resource, &patch)?;
        }
        set.resources.retain(|resource| !resource.is_empty());
        Ok(())
    }

    fn merge(&self, resource: &mut Resource, patch: &Resource) -> Result<(), Error> {
        if self.allow_name_change || self.allow_kind_change {
            resource.store_previous_id();
        }
        merge_into(resource, patch, self.allow_name_change, self.allow_kind_change)
    }

    /// Returns kustomize's prefix for errors while it reads a patch.
    fn configuring(&self, transformer: &str) -> String {
        format!("trouble configuring builtin {transformer} with config: `\n{}`", self.display())
    }

    /// Returns the entry as YAML.
    fn display(&self) -> String {
        let mut entry = apimachinery::Object::new();
        for (name, text) in [("patch", &self.patch), ("path", &self.path)] {
            if !text.is_empty() {
                entry.insert(name, text.as_str());
            }
        }
        if let Some(target) = &self.target {
            let fields = [
                ("annotationSelector", &target.annotation_selector),
                ("group", &target.group),
                ("kind", &target.kind),
                ("labelSelector", &target.label_selector),
                ("name", &target.name),
                ("namespace", &target.namespace),
                ("version", &target.version),
            ];
            let set = fields.into_iter().filter(|(_, text)| !text.is_empty());
            entry.insert("target", set.map(|(name, text)| (name, text.as_str())).collect::<apimachinery::Object>());
        }
        yaml::to_string(&entry.into())
    }
}

/// Applies an entry of `patchesStrategicMerge`: patches, or the path of a file with patches.
pub(super) fn apply_strategic(source: &str, set: &mut Set, loader: &Loader) -> Result<(), Error> {
    let patches = match parse_resources(source) {
        Ok(patches) if !patches.is_empty() => patches,
        _ => loader.load_text(source).and_then(|text| parse_resources(&text)).map_err(|error| {
            error.context(format!(
                "trouble configuring builtin PatchStrategicMergeTransformer with config: `\npaths:\n- {source}\n`"
            ))
        })?,
    };
    for patch in patches {
        let at = set.find(&patch.original_id())?;
        merge_into(&mut set.resources[at], &patch, false, false)?;
        set.resources.retain(|resource| !resource.is_empty());
    }
    Ok(())
}

/// Merges a patch. Name and kind are kept, unless the patch may change them.
fn merge_into(resource: &mut Resource, patch: &Resource, rename: bool, change_kind: bool) -> Result<(), Error> {
    let (name, namespace, kind) =
        (resource.name().to_owned(), resource.namespace().to_owned(), resource.kind().to_owned());
    let merged = merge::merge(resource.object.take(), patch.object.clone())?;
    resource.object = merged.unwrap_or_default();
    if resource.is_empty() {
        return Ok(());
    }
    if !change_kind {
        resource.set_kind(&kind);
    }
    if !rename {
        resource.set_name(&name);
    }
    resource.set_namespace(&namespace);
    Ok(())
}

fn apply_json(resource: &mut Resource, patch: &json::Patch) -> Result<(), Error> {
    let patched = patch.clone().apply(resource.object.take());
    resource.object = patched.map_err(|error| {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        match &error {
            json::Error::Failed { op, path, .. } => Error::new(format!("error in {op} for path: '{path}': {cause}")),
            _ => Error::new(cause),
        }
    })?;
    // Kustomize reads the annotations as texts.
    if let Some(Value::Object(annotations)) =
        resource.object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"))
    {
        for (_, value) in annotations.iter_mut().filter(|(_, value)| matches!(value, Value::Bool(_) | Value::Int(_))) {
            *value = merge::text_of(value).into();
        }
    }
    Ok(())
}

/// Parses a JSON patch in JSON or YAML.
fn json_patch(text: &str) -> Option<json::Patch> {
    let value = yaml::parse(text).ok()?;
    let listed = value
        .as_array()
        .is_some_and(|items| !items.is_empty() && items.iter().all(|item| matches!(item, Value::Object(_))));
    listed.then(|| json::Patch::new(value).ok()).flatten()
}
