//! Nobody gives away what they do not have: which of some rules a set of others leaves uncovered.

use machinery::Str;

use super::rule::{Rule, has, matches_path};

/// The smallest parts of `wanted` that no rule of `owned` covers.
///
/// Each returned rule names one verb on one resource (or one path), so that a refusal can list exactly what is lacking.
pub fn uncovered(owned: &[&Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted.iter().flat_map(parts).filter(|part| !owned.iter().any(|rule| covers(rule, part))).collect()
}

/// Splits a rule so that each part has one verb and one of everything else it is about.
fn parts(rule: &Rule) -> Vec<Rule> {
    let one = |word: &Str| vec![word.clone()];
    let mut parts = Vec::new();
    for verb in &rule.verbs {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let part =
                    Rule { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Rule::default() };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                } else {
                    let named = |name| Rule { resource_names: one(name), ..part.clone() };
                    parts.extend(rule.resource_names.iter().map(named));
                }
            }
        }
        let path = |path| Rule { verbs: one(verb), non_resource_urls: one(path), ..Rule::default() };
        parts.extend(rule.non_resource_urls.iter().map(path));
    }
    parts
}

fn covers(rule: &Rule, part: &Rule) -> bool {
    let all_in = |have: &[Str], want: &[Str]| want.iter().all(|word| has(have, word));
    let names = if part.resource_names.is_empty() {
        rule.resource_names.is_empty()
    } else {
        rule.resource_names.is_empty() || part.resource_names.iter().all(|name| rule.resource_names.contains(name))
    };
    let resources = part.resources.iter().all(|want| {
        let star_of_part = want.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        rule.resources.iter().any(|have| have == "*" || have == want || Some(have.as_str()) == star_of_part.as_deref())
    });
    let paths = part
        .non_resource_urls
        .iter()
        .all(|want| rule.non_resource_urls.iter().any(|have| have == want || matches_path(have, want)));
    all_in(&rule.verbs, &part.verbs) && all_in(&rule.api_groups, &part.api_groups) && resources && names && paths
}
