//! A node condensed to what placing pods on it depends on.

use machinery::meta::Meta;
use machinery::{Str, Value};

use crate::pod::{self, Labels, Taint, labels};
use crate::resources::{self, Resources};

/// A node as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Str,
    /// Its labels.
    pub labels: Labels,
    /// What keeps pods away.
    pub taints: Box<[Taint]>,
    /// Whether an administrator closed it.
    pub unschedulable: bool,
    /// What its pods may ask for in all.
    pub allocatable: Resources,
    /// How many pods it takes.
    pub pods_max: i64,
    /// What its kubelet says that it can do, of what not every one can.
    pub features: Box<[Str]>,
    /// The images it holds, each name with the size in bytes, sorted.
    pub images: Vec<(Str, i64)>,
}

impl Node {
    /// Condenses an object of kind Node.
    pub fn new(object: &Value) -> Result<Self, resources::Error> {
        let meta = Meta::of(object);
        let list = resources::list(object.at(&["status", "allocatable"]), "status.allocatable")?;
        let items = |keys: &[&str]| object.at(keys).and_then(Value::as_array).unwrap_or_default();
        let mut images: Vec<(Str, i64)> = items(&["status", "images"])
            .iter()
            .flat_map(|image| {
                let size = image.get("sizeBytes").and_then(Value::as_int).unwrap_or_default();
                let names = image.get("names").and_then(Value::as_array).unwrap_or_default();
                names.iter().filter_map(Value::as_str).map(move |name| (name.into(), size))
            })
            .collect();
        images.sort_unstable();
        images.dedup_by(|a, b| a.0 == b.0);
        Ok(Self {
            name: meta.name().into(),
            labels: labels(meta.labels()),
            taints: items(&["spec", "taints"]).iter().filter_map(Taint::new).collect(),
            unschedulable: object.at(&["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true),
            allocatable: Resources::from_list(&list),
            pods_max: list.get("pods").map_or(0, |amount| amount.value()),
            features: items(&["status", "declaredFeatures"]).iter().filter_map(Value::as_str).map(Str::from).collect(),
            images,
        })
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        pod::label(&self.labels, key)
    }
}
