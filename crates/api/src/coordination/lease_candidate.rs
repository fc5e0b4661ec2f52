//! LeaseCandidate: a candidate of coordinated leader election.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value};

use crate::field_rules::column;
use crate::kind::{Context, Kind, Rules, age_column, name_column};

pub fn kind() -> Kind {
    let row = Kind::stored("coordination.k8s.io", "v1beta1", "LeaseCandidate", "leasecandidates");
    let mut kind = Kind { create_on_update: true, rules: Arc::new(LeaseCandidate), ..row.with_beta("v1alpha2") }
        .with_columns(&[
            name_column(),
            column("Lease", "string", "Lease of the candidate.", |object, _| text(object, "leaseName")),
            column("Binary Version", "string", "Version of the binary.", |object, _| text(object, "binaryVersion")),
            column("Emulation Version", "string", "Emulated version.", |object, _| text(object, "emulationVersion")),
            age_column(),
        ]);
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct LeaseCandidate;

impl Rules for LeaseCandidate {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        if spec.get("leaseName").is_empty() {
            errors.push(spec.get("leaseName").required(""));
        }
        let emulated = version(&spec.get("emulationVersion"), errors);
        let binary = spec.get("binaryVersion");
        if binary.is_empty() {
            errors.push(binary.required("must specify binaryVersion"));
        }
        let built = version(&binary, errors);
        if let (Some(built), Some(emulated)) = (built, emulated)
            && built < emulated
        {
            errors.push(binary.invalid("must be greater than or equal to `emulationVersion`"));
        }
        let strategy = spec.get("strategy");
        if strategy.is_empty() {
            errors.push(strategy.required(""));
        } else {
            super::strategy(&strategy, errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
        let (root, before) = (At::root(object), At::root(old));
        let (spec, had) = (root.get("spec"), before.get("spec"));
        crate::field_rules::immutable(&spec.get("leaseName"), &had.get("leaseName"), errors);
    }
}

/// Parses major, minor and patch of a semantic version; the rest does not affect the comparison of servers.
fn version(at: &At<'_>, errors: &mut Errors) -> Option<[u64; 3]> {
    if at.is_empty() {
        return None;
    }
    let core = at.str().split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<_> = core.split('.').map(str::parse::<u64>).collect();
    match numbers[..] {
        [Ok(major), Ok(minor), Ok(patch)] => Some([major, minor, patch]),
        _ => {
            let detail =
                if numbers.len() == 3 { "Invalid character(s) found" } else { "No Major.Minor.Patch elements found" };
            errors.push(Error::invalid(at.path(), at.str(), detail));
            None
        }
    }
}

fn text(object: &Value, field: &str) -> Value {
    object.text_at(&["spec", field]).into()
}
