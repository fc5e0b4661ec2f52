//! How volumes may be mounted: what volumes and claims say alike.

use machinery::field::Error;
use machinery::{At, Errors};

use crate::field_rules::one_of_if_present;

/// All of them.
const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// What they are called in columns, in the order there.
const SHORT: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

/// What is wrong with the modes that are there.
pub fn validate(modes: &At<'_>, errors: &mut Errors) {
    for mode in modes.items().filter(|mode| !MODES.contains(&mode.str())) {
        // Upstream blames the list, and shows the item.
        errors.push(Error::not_supported(modes.path(), mode.str(), MODES));
    }
    let exclusive = modes.items().filter(|mode| mode.str() == "ReadWriteOncePod").count();
    if exclusive > 0 && exclusive < modes.len() {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

/// A volume holds files, or is a block device.
pub fn validate_volume_mode(mode: &At<'_>, errors: &mut Errors) {
    one_of_if_present(mode, &["Block", "Filesystem"], errors);
}

/// `RWO,ROX`
pub fn shortened(modes: &At<'_>) -> String {
    let has = |wanted: &str| modes.items().any(|mode| mode.str() == wanted);
    let short: Vec<_> = SHORT.iter().filter(|(name, _)| has(name)).map(|(_, short)| *short).collect();
    short.join(",")
}
