//! References by name to resources whose names have changed.

use apimachinery::Value;

use super::Error;
use super::field_path::{Create, FieldSpec};
use super::merge::text_of;
use super::resource::{Id, Resource, Set};
use super::specs::{self, NameReference};

/// A resource that may be referred to: what selects it, and its new name.
struct Candidate {
    current: Id,
    original: Id,
    previous: Vec<Id>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
}

/// The search for the resource that a field of `referrer` names.
struct Search<'a> {
    referrer: &'a Candidate,
    target: &'a NameReference,
    /// The group and kind in the `roleRef` of the referrer, if the field is its name.
    role: Option<(String, String)>,
}

/// Updates the names in all referring fields.
pub(super) fn update(set: &mut Set) -> Result<(), Error> {
    let candidates: Vec<Candidate> = set.resources.iter().map(Candidate::of).collect();
    let references = specs::name_references();
    for (at, resource) in set.resources.iter_mut().enumerate() {
        let referrer = &candidates[at];
        let reachable = reachable(resource, referrer, &candidates);
        for target in &references {
            for spec in target.referrers.iter().filter(|spec| spec.selects(&referrer.original.gvk)) {
                let role = spec.path.ends_with("roleRef/name").then(|| role_ref(resource)).flatten();
                let search = Search { referrer, target, role };
                let spec = FieldSpec::new(&spec.path);
                let outcome = spec.visit(resource, Create::Never, &mut |field| search.set(field, &reachable));
                outcome.map_err(|error| {
                    let (path, id) = (&spec.path, &referrer.current);
                    error.context(format!("updating name reference in '{path}' field of '{id}'"))
                })?;
            }
        }
    }
    Ok(())
}

/// Returns the candidates in the namespace of the referrer, those without namespace, and those in the namespaces of
/// a role binding's service accounts.
fn reachable<'a>(resource: &Resource, referrer: &Candidate, candidates: &'a [Candidate]) -> Vec<&'a Candidate> {
    if referrer.current.cluster_scoped {
        return candidates.iter().collect();
    }
    let subjects = resource.object.get("subjects").and_then(Value::as_array).unwrap_or_default();
    let accounts = subjects.iter().filter(|subject| subject.str_at(&["kind"]) == Some("ServiceAccount"));
    let namespaces: Vec<&str> = match resource.kind() {
        "RoleBinding" => accounts.filter_map(|subject| subject.str_at(&["namespace"])).collect(),
        _ => Vec::new(),
    };
    let near = |candidate: &&Candidate| {
        candidate.current.cluster_scoped
            || candidate.current.effective_namespace() == referrer.current.effective_namespace()
            || namespaces.contains(&candidate.current.namespace.as_str())
    };
    candidates.iter().filter(near).collect()
}

fn role_ref(resource: &Resource) -> Option<(String, String)> {
    let field = |name| resource.object.str_at(&["roleRef", name]).map(str::to_owned);
    Some((field("apiGroup")?, field("kind")?))
}

impl Candidate {
    fn of(resource: &Resource) -> Self {
        Self {
            current: resource.current_id(),
            original: resource.original_id(),
            previous: resource.previous_ids().collect(),
            prefixes: resource.prefixes.clone(),
            suffixes: resource.suffixes.clone(),
        }
    }

    /// Whether names have the same prefixes and suffixes, as in one branch of the tree of kustomizations.
    fn same_affixes(&self, other: &Self, allow_empty: bool) -> bool {
        let same = |own: &[String], others: &[String]| {
            (allow_empty && (own.is_empty() || others.is_empty())) || same_ending(own, others)
        };
        same(&self.prefixes, &other.prefixes) && same(&self.suffixes, &other.suffixes)
    }
}

fn same_ending(left: &[String], right: &[String]) -> bool {
    let (short, long) = if left.len() > right.len() { (right, left) } else { (left, right) };
    if short.is_empty() { long.is_empty() } else { long.ends_with(short) }
}

impl Search<'_> {
    fn set(&self, field: &mut Value, candidates: &[&Candidate]) -> Result<(), Error> {
        match field {
            Value::Null => Ok(()),
            Value::Array(items) => items.iter_mut().try_for_each(|item| match item {
                Value::Object(_) => self.set_mapping(item, candidates),
                _ => self.set_scalar(item, candidates),
            }),
            Value::Object(_) => self.set_mapping(field, candidates),
            _ => self.set_scalar(field, candidates),
        }
    }

    fn set_scalar(&self, field: &mut Value, candidates: &[&Candidate]) -> Result<(), Error> {
        let same = |left: &Candidate, right: &Candidate| left.current.name == right.current.name;
        if let Some(referral) = self.select(&text_of(field), candidates.to_vec(), same)? {
            *field = referral.current.name.as_str().into();
        }
        Ok(())
    }

    /// Updates the `name` and the `namespace` of an object such as the subject of a role binding.
    fn set_mapping(&self, field: &mut Value, candidates: &[&Candidate]) -> Result<(), Error> {
        let Some(name) = field.get("name").map(text_of) else {
            return Err(Error::new("path config error; no 'name' field in node"));
        };
        let candidates = match field.get("namespace").map(text_of) {
            None => candidates.to_vec(),
            Some(namespace) => in_namespace(candidates, &namespace),
        };
        let same = |left: &Candidate, right: &Candidate| {
            left.current.name == right.current.name && left.current.namespace == right.current.namespace
        };
        let (Some(referral), Value::Object(field)) = (self.select(&name, candidates, same)?, field) else {
            return Ok(());
        };
        field.insert("name", referral.current.name.as_str());
        if !referral.current.namespace.is_empty() {
            field.insert("namespace", referral.current.namespace.as_str());
        }
        Ok(())
    }

    /// Returns the resource that had the name, if there is exactly one.
    fn select<'c>(
        &self,
        name: &str,
        mut candidates: Vec<&'c Candidate>,
        same: impl Fn(&Candidate, &Candidate) -> bool,
    ) -> Result<Option<&'c Candidate>, Error> {
        let NameReference { group, version, kind, .. } = self.target;
        candidates.retain(|candidate| candidate.previous.iter().any(|id| id.name == name));
        candidates.retain(|candidate| candidate.previous.iter().any(|id| id.gvk.is_selected(group, version, kind)));
        if let Some((group, kind)) = &self.role {
            candidates.retain(|candidate| candidate.previous.iter().any(|id| id.gvk.is_selected(group, "", kind)));
        }
        let referrer = &self.referrer.current;
        candidates.retain(|candidate| {
            let id = &candidate.current;
            referrer.cluster_scoped
                || id.cluster_scoped
                || id.gvk.kind == "ServiceAccount"
                || id.effective_namespace() == referrer.effective_namespace()
        });
        for allow_empty in [true, false] {
            if candidates.len() > 1 {
                candidates.retain(|candidate| candidate.same_affixes(self.referrer, allow_empty));
            }
        }
        let Some((first, others)) = candidates.split_first() else { return Ok(None) };
        if others.iter().all(|other| same(first, other)) {
            return Ok(Some(first));
        }
        let ids: Vec<String> = candidates.iter().map(|candidate| candidate.current.to_string()).collect();
        Err(Error::new(format!("found multiple possible referrals: {}", ids.join(", "))))
    }
}

fn in_namespace<'c>(candidates: &[&'c Candidate], namespace: &str) -> Vec<&'c Candidate> {
    let within = |id: fn(&Candidate) -> &Id| {
        let same = |candidate: &&&Candidate| id(candidate).effective_namespace() == namespace;
        candidates.iter().filter(same).copied().collect::<Vec<_>>()
    };
    let original = within(|candidate| &candidate.original);
    if original.is_empty() { within(|candidate| &candidate.current) } else { original }
}
