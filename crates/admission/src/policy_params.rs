//! Policy parameter authorization: a user who writes a policy or binding must be allowed to read its parameters.

use api::resources::{MUTATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICIES};
use api_registry::decode::kind_name;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{GroupResource, GroupVersion, Path, Value, field};
use auth::user::MASTERS;
use auth::{Resource, User};

use super::pods::spec;
use super::{Attributes, Notes, Plugin, View};

const GROUP: &str = "admissionregistration.k8s.io";

pub(crate) struct PolicyParams;

impl Plugin for PolicyParams {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let plural = attributes.kind.plural.as_str();
        if attributes.kind.group != GROUP || !attributes.writes_object() || attributes.user.is_in(MASTERS) {
            return Ok(());
        }
        let (field, denial) = match plural {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
                ("paramKind", policy(attributes, object, view))
            }
            "validatingadmissionpolicybindings" => {
                ("paramRef", binding(attributes, object, VALIDATING_ADMISSION_POLICIES, view))
            }
            "mutatingadmissionpolicybindings" => {
                ("paramRef", binding(attributes, object, MUTATING_ADMISSION_POLICIES, view))
            }
            _ => return Ok(()),
        };
        let Some(message) = denial else { return Ok(()) };
        let root = Path::of("spec");
        let error = field::Error::forbidden(&root.field(field), message);
        Err(Status::invalid(kind_name(attributes.kind), Meta::of(object).name(), &[error]))
    }
}

/// The resource of the parameters, as far as it is known.
struct ParamResource {
    group: String,
    version: String,
    resource: String,
    /// The reason why the resource cannot be determined exactly.
    resolve_error: Option<String>,
}

fn policy(attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Option<String> {
    let kind = spec(object).get("paramKind").filter(|kind| !kind.is_null())?;
    if attributes.old.is_some_and(|old| spec(old).get("paramKind") == Some(kind)) {
        return None;
    }
    let read = ParamResource::of(Some(kind), "", view);
    if read.is_allowed(attributes.user, "get", ("*", "*"), view) {
        return None;
    }
    let (user, name, version) = (format_user(attributes.user), kind.text_at(&["kind"]), kind.text_at(&["apiVersion"]));
    Some(format!(
        "user {user} must have \"get\" permission on all objects of the referenced paramKind (kind={name}, \
         apiVersion={version})"
    ))
}

fn binding(attributes: &Attributes<'_>, object: &Value, policies: GroupResource, view: &dyn View) -> Option<String> {
    let reference = spec(object).get("paramRef").filter(|reference| !reference.is_null())?;
    let same = |old: &Value| {
        spec(old).get("paramRef") == Some(reference)
            && spec(old).text_at(&["policyName"]) == spec(object).text_at(&["policyName"])
    };
    if attributes.old.is_some_and(same) {
        return None;
    }
    let name = spec(object).text_at(&["policyName"]);
    let policy = view.object(policies, "", name);
    let read = match &policy {
        Some(policy) => ParamResource::of(spec(policy).get("paramKind"), name, view),
        None => ParamResource::anything(format!("unable to get policy {name}")),
    };
    let param_name = reference.text_at(&["name"]);
    let verb = if param_name.is_empty() { "list" } else { "get" };
    if read.is_allowed(attributes.user, verb, (reference.text_at(&["namespace"]), param_name), view) {
        return None;
    }
    let user = format_user(attributes.user);
    Some(match read.resolve_error {
        Some(resolve_error) => format!(
            "{resolve_error} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for \
             all groups, versions and resources"
        ),
        None => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
    })
}

impl ParamResource {
    fn of(kind: Option<&Value>, policy: &str, view: &dyn View) -> Self {
        let Some(kind) = kind.filter(|kind| !kind.is_null()) else {
            return Self::anything(format!("unable to find the paramKind of policy {policy}"));
        };
        let param_kind = format!("{}/{}", kind.text_at(&["apiVersion"]), kind.text_at(&["kind"]));
        let Ok(GroupVersion { group, version }) = kind.text_at(&["apiVersion"]).parse::<GroupVersion>() else {
            return Self::anything(format!("unable to parse paramKind {param_kind}"));
        };
        let found = view.plural(&group, kind.text_at(&["kind"]));
        let resolve_error = found.is_none().then(|| format!("unable to resolve paramKind {param_kind}"));
        let resource = found.map_or_else(|| "*".to_owned(), |(plural, _)| plural);
        Self { group: group.to_string(), version: version.to_string(), resource, resolve_error }
    }

    fn anything(resolve_error: String) -> Self {
        let all = || "*".to_owned();
        Self { group: all(), version: all(), resource: all(), resolve_error: Some(resolve_error) }
    }

    fn is_allowed(&self, user: &User, verb: &str, (namespace, name): (&str, &str), view: &dyn View) -> bool {
        let (group, version, resource) = (self.group.as_str(), self.version.as_str(), self.resource.as_str());
        let resource = Resource { group, version, resource, namespace, name, ..Resource::default() };
        view.allows(&auth::Attributes { user, verb, target: auth::Target::Resource(resource) })
    }
}

/// Formats a user as Go does.
fn format_user(user: &User) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::Operation;
    use crate::testing::{Cluster, attributes};

    fn denial_message(
        kind: &api::kind::Kind,
        user: &User,
        object: &Value,
        old: Option<&Value>,
        allows: bool,
    ) -> String {
        let cluster = Cluster::default().allowing(allows);
        let attributes = Attributes { old, ..attributes(kind, user, Operation::Create) };
        let result = PolicyParams.validate(&attributes, object, &cluster, &mut Notes::default());
        result.err().map(|status| status.message).unwrap_or_default()
    }

    #[test]
    fn writing_a_policy_requires_read_access_to_its_parameters() {
        let kind = api::admissionregistration::validating_admission_policy::kind();
        let (jane, admin) = (User::authenticated("jane", []), User::authenticated("admin", [MASTERS.into()]));
        let policy = value!({"metadata": {"name": "x"}, "spec": {"paramKind": {"apiVersion": "v1", "kind": "Secret"}}});
        let expected = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"x\" is invalid: spec.paramKind: Forbidden: user \
            &{jane  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind \
            (kind=Secret, apiVersion=v1)";
        assert_eq!(denial_message(&kind, &jane, &policy, None, false), expected);
        assert_eq!(denial_message(&kind, &jane, &policy, None, true), "");
        assert_eq!(denial_message(&kind, &admin, &policy, None, false), "");
        assert_eq!(
            denial_message(&kind, &jane, &policy, Some(&policy), false),
            "",
            "fields that existed before are kept"
        );
        let binding = api::admissionregistration::validating_admission_policy_binding::kind();
        let bound = value!({"metadata": {"name": "x"}, "spec": {"policyName": "p", "paramRef": {"name": "s"}}});
        assert!(denial_message(&binding, &jane, &bound, None, false).contains("unable to get policy p"));
        assert_eq!(denial_message(&binding, &jane, &bound, None, true), "");
    }
}
