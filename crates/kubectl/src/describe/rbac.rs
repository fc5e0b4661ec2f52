//! Roles, ClusterRoles and their bindings.

use apimachinery::Value;

use super::RelatedObjects;
use super::WriteResult;
use super::common;
use super::read::{Read, name};
use super::writer::{Writer, line};

/// A rule about one resource or one URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    group: Option<String>,
    resource: Option<String>,
    name: Option<String>,
    url: Option<String>,
    verbs: Vec<String>,
}

pub(super) fn role(w: &mut Writer<'_>, role: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(role));
    common::metadata(w, role);
    line!(w, 0, "PolicyRule:");
    line!(w, 1, "Resources\tNon-Resource URLs\tResource Names\tVerbs");
    line!(w, 1, "---------\t-----------------\t--------------\t-----");
    for rule in compact(role.list("rules")) {
        let [urls, names] = [&rule.url, &rule.name].map(|value| value.as_deref().unwrap_or_default());
        line!(w, 1, "{}\t[{urls}]\t[{names}]\t[{}]", rule.qualified(), rule.verbs.join(" "));
    }
    Ok(())
}

pub(super) fn binding(w: &mut Writer<'_>, binding: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(binding));
    common::metadata(w, binding);
    line!(w, 0, "Role:");
    line!(w, 1, "Kind:\t{}", binding.text("roleRef.kind"));
    line!(w, 1, "Name:\t{}", binding.text("roleRef.name"));
    line!(w, 0, "Subjects:");
    line!(w, 1, "Kind\tName\tNamespace");
    line!(w, 1, "----\t----\t---------");
    for subject in binding.list("subjects") {
        line!(w, 1, "{}\t{}\t{}", subject.text("kind"), subject.text("name"), subject.text("namespace"));
    }
    Ok(())
}

/// Splits rules by resource, resource name and URL, and merges the verbs of equal resources.
fn compact(rules: &[Value]) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for rule in rules.iter().flat_map(break_down) {
        // Rules about URLs are never merged.
        let same = |have: &&mut Rule| rule.url.is_none() && have.is_about_same(&rule);
        match out.iter_mut().find(same) {
            Some(have) => {
                let new: Vec<String> = rule.verbs.into_iter().filter(|verb| !have.verbs.contains(verb)).collect();
                have.verbs.extend(new);
            }
            None => out.push(rule),
        }
    }
    out.sort_by_key(Rule::sort_key);
    out
}

/// Returns rules with one verb and one resource, resource name or URL each.
fn break_down(rule: &Value) -> Vec<Rule> {
    let verbs = rule.texts("verbs");
    let names: Vec<Option<String>> = match rule.texts("resourceNames") {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(|name| Some(name.to_owned())).collect(),
    };
    let mut out = Vec::new();
    for group in rule.texts("apiGroups") {
        for resource in rule.texts("resources") {
            for verb in &verbs {
                out.extend(names.iter().map(|name| Rule {
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    name: name.clone(),
                    url: None,
                    verbs: vec![(*verb).to_owned()],
                }));
            }
        }
    }
    for url in rule.texts("nonResourceURLs") {
        out.extend(verbs.iter().map(|verb| Rule {
            url: Some(url.to_owned()),
            verbs: vec![(*verb).to_owned()],
            ..Rule::default()
        }));
    }
    out
}

impl Rule {
    fn is_about_same(&self, other: &Self) -> bool {
        (&self.group, &self.resource, &self.name, &self.url) == (&other.group, &other.resource, &other.name, &other.url)
    }

    /// Returns the text that kubectl orders rules by.
    fn sort_key(&self) -> String {
        let [group, resource, name, url] =
            [&self.group, &self.resource, &self.name, &self.url].map(|value| value.as_deref().unwrap_or_default());
        let verbs = self.verbs.join(" ");
        format!(
            "Verbs:[{verbs}],APIGroups:[{group}],Resources:[{resource}],ResourceNames:[{name}],NonResourceURLs:[{url}]"
        )
    }

    /// Returns the resource with its group, before the subresource: `deployments.apps/scale`.
    fn qualified(&self) -> String {
        let resource = self.resource.as_deref().unwrap_or_default();
        let (resource, subresource) = resource.split_once('/').map_or((resource, None), |(a, b)| (a, Some(b)));
        let group = self.group.as_deref().filter(|group| !group.is_empty());
        let group = group.map(|group| format!(".{group}")).unwrap_or_default();
        let subresource = subresource.map(|subresource| format!("/{subresource}")).unwrap_or_default();
        format!("{resource}{group}{subresource}")
    }
}
