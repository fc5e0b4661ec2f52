//! Access modes and volume modes of PersistentVolumes and PersistentVolumeClaims.

use apimachinery::field::Error;
use apimachinery::{At, Errors};

use crate::field_rules::one_of_if_present;

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Abbreviations in table columns, in the order of printing.
const SHORT: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

pub fn validate(modes: &At<'_>, errors: &mut Errors) {
    for mode in modes.items().filter(|mode| !MODES.contains(&mode.str())) {
        // Upstream reports the path of the list with the value of the item.
        errors.push(Error::not_supported(modes.path(), mode.str(), MODES));
    }
    let exclusive = modes.items().filter(|mode| mode.str() == "ReadWriteOncePod").count();
    if exclusive > 0 && exclusive < modes.len() {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

pub fn validate_volume_mode(mode: &At<'_>, errors: &mut Errors) {
    one_of_if_present(mode, &["Block", "Filesystem"], errors);
}

/// Returns the modes abbreviated, such as `RWO,ROX`.
pub fn shortened(modes: &At<'_>) -> String {
    let has = |mode_name: &str| modes.items().any(|mode| mode.str() == mode_name);
    let short: Vec<_> = SHORT.iter().filter(|(name, _)| has(name)).map(|(_, short)| *short).collect();
    short.join(",")
}
