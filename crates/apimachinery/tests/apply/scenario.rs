//! Test driver for server-side apply: an object and a sequence of writes to it.

use apimachinery::apply::{Error, FieldSet, OneVersion, Operation, Owners, Versions, Write, keep_times};
use apimachinery::time::Time;
use apimachinery::{Object, Schema, Value, json, value};

use crate::notation::Notation;

/// The versions `v1` and `v2`, which are identical.
struct Twins<'a>(OneVersion<'a>);

impl Versions for Twins<'_> {
    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        matches!(api_version, "v1" | "v2").then_some(self.0.schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = object.clone();
        object.as_object_mut().ok_or("no object")?.insert("apiVersion", api_version);
        Ok(object)
    }

    fn reset_fields(&self, api_version: &str) -> FieldSet {
        self.0.reset_fields(api_version)
    }

    fn empty(&self, api_version: &str) -> Value {
        self.0.empty(api_version)
    }
}

/// An object of a kind, and a clock that advances by a second with each write.
pub(crate) struct ApplyScenario<'a> {
    notation: &'a Notation,
    pub object: Option<Value>,
    pub reset_fields: FieldSet,
    pub subresource: &'static str,
    seconds: i64,
}

pub(crate) fn json(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error:?} in {text}"))
}

/// Returns the test object with these fields.
pub(crate) fn object(fields: &str) -> Value {
    let mut object = value!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "ns"}});
    merge_fields(object.as_object_mut().unwrap(), json(fields).as_object().unwrap());
    object
}

fn merge_fields(into: &mut Object, fields: &Object) {
    for (name, value) in fields.iter() {
        match (into.get_mut(name), value) {
            (Some(Value::Object(into)), Value::Object(fields)) => merge_fields(into, fields),
            _ => {
                into.insert(name, value.clone());
            }
        }
    }
}

impl<'a> ApplyScenario<'a> {
    pub(crate) fn of(notation: &'a Notation) -> Self {
        Self { notation, object: None, reset_fields: FieldSet::EMPTY, subresource: "", seconds: 0 }
    }

    pub(crate) fn try_apply(&mut self, manager: &str, fields: &str, force: bool) -> Result<bool, Error> {
        self.apply_object(manager, &object(fields), force)
    }

    pub(crate) fn apply_object(&mut self, manager: &str, config: &Value, force: bool) -> Result<bool, Error> {
        let live = self.object.clone();
        let applied = self.write(manager, |write| write.apply(live.as_ref(), config, force))?;
        self.store(applied.object);
        Ok(applied.changed)
    }

    /// Adds an owner of a label in another version.
    pub(crate) fn add_owner_in_another_version(&mut self) {
        let metadata = self.object.as_mut().unwrap().get_mut("metadata").unwrap().as_object_mut().unwrap();
        let labels = metadata.get_or_insert_with("labels", Value::object);
        labels.as_object_mut().unwrap().insert("alien", "x");
        let owners = metadata.get_or_insert_with("managedFields", || Value::Array(Vec::new()));
        owners.as_array_mut().unwrap().push(value!({
            "manager": "alien", "operation": "Apply", "apiVersion": "v2", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:alien": {}}}}
        }));
    }

    #[track_caller]
    pub(crate) fn apply(&mut self, manager: &str, fields: &str) -> &mut Self {
        self.try_apply(manager, fields, false).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    #[track_caller]
    pub(crate) fn force(&mut self, manager: &str, fields: &str) -> &mut Self {
        self.try_apply(manager, fields, true).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Writes the object as a client does that does not send `managedFields`.
    #[track_caller]
    pub(crate) fn update(&mut self, manager: &str, fields: &str) -> &mut Self {
        self.update_object(manager, object(fields))
    }

    #[track_caller]
    pub(crate) fn update_object(&mut self, manager: &str, new: Value) -> &mut Self {
        let live = self.object.clone();
        let new =
            self.write(manager, |write| write.update(live.as_ref(), new)).unwrap_or_else(|error| panic!("{error}"));
        self.store(new);
        self
    }

    fn write<T>(&mut self, manager: &str, write: impl FnOnce(Write<'_>) -> T) -> T {
        self.seconds += 1;
        let versions = OneVersion {
            api_version: "v1",
            schema: self.notation.schema(),
            reset_fields: self.reset_fields.clone(),
            empty: value!({"apiVersion": "v1", "kind": "Thing", "metadata": {}}),
        };
        let versions = Twins(versions);
        write(Write {
            versions: &versions,
            api_version: "v1",
            kind: "Thing",
            subresource: self.subresource,
            manager,
            now: Time::from_unix(1_700_000_000 + self.seconds, 0),
        })
    }

    /// Stores the result of a write like a server: sets the UID, and keeps the old object if nothing changed.
    fn store(&mut self, mut new: Value) {
        new.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("uid", "u");
        if let Some(old) = &self.object {
            keep_times(old, &mut new);
        }
        self.object = Some(new);
    }

    /// Asserts the fields of the object without its identity and `managedFields`.
    #[track_caller]
    pub(crate) fn expect(&mut self, fields: &str) -> &mut Self {
        let mut have = self.object.clone().expect("the scenario has an object");
        let metadata = have.get_mut("metadata").unwrap().as_object_mut().unwrap();
        metadata.remove("uid");
        metadata.remove("managedFields");
        assert_eq!(have.to_string(), object(fields).to_string());
        self
    }

    /// Asserts the owners, one per line: `alice applied .spec.a .spec.b`, `bob changed .spec.c`.
    #[track_caller]
    pub(crate) fn owned(&mut self, expect: &[&str]) -> &mut Self {
        assert_eq!(self.owners(), expect);
        self
    }

    pub(crate) fn owners(&self) -> Vec<String> {
        let object = self.object.as_ref().expect("the scenario has an object");
        let entries = object.at(&["metadata", "managedFields"]).cloned().unwrap_or(value!([]));
        let lines = entries.as_array().unwrap().iter().map(|entry| {
            let owners = Owners::from_value(&Value::Array(vec![entry.clone()])).unwrap();
            let owner = &owners.list()[0];
            let how = if owner.operation == Operation::Apply { "applied" } else { "changed" };
            let at = if owner.subresource.is_empty() { String::new() } else { format!("/{}", owner.subresource) };
            format!("{}{at} {how} {}", owner.manager, owner.fields.to_string().replace('\n', " "))
        });
        lines.collect()
    }
}
