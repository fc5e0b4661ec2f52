//! DefaultTolerationSeconds: pods tolerate the not-ready and unreachable taints for five minutes by default.

use api::resources::PODS;
use apimachinery::status::Status;
use apimachinery::{Value, value};

use super::pods::{list_mut, spec, spec_mut};
use super::{Attributes, Notes, Plugin, View};

/// The taints, with the configuration fields of their toleration seconds.
const TAINTS: [(&str, &str); 2] =
    [("node.kubernetes.io/not-ready", "notReadySeconds"), ("node.kubernetes.io/unreachable", "unreachableSeconds")];
const SECONDS: i64 = 300;

pub(crate) struct DefaultTolerationSeconds {
    seconds: [i64; 2],
}

impl DefaultTolerationSeconds {
    /// Parses `notReadySeconds` and `unreachableSeconds`.
    pub(crate) fn of(config: &Value) -> Self {
        Self { seconds: TAINTS.map(|(_, name)| config.get(name).and_then(Value::as_int).unwrap_or(SECONDS)) }
    }
}

impl Plugin for DefaultTolerationSeconds {
    fn admit(&self, attributes: &Attributes<'_>, pod: &mut Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.writes(PODS) {
            return Ok(());
        }
        for ((taint, _), seconds) in TAINTS.into_iter().zip(self.seconds) {
            let tolerates = |toleration: &Value| {
                matches!(toleration.text_at(&["effect"]), "" | "NoExecute")
                    && (toleration.text_at(&["key"]).is_empty() || toleration.text_at(&["key"]) == taint)
            };
            if spec(pod).list_at(&["tolerations"]).iter().any(tolerates) {
                continue;
            }
            if let Some(fields) = spec_mut(pod) {
                list_mut(fields, "tolerations").push(value!({
                    "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds
                }));
            }
        }
        Ok(())
    }
}
