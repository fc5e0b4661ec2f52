//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or unreachable, unless it says otherwise.

use machinery::status::Status;
use machinery::{Value, value};

use super::pods::{items, list_mut, spec, spec_mut, text};
use super::{Attributes, Notes, Plugin, View};

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const SECONDS: i64 = 300;

/// See the module.
pub struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn admit(&self, attributes: &Attributes<'_>, pod: &mut Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.writes("", "pods") {
            return Ok(());
        }
        for taint in TAINTS {
            let tolerates = |toleration: &Value| {
                matches!(text(toleration, "effect"), "" | "NoExecute")
                    && (text(toleration, "key").is_empty() || text(toleration, "key") == taint)
            };
            if items(spec(pod), "tolerations").iter().any(tolerates) {
                continue;
            }
            if let Some(fields) = spec_mut(pod) {
                list_mut(fields, "tolerations").push(value!({
                    "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS
                }));
            }
        }
        Ok(())
    }
}
