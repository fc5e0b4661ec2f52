//! RBAC escalation check: the permissions of the requested rules that a user's own rules do not cover.
//!
//! A rule is the product of its lists, so a role of a few kilobytes can mean billions of single permissions.
//! Permissions are compared one at a time and never collected, subtrees that no owned rule can cover are pruned, and
//! both comparisons and results are bounded.

use std::collections::BTreeSet;

use apimachinery::Str;

use super::rule::{Rule, has, matches_path};

/// Maximum uncovered permissions that are reported.
pub(super) const REPORTED_MAX: usize = 100;
/// Maximum single permissions that are compared. A role with more is rejected unless its rules are covered without
/// expansion.
const COMPARED_MAX: usize = 1 << 16;

/// The uncovered permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UncoveredRules {
    /// Rules with one verb on one resource or path each, unless there are too many to expand.
    pub rules: Vec<Rule>,
    /// Whether further permissions may be uncovered.
    pub is_truncated: bool,
}

/// Stops the search, because the maximum number of results or comparisons was reached.
struct Enough;

/// Returns the permissions of `requested` that no rule of `owned` covers, up to `REPORTED_MAX`.
///
/// The result is empty only if every single permission of `requested` is covered.
pub fn uncovered(owned: &[&Rule], requested: &[Rule]) -> UncoveredRules {
    let mut search = Search { compared: 0, found: UncoveredRules::default() };
    for rule in requested {
        if owned.iter().any(|have| covers(have, rule)) {
            continue;
        }
        if search.rule(owned, rule).is_err() {
            search.found.is_truncated = true;
            if search.found.rules.is_empty() {
                search.found.rules.push(rule.clone());
            }
            break;
        }
    }
    search.found
}

struct Search {
    compared: usize,
    found: UncoveredRules,
}

impl Search {
    /// Walks the single permissions of a rule. Each level keeps only the owned rules that can still cover a permission.
    fn rule(&mut self, owned: &[&Rule], rule: &Rule) -> Result<(), Enough> {
        for verb in distinct(&rule.verbs) {
            let owned: Vec<&Rule> = owned.iter().filter(|have| has(&have.verbs, verb)).copied().collect();
            for group in distinct(&rule.api_groups) {
                let owned: Vec<&Rule> = owned.iter().filter(|have| has(&have.api_groups, group)).copied().collect();
                for resource in distinct(&rule.resources) {
                    let permission = Rule {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Rule::default()
                    };
                    self.resource(&owned, permission, &rule.resource_names)?;
                }
            }
            for path in distinct(&rule.non_resource_urls) {
                let permission =
                    Rule { verbs: vec![verb.clone()], non_resource_urls: vec![path.clone()], ..Rule::default() };
                let is_covered = owned.iter().any(|have| have.resource_names.is_empty() && covers_path(have, path));
                self.compare(is_covered, || permission)?;
            }
        }
        Ok(())
    }

    fn resource(&mut self, owned: &[&Rule], permission: Rule, names: &[Str]) -> Result<(), Enough> {
        let owned = owned.iter().filter(|have| covers_resource(have, &permission.resources[0]));
        let owned: Vec<&Rule> = owned.copied().collect();
        let all_names = owned.iter().any(|have| have.resource_names.is_empty());
        if names.is_empty() || all_names {
            return self.compare(all_names, || permission);
        }
        for name in distinct(names) {
            let is_covered = owned.iter().any(|have| have.resource_names.contains(name));
            self.compare(is_covered, || Rule { resource_names: vec![name.clone()], ..permission.clone() })?;
        }
        Ok(())
    }

    fn compare(&mut self, is_covered: bool, permission: impl FnOnce() -> Rule) -> Result<(), Enough> {
        self.compared += 1;
        if self.compared > COMPARED_MAX {
            return Err(Enough);
        }
        if !is_covered {
            if self.found.rules.len() == REPORTED_MAX {
                return Err(Enough);
            }
            self.found.rules.push(permission());
        }
        Ok(())
    }
}

/// Returns each value once, in the order of first appearance.
fn distinct(values: &[Str]) -> impl Iterator<Item = &Str> {
    let mut seen = BTreeSet::new();
    values.iter().filter(move |word| seen.insert(word.as_str()))
}

/// Whether one rule covers every single permission of another.
fn covers(rule: &Rule, requested: &Rule) -> bool {
    let names = rule.resource_names.is_empty()
        || (!requested.resource_names.is_empty()
            && requested.resource_names.iter().all(|name| rule.resource_names.contains(name)));
    names
        && requested.verbs.iter().all(|verb| has(&rule.verbs, verb))
        && requested.api_groups.iter().all(|group| has(&rule.api_groups, group))
        && requested.resources.iter().all(|resource| covers_resource(rule, resource))
        && requested.non_resource_urls.iter().all(|path| covers_path(rule, path))
}

fn covers_resource(rule: &Rule, requested: &str) -> bool {
    let subresource = requested.split_once('/').map(|(_, subresource)| subresource);
    let is_of_all =
        |have: &str| have.strip_prefix("*/").is_some_and(|rule_subresource| Some(rule_subresource) == subresource);
    rule.resources.iter().any(|have| have == "*" || have == requested || is_of_all(have))
}

fn covers_path(rule: &Rule, requested: &str) -> bool {
    rule.non_resource_urls.iter().any(|have| have == requested || matches_path(have, requested))
}
