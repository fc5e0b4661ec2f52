//! API kinds of the storage.k8s.io group.

pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[
    csi_driver::kind,
    csi_node::kind,
    csi_storage_capacity::kind,
    storage_class::kind,
    volume_attachment::kind,
    volume_attributes_class::kind,
];

/// Maximum number of parameters.
const PARAMETERS_MAX: usize = 512;
/// Maximum total size of parameter keys and values in bytes.
const PARAMETER_BYTES_MAX: usize = 256 << 10;

/// Validates the parameters of a driver.
fn parameters(at: &At<'_>, errors: &mut Errors) {
    if at.len() > PARAMETERS_MAX {
        errors.push(Error::too_long(at.path(), PARAMETERS_MAX));
        return;
    }
    let mut bytes = 0;
    for (key, value) in at.entries() {
        if key.is_empty() {
            errors.push(Error::invalid(at.path(), key, "field can not be empty."));
        }
        bytes += key.len() + value.len();
    }
    if bytes > PARAMETER_BYTES_MAX {
        errors.push(Error::too_long(at.path(), PARAMETER_BYTES_MAX));
    }
}

/// Requires a provisioner or driver name: a qualified name after conversion to lower case.
fn provisioner(at: &At<'_>, errors: &mut Errors) {
    if at.is_empty() {
        errors.push(at.required(""));
        return;
    }
    let wrong = names::qualified_name(&at.str().to_lowercase());
    errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), at.str(), wrong)));
}
