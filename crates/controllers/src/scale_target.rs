//! Resource lookup for a kind that is given by apiVersion and kind, or by group and plural.

use apimachinery::meta::Scope;
use apimachinery::{Resource, Value};
use controller::{Cache, kinds};

use crate::read::{is_true, list, text};

/// CRDs, which define the plural names of custom kinds.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Returns the resource of a kind: built-in, from a CRD, or of an aggregated API server. For the latter the plural is
/// guessed as the lowercase kind with an `s`.
pub(crate) fn resource(cache: &Cache, api_version: &str, kind: &str) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if let Some(known) = kinds::ALL.iter().find(|have| have.kind == kind && have.group == group) {
        return (*known).clone();
    }
    let defines = |definition: &&Value| {
        text(definition, &["spec", "group"]) == group && text(definition, &["spec", "names", "kind"]) == kind
    };
    let definition = cache.of(DEFINITIONS).iter().map(|it| &it.value).find(defines);
    let plural = definition.map(|definition| text(definition, &["spec", "names", "plural"]).to_owned());
    let cluster = definition.is_some_and(|definition| text(definition, &["spec", "scope"]) == "Cluster");
    Resource {
        group: group.into(),
        version: version.into(),
        plural: plural.unwrap_or_else(|| format!("{}s", kind.to_ascii_lowercase())).into(),
        kind: kind.into(),
        scope: if cluster { Scope::Cluster } else { Scope::Namespaced },
    }
}

/// Returns the resource with a group and plural: built-in or from a CRD.
pub(crate) fn by_plural(cache: &Cache, group: &str, plural: &str) -> Option<Resource> {
    let own = api::kinds::all().into_iter().find(|kind| kind.group == group && kind.plural == plural);
    if let Some(kind) = own {
        let version = kind.versions.first()?.name.clone();
        let (group, plural) = (kind.group.clone(), kind.plural.clone());
        return Some(Resource { group, version, plural, kind: kind.kind.clone(), scope: kind.scope });
    }
    let defines = |definition: &&Value| {
        text(definition, &["spec", "group"]) == group && text(definition, &["spec", "names", "plural"]) == plural
    };
    let definition = cache.of(DEFINITIONS).iter().map(|it| &it.value).find(defines)?;
    let version = list(definition, &["spec", "versions"]).iter().find(|version| is_true(version, &["served"]))?;
    let cluster = text(definition, &["spec", "scope"]) == "Cluster";
    Some(Resource {
        group: group.into(),
        version: text(version, &["name"]).into(),
        plural: plural.into(),
        kind: text(definition, &["spec", "names", "kind"]).into(),
        scope: if cluster { Scope::Cluster } else { Scope::Namespaced },
    })
}
