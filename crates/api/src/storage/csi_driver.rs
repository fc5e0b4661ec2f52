//! CSIDriver: capabilities and requirements of a CSI driver.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Scope;
use apimachinery::{At, Errors, Value};

use crate::field_rules::{IMMUTABLE, column, default_to, one_of, raise_generation_where, same};
use crate::kind::{Context, Kind, Rules, age_column, name_column};

const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const UPDATE_SECONDS_MIN: i64 = 10;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        returns_deleted: true,
        unconditional_update: false,
        rules: Arc::new(CsiDriver),
        ..Kind::stored("storage.k8s.io", "v1", "CSIDriver", "csidrivers")
    }
    .with_columns(&[
        name_column(),
        column("AttachRequired", "boolean", "Whether volumes must be attached.", |object, _| {
            flag(object, "attachRequired", true)
        }),
        column("PodInfoOnMount", "boolean", "Whether the driver receives pod information on mount.", |object, _| {
            flag(object, "podInfoOnMount", false)
        }),
        column("StorageCapacity", "boolean", "Whether the driver publishes its storage capacity.", |object, _| {
            flag(object, "storageCapacity", false)
        }),
        column("TokenRequests", "string", "Audiences of the tokens that the driver receives.", |object, _| {
            audiences(object)
        }),
        column("RequiresRepublish", "boolean", "Whether the driver republishes volumes periodically.", |object, _| {
            flag(object, "requiresRepublish", false)
        }),
        column("Modes", "string", "Persistent or Ephemeral.", |object, _| modes(object)),
        age_column(),
    ])
}

#[derive(Debug)]
struct CsiDriver;

impl Rules for CsiDriver {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(driver) = object.as_object_mut() else { return };
        let spec = driver.get_or_insert_with("spec", Value::object);
        default_to(spec, "storageCapacity", false);
        default_to(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        default_to(spec, "requiresRepublish", false);
        default_to(spec, "attachRequired", true);
        default_to(spec, "podInfoOnMount", false);
        default_to(spec, "seLinuxMount", false);
        if let Some(spec) = spec.as_object_mut() {
            let modes = spec.get_or_insert_with("volumeLifecycleModes", || Value::Array(Vec::new()));
            if modes.as_array().is_none_or(<[Value]>::is_empty) {
                *modes = Value::Array(vec!["Persistent".into()]);
            }
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        let changed = ["tokenRequests", "requiresRepublish", "seLinuxMount"].iter().any(|field| {
            let value = |of: &Value| of.at(&["spec", field]).cloned().unwrap_or(Value::Null);
            !same(&value(object), &value(old))
        });
        raise_generation_where(object, old, changed);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        // `attachedRequired` is upstream's spelling.
        if spec.get("attachRequired").is_absent() {
            errors.push(spec.get("attachedRequired").required(""));
        }
        for field in ["podInfoOnMount", "storageCapacity", "fsGroupPolicy"] {
            if spec.get(field).is_absent() {
                errors.push(spec.get(field).required(""));
            }
        }
        if spec.get("fsGroupPolicy").is_present() {
            one_of(&spec.get("fsGroupPolicy"), &["File", "None", "ReadWriteOnceWithFSType"], errors);
        }
        validate_rest(&spec, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        let (spec, had) = (root.get("spec"), before.get("spec"));
        for (field, blamed) in
            [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
        {
            if !same(spec.get(field).value(), had.get(field).value()) {
                errors.push(Error::invalid(spec.get(blamed).path(), spec.get(field).value(), IMMUTABLE));
            }
        }
        validate_rest(&spec, errors);
    }
}

fn validate_rest(spec: &At<'_>, errors: &mut Errors) {
    let tokens = spec.get("tokenRequests");
    let mut seen = BTreeSet::new();
    for token in tokens.items() {
        let (audience, seconds) = (token.get("audience"), token.get("expirationSeconds"));
        if !seen.insert(audience.str().to_owned()) {
            errors.push(Error::duplicate(audience.path(), audience.str()));
        }
        if seconds.is_present() && seconds.int() < TOKEN_SECONDS_MIN {
            errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
        }
        if seconds.int() > TOKEN_SECONDS_MAX {
            errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
        }
    }
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items() {
        if !["Persistent", "Ephemeral"].contains(&mode.str()) {
            // Upstream reports the path of the list.
            errors.push(Error::not_supported(modes.path(), mode.str(), &["Ephemeral", "Persistent"]));
        }
    }
    if spec.get("seLinuxMount").is_absent() {
        errors.push(spec.get("seLinuxMount").required(""));
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.is_present() && period.int() < UPDATE_SECONDS_MIN {
        errors.push(period.invalid(format!("must be greater than or equal to {UPDATE_SECONDS_MIN} seconds")));
    }
    let secret = spec.get("serviceAccountTokenInSecrets");
    if secret.is_present() && tokens.is_empty() {
        errors.push(secret.invalid("only valid when tokenRequests is non-empty"));
    }
}

fn flag(object: &Value, field: &str, default: bool) -> Value {
    object.at(&["spec", field]).and_then(Value::as_bool).unwrap_or(default).into()
}

fn audiences(object: &Value) -> Value {
    let root = At::root(object);
    let spec = root.get("spec");
    let tokens = spec.get("tokenRequests");
    if tokens.is_absent() {
        return "<unset>".into();
    }
    let audiences: Vec<_> = tokens.items().map(|token| token.get("audience").str().to_owned()).collect();
    audiences.join(",").into()
}

fn modes(object: &Value) -> Value {
    let root = At::root(object);
    let spec = root.get("spec");
    let modes = spec.get("volumeLifecycleModes");
    let modes: Vec<_> = modes.items().map(|mode| mode.str().to_owned()).collect();
    if modes.is_empty() { "<none>".into() } else { modes.join(",").into() }
}
