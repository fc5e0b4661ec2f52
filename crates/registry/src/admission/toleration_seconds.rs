//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or unreachable, unless it says otherwise.

use machinery::status::Status;
use machinery::{Value, value};

use super::pods::{items, list_mut, spec, spec_mut, text};
use super::{Attributes, Notes, Plugin, View};

/// Taints, and what the flags that say how long they are tolerated are called in the configuration.
const TAINTS: [(&str, &str); 2] =
    [("node.kubernetes.io/not-ready", "notReadySeconds"), ("node.kubernetes.io/unreachable", "unreachableSeconds")];
const SECONDS: i64 = 300;

/// See the module.
pub struct DefaultTolerationSeconds {
    seconds: [i64; 2],
}

impl DefaultTolerationSeconds {
    /// From how long a pod stays: `notReadySeconds`, `unreachableSeconds`.
    pub fn of(config: &Value) -> Self {
        Self { seconds: TAINTS.map(|(_, name)| config.get(name).and_then(Value::as_int).unwrap_or(SECONDS)) }
    }
}

impl Plugin for DefaultTolerationSeconds {
    fn admit(&self, attributes: &Attributes<'_>, pod: &mut Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.writes("", "pods") {
            return Ok(());
        }
        for ((taint, _), seconds) in TAINTS.into_iter().zip(self.seconds) {
            let tolerates = |toleration: &Value| {
                matches!(text(toleration, "effect"), "" | "NoExecute")
                    && (text(toleration, "key").is_empty() || text(toleration, "key") == taint)
            };
            if items(spec(pod), "tolerations").iter().any(tolerates) {
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
