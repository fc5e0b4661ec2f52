//! PersistentVolume matching: candidate volumes for a claim, and the selection among them.

use apimachinery::labels;
use apimachinery::meta::Meta;
use apimachinery::quantity::Quantity;
use apimachinery::{Str, Value};

use super::CLASS_BETA;

/// Returns the class of a claim or volume, empty for none.
pub(super) fn class_of(object: &Value) -> &str {
    Meta::of(object).annotation(CLASS_BETA).unwrap_or_else(|| object.text_at(&["spec", "storageClassName"]))
}

/// Returns the volume to bind: one reserved for the claim, or the smallest of those with the fewest access modes.
pub(super) fn best<'a>(claim: &Value, volumes: &[&'a Value], reserved_only: bool) -> Option<&'a Value> {
    let fits = |volume: &&&Value| mismatch(volume, claim).is_none() && !Meta::of(volume).is_deleting();
    if let Some(reserved) = volumes.iter().filter(|volume| is_for(volume, claim)).find(fits) {
        return Some(reserved);
    }
    if reserved_only {
        return None;
    }
    let free = |volume: &&&Value| {
        volume.at(&["spec", "claimRef"]).is_none() && volume.text_at(&["status", "phase"]) == "Available"
    };
    volumes.iter().filter(free).filter(fits).copied().min_by_key(|volume| {
        let modes = volume.list_at(&["spec", "accessModes"]).len();
        (modes, capacity(volume), Str::from(Meta::of(volume).name()))
    })
}

/// Whether the volume's claimRef refers to the claim.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let meta = Meta::of(claim);
    let named = |field| volume.text_at(&["spec", "claimRef", field]);
    let uid = named("uid");
    named("name") == meta.name() && named("namespace") == meta.namespace() && (uid.is_empty() || uid == meta.uid())
}

/// Returns the reason why a volume does not match a claim.
pub(super) fn mismatch(volume: &Value, claim: &Value) -> Option<&'static str> {
    let mode = |object: &Value| object.str_at(&["spec", "volumeMode"]).unwrap_or("Filesystem").to_owned();
    let offered = volume.list_at(&["spec", "accessModes"]);
    if capacity(volume) < requested(claim) {
        Some("requested PV is too small")
    } else if class_of(volume) != class_of(claim) {
        Some("storageClassName does not match")
    } else if volume.text_at(&["spec", "volumeAttributesClassName"])
        != claim.text_at(&["spec", "volumeAttributesClassName"])
    {
        Some("volumeAttributesClassName does not match")
    } else if mode(volume) != mode(claim) {
        Some("incompatible volumeMode")
    } else if !claim.list_at(&["spec", "accessModes"]).iter().all(|mode| offered.contains(mode)) {
        Some("incompatible accessMode")
    } else if !is_selected(volume, claim) {
        Some("selector does not match")
    } else {
        None
    }
}

fn is_selected(volume: &Value, claim: &Value) -> bool {
    match claim.at(&["spec", "selector"]) {
        None => true,
        Some(selector) => labels::from_object(Some(selector)).is_ok_and(|selector| selector.matches_object(volume)),
    }
}

fn capacity(volume: &Value) -> Quantity {
    quantity(volume.at(&["spec", "capacity", "storage"]))
}

fn requested(claim: &Value) -> Quantity {
    quantity(claim.at(&["spec", "resources", "requests", "storage"]))
}

fn quantity(value: Option<&Value>) -> Quantity {
    value.and_then(api::amounts::quantity).unwrap_or_default()
}
