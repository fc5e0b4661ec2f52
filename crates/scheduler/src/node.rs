//! Nodes, condensed to the fields that scheduling depends on.

use apimachinery::meta::Meta;
use apimachinery::{Str, Value};

use crate::pod::{self, Labels, Taint, labels};
use crate::resources::{self, Resources};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: Str,
    pub labels: Labels,
    pub taints: Box<[Taint]>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    /// Allocatable number of pods.
    pub pods_max: i64,
    /// `status.declaredFeatures`.
    pub features: Box<[Str]>,
    /// Image names with size in bytes, sorted.
    pub images: Vec<(Str, i64)>,
}

impl Node {
    pub fn new(object: &Value) -> Result<Self, resources::Error> {
        let meta = Meta::of(object);
        let list = resources::list(object.at(&["status", "allocatable"]), "status.allocatable")?;
        let items = |keys: &[&str]| object.list_at(keys);
        let mut images: Vec<(Str, i64)> = items(&["status", "images"])
            .iter()
            .flat_map(|image| {
                let size = image.get("sizeBytes").and_then(Value::as_int).unwrap_or_default();
                let names = image.list_at(&["names"]);
                names.iter().filter_map(Value::as_str).map(move |name| (name.into(), size))
            })
            .collect();
        images.sort_unstable();
        images.dedup_by(|a, b| a.0 == b.0);
        Ok(Self {
            name: meta.name().into(),
            labels: labels(meta.labels()),
            taints: items(&["spec", "taints"]).iter().filter_map(Taint::new).collect(),
            unschedulable: object.is_true_at(&["spec", "unschedulable"]),
            allocatable: Resources::from_list(&list),
            pods_max: list.get("pods").map_or(0, |amount| amount.value()),
            features: items(&["status", "declaredFeatures"]).iter().filter_map(Value::as_str).map(Str::from).collect(),
            images,
        })
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        pod::label(&self.labels, key)
    }
}
