//! AdmissionRequest, without its objects, for webhooks and CEL expressions.

use api::resources::NAMESPACES;
use apimachinery::{GroupVersionKind, Value, value};

use super::{Attributes, Operation, VersionedKind};

impl Attributes<'_> {
    /// Returns the kind of the request's object if it differs from the resource's kind: a pod's `Binding`, a `Scale`.
    pub fn subresource_kind(&self) -> Option<&GroupVersionKind> {
        self.kind.subresource(&self.version.name, self.subresource).and_then(|subresource| subresource.kind.as_ref())
    }

    /// Returns the AdmissionRequest in the version that the webhook or policy matches.
    pub(super) fn admission_request(&self, seen: VersionedKind<'_>, uid: &str) -> Value {
        let gvk = |of: VersionedKind<'_>| {
            let gvk = self.subresource_kind().cloned().unwrap_or_else(|| of.kind.gvk(&of.version.name));
            let GroupVersionKind { group, version, kind } = gvk;
            value!({"group": group, "version": version, "kind": kind})
        };
        let gvr = |of: VersionedKind<'_>| {
            let (group, plural) = (of.kind.group.as_str(), of.kind.plural.as_str());
            value!({"group": group, "version": (of.version.name.as_str()), "resource": plural})
        };
        let requested = self.as_requested();
        let mut out = value!({
            "uid": uid,
            "kind": (gvk(seen)),
            "resource": (gvr(seen)),
            "requestKind": (gvk(requested)),
            "requestResource": (gvr(requested)),
            "operation": (self.operation.word()),
            "userInfo": (self.user.to_user_info()),
            "dryRun": (self.dry_run),
            "options": (self.options.clone()),
        });
        // A Namespace object is in its own namespace here.
        let namespace = if self.is(NAMESPACES) { self.name } else { self.namespace };
        let texts = [
            ("name", self.name),
            ("namespace", namespace),
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
        ];
        if let Value::Object(fields) = &mut out {
            for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
                fields.insert(key, text);
            }
        }
        out
    }
}

impl Operation {
    /// Returns the name in rules, requests and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}
