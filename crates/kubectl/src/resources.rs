//! The objects of a command: files, types and names on the command line, and selectors.

mod arguments;
mod files;

use std::rc::Rc;

use apimachinery::labels::Selector;
use apimachinery::meta::{Meta, Scope};
use apimachinery::{GroupVersionKind, Resource, Value};
use client::{Client, ListOptions, Target};

pub use arguments::has_names;
pub use files::{Document, read_documents};

use crate::failure::EMPTY_NAME;
use crate::mapper::Mapper;
use crate::{Context, Failure, Invocation, Mapping, Namespace};

/// An object, or only its type, namespace and name.
#[derive(Clone, Debug)]
pub struct Info {
    pub mapping: Mapping,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    pub name: String,
    /// `null` if it was not requested.
    pub object: Value,
    /// The file, URL or `STDIN`; empty for an object of the server.
    pub source: String,
}

/// One item of the command line, before any request for it.
#[derive(Clone, Debug)]
pub enum Item {
    /// An object of a file.
    Object(Info),
    /// A type and a name.
    Named(Info),
    /// All objects of a type that the selectors match.
    Selected { mapping: Mapping, namespace: String },
}

/// The objects of a command.
#[derive(Debug, Default)]
pub struct Found {
    pub infos: Vec<Info>,
    /// Failures of single objects.
    pub failures: Vec<Failure>,
    /// Whether the command line names exactly one object.
    pub single: bool,
}

/// Collects the objects of a command. The methods are named after the flags.
#[derive(Clone)]
pub struct Builder<'a> {
    context: &'a Context,
    files: Vec<String>,
    kustomize: String,
    recursive: bool,
    namespace: String,
    default_namespace: bool,
    require_namespace: bool,
    all_namespaces: bool,
    selector: Option<String>,
    field_selector: Option<String>,
    select_all: bool,
    types: Vec<String>,
    names: Vec<String>,
    tuples: Vec<(String, String)>,
    latest: bool,
    local: bool,
    require_object: bool,
    validate: bool,
    single_type: bool,
    subresource: String,
    chunk_size: i64,
    allow_empty_selector: bool,
    failures: Vec<Failure>,
}

const SEVERAL_TYPES: &str = "you may only specify a single resource type";
const MISSING: &str = "You must provide one or more resources by argument or filename.
Example resource specifications include:
   '-f rsrc.yaml'
   '--filename=rsrc.json'
   '<resource> <name>'
   '<resource>'";

impl Info {
    /// Returns the target of requests for the object.
    pub fn target(&self) -> Target<'_> {
        Target::named(&self.mapping.resource, self.namespace.as_str(), self.name.as_str())
    }

    /// Returns the target of requests for all objects of the type in the namespace.
    pub fn collection(&self) -> Target<'_> {
        Target::within(&self.mapping.resource, self.namespace.as_str())
    }

    /// Returns the name as commands print it: `pod/a`, `deployment.apps/b`.
    pub fn display(&self) -> String {
        self.mapping.object_name(&self.name)
    }

    pub fn namespaced(&self) -> bool {
        self.mapping.namespaced()
    }

    /// Reads the object from the server. If neither the object nor its namespace exists, the failure names the
    /// namespace.
    pub async fn fetch(&mut self, client: &Client, subresource: &str) -> Result<(), Failure> {
        match client.get(&self.target().subresource(subresource)).await {
            Ok(object) => {
                self.object = object;
                Ok(())
            }
            Err(error) if error.is_not_found() && !matches!(self.namespace.as_str(), "" | "default") => {
                const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces", "Namespace");
                match client.get(&Target::named(&NAMESPACES, "", self.namespace.as_str())).await {
                    Err(missing) if missing.is_not_found() => Err(missing.into()),
                    _ => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the object, and takes over its name and namespace.
    pub fn refresh(&mut self, object: Value) {
        let meta = Meta::of(&object);
        self.name = meta.name().to_owned();
        self.namespace = meta.namespace().to_owned();
        self.object = object;
    }
}

impl<'a> Builder<'a> {
    pub fn new(context: &'a Context) -> Self {
        Self {
            context,
            files: Vec::new(),
            kustomize: String::new(),
            recursive: false,
            namespace: String::new(),
            default_namespace: false,
            require_namespace: false,
            all_namespaces: false,
            selector: None,
            field_selector: None,
            select_all: false,
            types: Vec::new(),
            names: Vec::new(),
            tuples: Vec::new(),
            latest: false,
            local: false,
            require_object: true,
            validate: false,
            single_type: false,
            subresource: String::new(),
            chunk_size: 0,
            allow_empty_selector: false,
            failures: Vec::new(),
        }
    }

    /// Takes `--filename`, `--kustomize` and `--recursive` of the command line.
    #[must_use]
    pub fn filenames(self, invocation: &Invocation) -> Self {
        let files = invocation.list("filename");
        let kustomize =
            if invocation.has("kustomize") { invocation.text("kustomize").to_owned() } else { String::new() };
        let recursive = invocation.has("recursive") && invocation.bool("recursive");
        self.files(files, kustomize, recursive)
    }

    #[must_use]
    pub fn files(mut self, files: Vec<String>, kustomize: String, recursive: bool) -> Self {
        if !kustomize.is_empty() && !files.is_empty() {
            self.failures.push(Failure::new("only one of -f or -k can be specified"));
        }
        if !kustomize.is_empty() && recursive {
            self.failures.push(Failure::new("the -k flag can't be used with -f or -R"));
        }
        if files.iter().filter(|file| *file == "-").count() > 1 {
            self.failures.push(Failure::new("standard input cannot be used for multiple arguments"));
        }
        Self { files, kustomize, recursive, ..self }
    }

    /// Sets the namespace of objects without one. An explicit namespace must match those of the files.
    #[must_use]
    pub fn namespace(self, namespace: &Namespace) -> Self {
        Self {
            namespace: namespace.name.clone(),
            default_namespace: true,
            require_namespace: namespace.explicit,
            ..self
        }
    }

    /// Ignores the namespace, if `all` is true.
    #[must_use]
    pub fn all_namespaces(self, all: bool) -> Self {
        if !all {
            return self;
        }
        Self { all_namespaces: true, namespace: String::new(), require_namespace: false, ..self }
    }

    #[must_use]
    pub fn selector(self, selector: &str) -> Self {
        let selector = selector.trim();
        Self { selector: Some(selector.to_owned()).filter(|selector| !selector.is_empty()), ..self }
    }

    #[must_use]
    pub fn field_selector(self, selector: &str) -> Self {
        let selector = selector.trim();
        Self { field_selector: Some(selector.to_owned()).filter(|selector| !selector.is_empty()), ..self }
    }

    /// Selects all objects of the types, as `--all` does.
    #[must_use]
    pub fn select_all(mut self, all: bool) -> Self {
        if all && (self.selector.is_some() || self.field_selector.is_some()) {
            self.failures.push(Failure::new("setting 'all' parameter but found a non empty selector. "));
        }
        Self { select_all: all, ..self }
    }

    /// Takes arguments `TYPE`, `TYPE NAME…`, `TYPE/NAME…` or `TYPE,TYPE…`. With `allow_empty_selector`, types without
    /// names select all objects.
    #[must_use]
    pub fn types_or_names(mut self, allow_empty_selector: bool, args: &[String]) -> Self {
        match arguments::parse(args) {
            Err(failure) => self.failures.push(failure),
            Ok(arguments::Arguments::Tuples(tuples)) => self.tuples.extend(tuples),
            Ok(arguments::Arguments::Types(types, names)) => {
                self.allow_empty_selector = allow_empty_selector && names.is_empty() && !types.is_empty();
                self.types.extend(types);
                self.names.extend(names);
            }
        }
        self
    }

    /// Takes names of one type.
    #[must_use]
    pub fn names(mut self, resource: &str, names: &[String]) -> Self {
        for name in names {
            match arguments::tuple(name) {
                Ok(Some(tuple)) => self.tuples.push(tuple),
                Ok(None) => self.tuples.push((resource.to_owned(), name.clone())),
                Err(failure) => self.failures.push(failure),
            }
        }
        self
    }

    /// Reads the objects of files from the server.
    #[must_use]
    pub fn latest(self) -> Self {
        Self { latest: true, ..self }
    }

    /// Sends no requests if `local` is true.
    #[must_use]
    pub fn local(self, local: bool) -> Self {
        Self { local, ..self }
    }

    /// Does not read named objects from the server.
    #[must_use]
    pub fn without_objects(self) -> Self {
        Self { require_object: false, ..self }
    }

    /// Rejects objects of files without apiVersion and kind with the message of `--validate`.
    #[must_use]
    pub fn validate(self, validate: bool) -> Self {
        Self { validate, ..self }
    }

    #[must_use]
    pub fn single_type(self) -> Self {
        Self { single_type: true, ..self }
    }

    #[must_use]
    pub fn subresource(self, subresource: &str) -> Self {
        Self { subresource: subresource.to_owned(), ..self }
    }

    #[must_use]
    pub fn chunk_size(self, chunk_size: i64) -> Self {
        Self { chunk_size, ..self }
    }

    /// Returns all objects; fails if one of them cannot be read.
    pub async fn infos(self) -> Result<Vec<Info>, Failure> {
        let found = self.found().await?;
        Failure::all(found.failures)?;
        Ok(found.infos)
    }

    /// Returns the objects that can be read, and the failures of the others.
    pub async fn found(self) -> Result<Found, Failure> {
        let (items, failures, single) = self.items().await?;
        let mut found = Found { infos: Vec::new(), failures, single };
        for item in items {
            match item {
                Item::Object(info) if self.latest => self.fetch(info, &mut found).await?,
                Item::Named(info) if self.require_object => self.fetch(info, &mut found).await?,
                Item::Object(info) | Item::Named(info) => found.infos.push(info),
                Item::Selected { mapping, namespace } => match self.list(&mapping, &namespace).await {
                    Ok(infos) => found.infos.extend(infos),
                    Err(failure) => found.failures.push(failure),
                },
            }
        }
        Ok(found)
    }

    /// Returns the items without requesting objects, failures of single files, and whether exactly one object is named.
    pub async fn items(&self) -> Result<(Vec<Item>, Vec<Failure>, bool), Failure> {
        Failure::all(self.failures.clone())?;
        if !self.files.is_empty() || !self.kustomize.is_empty() {
            return self.items_of_files().await;
        }
        if self.local {
            return Err(Failure::new(
                "error: you must specify resources by --filename when --local is set.\n\
                 Example resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'",
            ));
        }
        let selects = self.selector.is_some() || self.field_selector.is_some();
        if selects || self.select_all || self.allow_empty_selector {
            return Ok((self.selected().await?, Vec::new(), false));
        }
        if !self.tuples.is_empty() {
            return Ok((self.tuples().await?, Vec::new(), self.tuples.len() == 1));
        }
        if !self.names.is_empty() {
            return Ok((self.named().await?, Vec::new(), self.names.len() == 1));
        }
        if !self.types.is_empty() {
            let mapper = self.context.mapper().await?;
            for name in &self.types {
                mapper.resource(name).await?;
            }
            return Err(Failure::new("resource(s) were provided, but no name was specified"));
        }
        Err(Failure::new(MISSING))
    }

    /// Returns the options of lists.
    pub fn list_options(&self) -> ListOptions {
        ListOptions {
            label_selector: self.selector.clone().unwrap_or_default(),
            field_selector: self.field_selector.clone().unwrap_or_default(),
            limit: self.chunk_size.try_into().unwrap_or(0),
            ..ListOptions::default()
        }
    }

    async fn fetch(&self, mut info: Info, found: &mut Found) -> Result<(), Failure> {
        match info.fetch(&self.context.client()?, &self.subresource).await {
            Ok(()) => found.infos.push(info),
            Err(failure) => found.failures.push(failure),
        }
        Ok(())
    }

    async fn list(&self, mapping: &Mapping, namespace: &str) -> Result<Vec<Info>, Failure> {
        let client = self.context.client()?;
        let options = self.list_options();
        let list = client.list_all(&Target::within(&mapping.resource, namespace), &options).await;
        let list = list.map_err(|error| Failure::from(error).listing(&mapping.resource, &options))?;
        let info = |object: Value| {
            let meta = Meta::of(&object);
            let (name, namespace) = (meta.name().to_owned(), meta.namespace().to_owned());
            Info { mapping: mapping.clone(), namespace, name, object, source: String::new() }
        };
        Ok(list.items.into_iter().map(info).collect())
    }

    async fn selected(&self) -> Result<Vec<Item>, Failure> {
        if !self.names.is_empty() {
            return Err(Failure::new("name cannot be provided when a selector is specified"));
        }
        if !self.tuples.is_empty() {
            let problem = "selectors and the all flag cannot be used when passing resource/name arguments";
            return Err(Failure::new(problem));
        }
        if self.types.is_empty() {
            return Err(Failure::new("at least one resource must be specified to use a selector"));
        }
        if !self.subresource.is_empty() {
            return Err(Failure::new("subresource cannot be used when bulk resources are specified"));
        }
        let mappings = self.mappings().await?;
        let item = |mapping: Mapping| {
            let namespace = if mapping.namespaced() { self.namespace.clone() } else { String::new() };
            Item::Selected { mapping, namespace }
        };
        Ok(mappings.into_iter().map(item).collect())
    }

    async fn mappings(&self) -> Result<Vec<Mapping>, Failure> {
        let mapper = self.context.mapper().await?;
        let mut names: Vec<String> = Vec::new();
        for name in &self.types {
            match self.category(&mapper, name).await? {
                Some(members) => names.extend(members.iter().map(|mapping| mapping.resource.to_string())),
                None => names.push(name.clone()),
            }
        }
        if names.len() > 1 && self.single_type {
            return Err(Failure::new(SEVERAL_TYPES));
        }
        let mut mappings: Vec<Mapping> = Vec::new();
        for name in &names {
            let mapping = mapper.resource(name).await?;
            if !mappings.iter().any(|have| have.resource == mapping.resource) {
                mappings.push(mapping);
            }
        }
        Ok(mappings)
    }

    /// Returns the types of a category. The common names of types are not categories, so that one list of types is
    /// read for them instead of all.
    async fn category(&self, mapper: &Rc<Mapper>, name: &str) -> Result<Option<Vec<Mapping>>, Failure> {
        if name.contains('.') || mapper.is_core(name).await? {
            return Ok(None);
        }
        mapper.category(name).await
    }

    async fn tuples(&self) -> Result<Vec<Item>, Failure> {
        if !self.types.is_empty() {
            let problem = "you may not specify individual resources and bulk resources in the same call";
            return Err(Failure::new(problem));
        }
        let mapper = self.context.mapper().await?;
        let (mut items, mut first) = (Vec::new(), None);
        for (resource, name) in &self.tuples {
            let mapping = mapper.resource(resource).await?;
            if self.single_type && *first.get_or_insert_with(|| mapping.resource.clone()) != mapping.resource {
                return Err(Failure::new(SEVERAL_TYPES));
            }
            items.push(self.named_item(mapping, name)?);
        }
        Ok(items)
    }

    async fn named(&self) -> Result<Vec<Item>, Failure> {
        if self.types.is_empty() {
            return Err(Failure::new("you must provide a resource and a resource name together"));
        }
        let mappings = self.mappings().await?;
        let [mapping] = mappings.as_slice() else {
            return Err(Failure::new("you must specify only one resource"));
        };
        self.names.iter().map(|name| self.named_item(mapping.clone(), name)).collect()
    }

    fn named_item(&self, mapping: Mapping, name: &str) -> Result<Item, Failure> {
        if name.is_empty() {
            return Err(Failure::new(EMPTY_NAME));
        }
        let namespace = match mapping.resource.scope {
            Scope::Cluster => String::new(),
            Scope::Namespaced if self.namespace.is_empty() && self.all_namespaces => {
                return Err(Failure::new("a resource cannot be retrieved by name across all namespaces"));
            }
            Scope::Namespaced if self.namespace.is_empty() => {
                return Err(Failure::new("namespace may not be empty when retrieving a resource by name"));
            }
            Scope::Namespaced => self.namespace.clone(),
        };
        let name = name.to_owned();
        Ok(Item::Named(Info { mapping, namespace, name, object: Value::Null, source: String::new() }))
    }

    async fn items_of_files(&self) -> Result<(Vec<Item>, Vec<Failure>, bool), Failure> {
        if !self.types.is_empty() {
            return Err(Failure::new(
                "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
            ));
        }
        if !self.names.is_empty() {
            return Err(Failure::new("name cannot be provided when a path is specified"));
        }
        if !self.tuples.is_empty() {
            return Err(Failure::new("resource/name arguments cannot be provided when a path is specified"));
        }
        let selector = match &self.selector {
            Some(text) => Some(
                Selector::parse(text)
                    .map_err(|error| Failure::new(format!("the provided selector {text:?} is not valid: {error}")))?,
            ),
            None => None,
        };
        let (documents, unreadable, single) =
            files::load(self.context, &self.files, &self.kustomize, self.recursive, self.validate).await?;
        let (mut items, mut failures) = (Vec::new(), Vec::new());
        for document in documents {
            match self.info(document).await {
                Ok(info) if selector.as_ref().is_none_or(|selector| selector.matches_object(&info.object)) => {
                    items.push(Item::Object(info));
                }
                Ok(_) => {}
                Err(failure) => failures.push(failure),
            }
        }
        failures.extend(unreadable);
        Ok((items, failures, single))
    }

    async fn info(&self, document: Document) -> Result<Info, Failure> {
        let Document { mut object, source } = document;
        let kind = GroupVersionKind::of_object(&object).map_err(|error| Failure::new(error.to_string()))?;
        let meta = Meta::of(&object);
        let (name, mut namespace) = (meta.name().to_owned(), meta.namespace().to_owned());
        let mapping = if self.local {
            guess(&kind, !namespace.is_empty())
        } else {
            let mapper = self.context.mapper().await?;
            mapper.kind(&kind).await.map_err(|failure| {
                if !failure.message.starts_with("no matches for kind") {
                    return failure.recognizing(&source);
                }
                Failure::new(format!(
                    "resource mapping not found for name: {name:?} namespace: {namespace:?} from {source:?}: {}\n\
                     ensure CRDs are installed first",
                    failure.message
                ))
            })?
        };
        if !mapping.namespaced() && !self.local {
            namespace.clear();
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("namespace");
            }
        } else if namespace.is_empty() && self.default_namespace && mapping.namespaced() {
            namespace.clone_from(&self.namespace);
            set_namespace(&mut object, &namespace);
        } else if self.require_namespace && mapping.namespaced() && namespace != self.namespace {
            return Err(Failure::new(format!(
                "the namespace from the provided object {namespace:?} does not match the namespace {:?}. You must pass \
                 '--namespace={namespace}' to perform this operation.",
                self.namespace
            )));
        }
        Ok(Info { mapping, namespace, name, object, source })
    }
}

fn set_namespace(object: &mut Value, namespace: &str) {
    if let Some(object) = object.as_object_mut()
        && let Some(metadata) = object.get_or_insert_with("metadata", Value::object).as_object_mut()
    {
        metadata.insert("namespace", namespace);
    }
}

/// Returns the type of an object without a request.
fn guess(kind: &GroupVersionKind, namespaced: bool) -> Mapping {
    let singular = kind.kind.to_lowercase();
    let plural = match singular.as_bytes() {
        [.., b's'] => format!("{singular}es"),
        [.., b'y'] => format!("{}ies", &singular[..singular.len() - 1]),
        _ => format!("{singular}s"),
    };
    Mapping {
        resource: Resource {
            group: kind.group.clone(),
            version: kind.version.clone(),
            plural: plural.into(),
            kind: kind.kind.clone(),
            scope: if namespaced { Scope::Namespaced } else { Scope::Cluster },
        },
        singular,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: Vec::new(),
        subresources: Vec::new(),
    }
}
