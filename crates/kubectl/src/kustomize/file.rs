//! The kustomization file: its fields, their types, and the unsupported fields.

use apimachinery::{Object, Value, yaml};

use super::Error;
use super::field_path::FieldSpec;
use super::generate::{Arguments, Options};
use super::image::Image;
use super::order::SortOptions;
use super::patch::Patch;
use super::replacement::Replacement;
use super::selector::Selector;

/// The contents of a kustomization file.
#[derive(Clone, Debug, Default)]
pub(super) struct Kustomization {
    pub component: bool,
    pub resources: Vec<String>,
    pub components: Vec<String>,
    pub namespace: String,
    pub name_prefix: String,
    pub name_suffix: String,
    pub common_labels: Object,
    pub labels: Vec<Label>,
    pub common_annotations: Object,
    pub config_maps: Vec<Arguments>,
    pub secrets: Vec<Arguments>,
    pub images: Vec<Image>,
    pub replicas: Vec<(String, i64)>,
    pub patches: Vec<Patch>,
    pub strategic_patches: Vec<String>,
    pub json_patches: Vec<Patch>,
    pub replacements: Vec<ReplacementSource>,
    pub sort: Option<SortOptions>,
}

/// Labels to add to objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Label {
    pub pairs: Object,
    pub include_selectors: bool,
    pub include_templates: bool,
    pub fields: Vec<FieldSpec>,
}

/// A replacement in the file itself, or the path of a file with replacements.
#[derive(Clone, Debug)]
pub(super) enum ReplacementSource {
    Inline(Box<Replacement>),
    Path(String),
}

/// The file names, of which a directory has exactly one.
pub(super) const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

const VERSION: &str = "kustomize.config.k8s.io/v1beta1";
const COMPONENT_VERSION: &str = "kustomize.config.k8s.io/v1alpha1";

/// Fields of kustomize that are not supported, with what to do instead.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("buildMetadata", "remove the field"),
    ("configurations", "use patches or replacements"),
    ("crds", "use replacements"),
    ("generators", "generate the objects before and add them to resources"),
    ("helmCharts", "render the chart with helm and add the result to resources"),
    ("helmChartInflationGenerator", "render the chart with helm and add the result to resources"),
    ("helmGlobals", "render the chart with helm and add the result to resources"),
    ("openapi", "remove the field"),
    ("transformers", "use patches or replacements"),
    ("validators", "remove the field"),
    ("vars", "use replacements"),
];

const FIX: &str = "Run 'kustomize edit fix' to update your Kustomization automatically.";

/// Deprecated fields and their successors, in the order of the warnings.
const DEPRECATED: &[(&str, &str)] = &[
    ("bases", "resources"),
    ("commonLabels", "labels"),
    ("imageTags", "images"),
    ("patchesJson6902", "patches"),
    ("patchesStrategicMerge", "patches"),
];

impl Kustomization {
    /// Parses a file in `root`; messages about deprecated fields are added to `warnings`.
    pub(super) fn parse(text: &str, root: &str, warnings: &mut Vec<String>) -> Result<Self, Error> {
        let invalid = |error: Error| error.context("invalid Kustomization");
        let value = yaml::parse(text).map_err(|error| invalid(Error::new(error.to_string())))?;
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Object::new(),
            other => {
                let found = other.kind();
                let message = format!("json: cannot unmarshal {found} into Go value of type types.Kustomization");
                return Err(invalid(Error::new(message)));
            }
        };
        let reader = Reader { fields: &fields, path: "Kustomization", tail: "" };
        let kustomization = Self::read(reader).map_err(invalid)?;
        for (field, successor) in DEPRECATED {
            if lookup(&fields, field).is_some_and(|value| !value.is_null()) {
                warnings.push(format!("# Warning: '{field}' is deprecated. Please use '{successor}' instead. {FIX}"));
            }
        }
        if fields.iter().all(|(name, value)| is_type(name) || value.is_null()) {
            return Err(Error::new("kustomization.yaml is empty"));
        }
        check_type(&fields, root)?;
        if let Some((field, advice)) = UNSUPPORTED.iter().find(|(field, _)| lookup(&fields, field).is_some_and(is_set))
        {
            return Err(Error::new(format!("the field '{field}' in {root} is not supported: {advice}")));
        }
        Ok(kustomization)
    }

    fn read(reader: Reader<'_>) -> Result<Self, Error> {
        reader.known(&[
            "apiVersion",
            "kind",
            "metadata",
            "resources",
            "bases",
            "components",
            "namespace",
            "namePrefix",
            "nameSuffix",
            "commonLabels",
            "labels",
            "commonAnnotations",
            "configMapGenerator",
            "secretGenerator",
            "generatorOptions",
            "images",
            "imageTags",
            "replicas",
            "patches",
            "patchesStrategicMerge",
            "patchesJson6902",
            "replacements",
            "sortOptions",
            "buildMetadata",
            "configurations",
            "crds",
            "generators",
            "helmCharts",
            "helmChartInflationGenerator",
            "helmGlobals",
            "openapi",
            "transformers",
            "validators",
            "vars",
        ])?;
        let options = reader.object("generatorOptions")?.map(read_options).transpose()?;
        let mut resources = reader.strings("resources")?;
        resources.extend(reader.strings("bases")?);
        let mut images = reader.objects("images", "types.Image", read_image)?;
        images.extend(reader.objects("imageTags", "types.Image", read_image)?);
        let arguments = |reader: Reader<'_>| read_arguments(reader, options.as_ref());
        Ok(Self {
            component: reader.text("kind")? == "Component",
            resources,
            components: reader.strings("components")?,
            namespace: reader.text("namespace")?,
            name_prefix: reader.text("namePrefix")?,
            name_suffix: reader.text("nameSuffix")?,
            common_labels: reader.text_map("commonLabels")?,
            labels: reader.objects("labels", "types.Label", read_label)?,
            common_annotations: reader.text_map("commonAnnotations")?,
            config_maps: reader.objects("configMapGenerator", "types.ConfigMapArgs", arguments)?,
            secrets: reader.objects("secretGenerator", "types.SecretArgs", arguments)?,
            images,
            replicas: reader.objects("replicas", "types.Replica", |replica| {
                replica.known(&["name", "count"])?;
                Ok((replica.text("name")?, replica.int("count")?))
            })?,
            patches: reader.objects("patches", "types.Patch", read_patch)?,
            strategic_patches: reader.strings("patchesStrategicMerge")?,
            json_patches: reader.objects("patchesJson6902", "types.Patch", read_patch)?,
            replacements: reader.objects("replacements", "types.ReplacementField", read_replacement_source)?,
            sort: reader.object("sortOptions")?.map(read_sort).transpose()?,
        })
    }
}

/// Returns a field; as in Go, the case of its name does not matter.
fn lookup<'a>(fields: &'a Object, name: &str) -> Option<&'a Value> {
    let other_case = || fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    fields.get(name).or_else(other_case)
}

fn is_type(name: &str) -> bool {
    name.eq_ignore_ascii_case("apiVersion") || name.eq_ignore_ascii_case("kind")
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(object) => !object.is_empty(),
        _ => true,
    }
}

fn check_type(fields: &Object, root: &str) -> Result<(), Error> {
    let text = |name| lookup(fields, name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Kustomization" | "Component") {
        errors.push("kind should be Kustomization or Component".to_owned());
    }
    let required = if kind == "Component" { COMPONENT_VERSION } else { VERSION };
    if !version.is_empty() && version != required {
        let kind = if kind.is_empty() { "Kustomization" } else { kind };
        errors.push(format!("apiVersion for {kind} should be {required}"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("Failed to read kustomization file under {root}:\n{}", errors.join("\n"))))
}

fn read_arguments(reader: Reader<'_>, global: Option<&Options>) -> Result<Arguments, Error> {
    reader.known(&["name", "namespace", "behavior", "literals", "files", "envs", "env", "options", "type"])?;
    let mut envs = reader.strings("envs")?;
    let env = reader.text("env")?;
    if !env.is_empty() {
        envs.push(env);
    }
    let local = reader.object("options")?.map(read_options).transpose()?;
    Ok(Arguments {
        name: reader.text("name")?,
        namespace: reader.text("namespace")?,
        behavior: reader.text("behavior")?,
        literals: reader.strings("literals")?,
        files: reader.strings("files")?,
        envs,
        secret_type: reader.text("type")?,
        options: Options::merged(local, global),
    })
}

fn read_options(reader: Reader<'_>) -> Result<Options, Error> {
    reader.known(&["labels", "annotations", "disableNameSuffixHash", "immutable"])?;
    Ok(Options {
        labels: reader.text_map("labels")?,
        annotations: reader.text_map("annotations")?,
        disable_hash: reader.bool("disableNameSuffixHash")?,
        immutable: reader.bool("immutable")?,
    })
}

fn read_label(reader: Reader<'_>) -> Result<Label, Error> {
    reader.known(&["pairs", "includeSelectors", "includeTemplates", "fields"])?;
    Ok(Label {
        pairs: reader.text_map("pairs")?,
        include_selectors: reader.bool("includeSelectors")?,
        include_templates: reader.bool("includeTemplates")?,
        fields: reader.objects("fields", "types.FieldSpec", |field| {
            field.known(&["group", "version", "kind", "path", "create"])?;
            Ok(FieldSpec {
                group: field.text("group")?,
                version: field.text("version")?,
                kind: field.text("kind")?,
                path: field.text("path")?,
                create: field.bool("create")?,
            })
        })?,
    })
}

fn read_image(reader: Reader<'_>) -> Result<Image, Error> {
    reader.known(&["name", "newName", "newTag", "tagSuffix", "digest"])?;
    Ok(Image {
        name: reader.text("name")?,
        new_name: reader.text("newName")?,
        new_tag: reader.text("newTag")?,
        tag_suffix: reader.text("tagSuffix")?,
        digest: reader.text("digest")?,
    })
}

fn read_patch(reader: Reader<'_>) -> Result<Patch, Error> {
    reader.known(&["path", "patch", "target", "options"])?;
    let mut patch = Patch {
        path: reader.text("path")?,
        patch: reader.text("patch")?,
        target: reader.object("target")?.map(Selector::read).transpose()?,
        ..Patch::default()
    };
    if let Some(options) = reader.object("options")? {
        options.known(&["allowNameChange", "allowKindChange"])?;
        patch.allow_name_change = options.bool("allowNameChange")?;
        patch.allow_kind_change = options.bool("allowKindChange")?;
    }
    Ok(patch)
}

fn read_replacement_source(reader: Reader<'_>) -> Result<ReplacementSource, Error> {
    let path = reader.text("path")?;
    if path.is_empty() {
        return Ok(ReplacementSource::Inline(Box::new(Replacement::read(reader)?)));
    }
    if reader.has("source") || reader.has("targets") {
        return Err(Error::new("cannot specify both path and inline replacement"));
    }
    Ok(ReplacementSource::Path(path))
}

fn read_sort(reader: Reader<'_>) -> Result<SortOptions, Error> {
    reader.known(&["order", "legacySortOptions"])?;
    let legacy = reader.object("legacySortOptions")?;
    let lists = legacy.map(|legacy| Ok((legacy.strings("orderFirst")?, legacy.strings("orderLast")?))).transpose()?;
    Ok(SortOptions { order: reader.text("order")?, legacy: lists })
}

/// Reads typed fields of an object of the kustomization file.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    fields: &'a Object,
    /// The Go type for error messages.
    path: &'a str,
    tail: &'a str,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(fields: &'a Object, path: &'a str) -> Self {
        Self { fields, path, tail: "" }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// Fails if the object has a field that is not in `names`.
    pub(super) fn known(&self, names: &[&str]) -> Result<(), Error> {
        match self.fields.keys().find(|name| !names.iter().any(|known| known.eq_ignore_ascii_case(name))) {
            Some(unknown) => Err(Error::new(format!("json: unknown field {unknown:?}"))),
            None => Ok(()),
        }
    }

    fn mismatch(&self, name: &str, found: &Value, expected: &str) -> Error {
        let (path, found) = (self.path, found.kind());
        let parent = if self.tail.is_empty() { String::new() } else { format!("{}.", self.tail) };
        Error::new(format!(
            "json: cannot unmarshal {found} into Go struct field {path}.{parent}{name} of type {expected}"
        ))
    }

    fn field(&self, name: &str) -> Option<&'a Value> {
        lookup(self.fields, name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<String, Error> {
        match self.field(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.to_string()),
            Some(other) => Err(self.mismatch(name, other, "string")),
        }
    }

    pub(super) fn bool(&self, name: &str) -> Result<bool, Error> {
        match self.field(name) {
            None => Ok(false),
            Some(Value::Bool(it)) => Ok(*it),
            Some(other) => Err(self.mismatch(name, other, "bool")),
        }
    }

    pub(super) fn int(&self, name: &str) -> Result<i64, Error> {
        match self.field(name) {
            None => Ok(0),
            Some(Value::Int(it)) => Ok(*it),
            Some(other) => Err(self.mismatch(name, other, "int64")),
        }
    }

    pub(super) fn strings(&self, name: &str) -> Result<Vec<String>, Error> {
        let items = match self.field(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.mismatch(name, other, "[]string")),
        };
        let text = |item: &Value| match item {
            Value::String(text) => Ok(text.to_string()),
            Value::Null => Ok(String::new()),
            other => Err(self.mismatch(name, other, "string")),
        };
        items.iter().map(text).collect()
    }

    pub(super) fn text_map(&self, name: &str) -> Result<Object, Error> {
        match self.field(name) {
            None => Ok(Object::new()),
            Some(Value::Object(map)) => match map.values().find(|value| value.as_str().is_none() && !value.is_null()) {
                Some(other) => Err(self.mismatch(name, other, "string")),
                None => Ok(map.iter().map(|(key, value)| (key, value.as_str().unwrap_or_default())).collect()),
            },
            Some(other) => Err(self.mismatch(name, other, "map[string]string")),
        }
    }

    pub(super) fn object(&self, name: &'a str) -> Result<Option<Reader<'a>>, Error> {
        match self.field(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Reader { fields, path: self.path, tail: name })),
            Some(other) => Err(self.mismatch(name, other, "object")),
        }
    }

    pub(super) fn objects<T>(
        &self,
        name: &'a str,
        ty: &'a str,
        read: impl Fn(Reader<'a>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let items = match self.field(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.mismatch(name, other, &format!("[]{ty}"))),
        };
        let item = |item: &'a Value| match item {
            Value::Object(fields) => read(Reader { fields, path: ty.trim_start_matches("types."), tail: name }),
            other => Err(self.mismatch(name, other, ty)),
        };
        items.iter().map(item).collect()
    }
}
