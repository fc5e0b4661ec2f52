//! Resource lookup for a kind that is given by apiVersion and kind, or by group and plural.

use api::resources::CUSTOM_RESOURCE_DEFINITIONS;
use apimachinery::meta::Scope;
use apimachinery::{Resource, Value};
use controller::{Cache, kinds};

/// Returns the resource of a kind: built-in, from a CRD, or of an aggregated API server. For the latter the plural is
/// guessed as the lowercase kind with an `s`.
pub(crate) fn resource(cache: &Cache, api_version: &str, kind: &str) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if let Some(known) = kinds::ALL.iter().find(|have| have.kind == kind && have.group == group) {
        return (*known).clone();
    }
    let defines = |definition: &&Value| {
        definition.text_at(&["spec", "group"]) == group && definition.text_at(&["spec", "names", "kind"]) == kind
    };
    let definition = cache.of(CUSTOM_RESOURCE_DEFINITIONS).iter().map(|it| &it.value).find(defines);
    let plural = definition.map(|definition| definition.text_at(&["spec", "names", "plural"]).to_owned());
    let cluster = definition.is_some_and(|definition| definition.text_at(&["spec", "scope"]) == "Cluster");
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
        definition.text_at(&["spec", "group"]) == group && definition.text_at(&["spec", "names", "plural"]) == plural
    };
    let definition = cache.of(CUSTOM_RESOURCE_DEFINITIONS).iter().map(|it| &it.value).find(defines)?;
    let version = definition.list_at(&["spec", "versions"]).iter().find(|version| version.is_true_at(&["served"]))?;
    let cluster = definition.text_at(&["spec", "scope"]) == "Cluster";
    Some(Resource {
        group: group.into(),
        version: version.text_at(&["name"]).into(),
        plural: plural.into(),
        kind: definition.text_at(&["spec", "names", "kind"]).into(),
        scope: if cluster { Scope::Cluster } else { Scope::Namespaced },
    })
}
