//! Editable kubeconfig files: entries with the file that defines them.
//!
//! Unlike `client::config`, which selects the configuration of one request, this module keeps all contents of the
//! files, including unknown fields. A change is written to the file that defines the entry.

mod fields;
mod file;
mod paths;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use apimachinery::{Object, Value};

use crate::{Context, Failure};

pub use fields::{Property, set_property};
pub use file::Lock;
pub use paths::absolute as absolute_path;

/// The kubeconfig files of a command.
#[derive(Clone, Debug)]
pub struct Files {
    /// The first file takes precedence.
    pub files: Vec<PathBuf>,
    /// Whether the file was named with `--kubeconfig`.
    pub explicit: bool,
}

/// The merged contents of kubeconfig files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kubeconfig {
    pub clusters: Entries,
    pub contexts: Entries,
    pub users: Entries,
    pub current_context: String,
    /// `null` if no file has any.
    pub preferences: Value,
    /// `null` if no file has any.
    pub extensions: Value,
}

/// Entries by name.
pub type Entries = BTreeMap<String, Entry>;

/// A cluster, context or user.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub fields: Object,
    /// The file that defines the entry; [`None`] for a new one.
    pub origin: Option<PathBuf>,
}

/// A list of entries in a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Clusters,
    Contexts,
    Users,
}

impl Section {
    pub const ALL: [Self; 3] = [Self::Clusters, Self::Contexts, Self::Users];

    /// Returns the key of the list.
    pub const fn list(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Contexts => "contexts",
            Self::Users => "users",
        }
    }

    /// Returns the key of an entry's fields beside its name.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Clusters => "cluster",
            Self::Contexts => "context",
            Self::Users => "user",
        }
    }
}

impl Files {
    pub fn of(context: &Context) -> Self {
        let (files, explicit) = context.kubeconfig_files();
        Self { files, explicit }
    }

    /// Returns the file for new entries: the first that exists, or else the last.
    pub fn default_file(&self) -> &Path {
        let existing = self.files.iter().find(|file| file.exists());
        existing.or(self.files.last()).map_or(Path::new("config"), PathBuf::as_path)
    }

    /// Reads and merges the files; those that do not exist are empty.
    pub fn load(&self) -> Result<Kubeconfig, Failure> {
        let mut merged = Kubeconfig::default();
        for file in &self.files {
            if let Some(config) = file::load(file)? {
                merged.merge(config);
            }
        }
        Ok(merged)
    }

    /// Writes the differences between two configurations to the files that define them. With `relative`, paths below
    /// the file's directory are written relative to it.
    pub fn save(&self, old: &Kubeconfig, new: &Kubeconfig, relative: bool) -> Result<(), Failure> {
        let locks: Result<Vec<_>, _> = self.files.iter().map(|file| Lock::new(file)).collect();
        let _locks = locks?;
        let mut changed: BTreeMap<PathBuf, Kubeconfig> = BTreeMap::new();
        for section in Section::ALL {
            let (before, after) = (old.entries(section), new.entries(section));
            for (name, entry) in after.iter().filter(|(name, entry)| before.get(*name) != Some(*entry)) {
                let file = entry.origin.clone().unwrap_or_else(|| self.default_file().to_owned());
                let mut entry = Entry { origin: Some(file.clone()), ..entry.clone() };
                if relative {
                    paths::make_relative(section, &mut entry);
                }
                opened(&mut changed, &file)?.entries_mut(section).insert(name.clone(), entry);
            }
            for (name, entry) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
                let file = entry.origin.clone().unwrap_or_else(|| self.default_file().to_owned());
                opened(&mut changed, &file)?.entries_mut(section).remove(name);
            }
        }
        if old.current_context != new.current_context {
            let file = self.file_of_current_context(&new.current_context)?;
            opened(&mut changed, &file)?.current_context.clone_from(&new.current_context);
        }
        if old.preferences != new.preferences {
            opened(&mut changed, self.default_file())?.preferences.clone_from(&new.preferences);
        }
        for (file, config) in &changed {
            file::store(file, config)?;
        }
        Ok(())
    }

    /// Returns the file to set the current context in. To clear it, that is the file that sets it.
    fn file_of_current_context(&self, name: &str) -> Result<PathBuf, Failure> {
        if name.is_empty() {
            for file in &self.files {
                if file::load(file)?.is_some_and(|config| !config.current_context.is_empty()) {
                    return Ok(file.clone());
                }
            }
        }
        Ok(self.default_file().to_owned())
    }
}

/// Returns the contents of a file, with the changes so far.
fn opened<'a>(changed: &'a mut BTreeMap<PathBuf, Kubeconfig>, file: &Path) -> Result<&'a mut Kubeconfig, Failure> {
    if !changed.contains_key(file) {
        changed.insert(file.to_owned(), file::load(file)?.unwrap_or_default());
    }
    changed.get_mut(file).ok_or_else(|| Failure::new("the file was not read"))
}

impl Kubeconfig {
    pub const fn entries(&self, section: Section) -> &Entries {
        match section {
            Section::Clusters => &self.clusters,
            Section::Contexts => &self.contexts,
            Section::Users => &self.users,
        }
    }

    pub const fn entries_mut(&mut self, section: Section) -> &mut Entries {
        match section {
            Section::Clusters => &mut self.clusters,
            Section::Contexts => &mut self.contexts,
            Section::Users => &mut self.users,
        }
    }

    /// Adds entries that another file defines and this one does not.
    fn merge(&mut self, other: Self) {
        for section in Section::ALL {
            let entries = self.entries_mut(section);
            for (name, entry) in other.entries(section) {
                entries.entry(name.clone()).or_insert_with(|| entry.clone());
            }
        }
        if self.current_context.is_empty() {
            self.current_context = other.current_context;
        }
        if self.preferences.is_null() {
            self.preferences = other.preferences;
        }
        if self.extensions.is_null() {
            self.extensions = other.extensions;
        }
    }

    /// Keeps only the entries that the current context uses.
    pub fn minify(&mut self) -> Result<(), Failure> {
        let name = &self.current_context;
        if name.is_empty() {
            return Err(Failure::new("current-context must exist in order to minify"));
        }
        let Some(context) = self.contexts.get(name) else {
            return Err(Failure::new(format!("cannot locate context {name}")));
        };
        let (cluster, user) = (context.text("cluster").to_owned(), context.text("user").to_owned());
        for (name, kind, entries) in [(&cluster, "cluster", &self.clusters), (&user, "user", &self.users)] {
            if !name.is_empty() && !entries.contains_key(name) {
                return Err(Failure::new(format!("cannot locate {kind} {name}")));
            }
        }
        self.contexts.retain(|context, _| *context == self.current_context);
        self.clusters.retain(|name, _| *name == cluster);
        self.users.retain(|name, _| *name == user);
        Ok(())
    }

    /// Replaces the paths of certificates and keys with their contents.
    pub fn flatten(&mut self) -> Result<(), Failure> {
        for user in self.users.values_mut() {
            paths::embed(user, "client-certificate")?;
            paths::embed(user, "client-key")?;
        }
        self.clusters.values_mut().try_for_each(|cluster| paths::embed(cluster, "certificate-authority"))
    }

    /// Hides secrets and certificates.
    pub fn redact(&mut self) {
        let hide = |entry: &mut Entry, key: &str, instead: &str| {
            if !entry.text(key).is_empty() {
                entry.fields.insert(key, instead);
            }
        };
        for user in self.users.values_mut() {
            hide(user, "token", "REDACTED");
            hide(user, "password", "REDACTED");
            hide(user, "client-key-data", "DATA+OMITTED");
            hide(user, "client-certificate-data", "DATA+OMITTED");
        }
        self.clusters.values_mut().for_each(|cluster| hide(cluster, "certificate-authority-data", "DATA+OMITTED"));
    }

    /// Returns the tree of a file in kubectl's form.
    pub fn to_value(&self) -> Value {
        let mut out = Object::new();
        out.insert("apiVersion", "v1");
        out.insert("kind", "Config");
        out.insert("current-context", self.current_context.as_str());
        for (key, value) in [("preferences", &self.preferences), ("extensions", &self.extensions)] {
            let is_empty = value.is_null() || value.as_object().is_some_and(Object::is_empty);
            if !is_empty {
                out.insert(key, value.clone());
            }
        }
        for section in Section::ALL {
            let entries = self.entries(section).iter().map(|(name, entry)| {
                let mut named = Object::new();
                named.insert("name", name.as_str());
                named.insert(section.key(), fields::complete(section, &entry.fields));
                Value::Object(named)
            });
            let entries: Vec<_> = entries.collect();
            out.insert(section.list(), if entries.is_empty() { Value::Null } else { Value::Array(entries) });
        }
        Value::Object(out)
    }
}

impl Entry {
    /// Returns an entry that no file has yet.
    pub const fn new() -> Self {
        Self { fields: Object::new(), origin: None }
    }

    /// Returns a text field; empty if there is none.
    pub fn text(&self, key: &str) -> &str {
        self.fields.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Sets a field; an empty text removes it.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match value {
            Value::Null | Value::Bool(false) => drop(self.fields.remove(key)),
            Value::String(text) if text.is_empty() => drop(self.fields.remove(key)),
            _ => drop(self.fields.insert(key, value)),
        }
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
