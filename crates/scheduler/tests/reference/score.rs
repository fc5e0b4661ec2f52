//! Reference scores of nodes.

use std::collections::BTreeSet;

use apimachinery::Value;

use super::matching::{images, list, meets, text, tolerates};
use super::{ReferenceCluster, is_counted, is_together, requests, required, spread_rules, topology};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Scoring strategy of NodeResourcesFit.
#[derive(Clone, Debug, Default)]
pub(crate) enum Strategy {
    #[default]
    Least,
    Most,
    /// Points of utilization in percent and score up to 10.
    Ratio(Vec<(i64, i64)>),
}

impl ReferenceCluster {
    /// Returns the weighted sum of scores of each node.
    pub(crate) fn totals(&self, pod: &Value, nodes: &[&Value]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        let mut add = |weight: i64, scores: Vec<i64>| {
            totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
        };
        add(3, reversed(nodes.iter().map(|node| disliked(pod, node)).collect()));
        add(2, scaled(nodes.iter().map(|node| preferred(pod, node)).collect()));
        add(1, nodes.iter().map(|node| self.loaded(pod, node)).collect());
        add(1, nodes.iter().map(|node| self.balanced(pod, node)).collect());
        add(1, nodes.iter().map(|node| self.images(pod, node)).collect());
        add(2, self.spread_scores(pod, nodes));
        add(2, self.affinity_scores(pod, nodes));
        totals
    }

    fn loaded(&self, pod: &Value, node: &Value) -> i64 {
        let scores = ["cpu", "memory"].map(|resource| {
            let others: i64 = self.on(node).map(|other| requests::load(other, resource)).sum();
            let (taken, has) = (others + requests::guessed(pod, resource), Self::has(node, resource));
            match &self.strategy {
                Strategy::Least => {
                    if taken > has {
                        0
                    } else {
                        (has - taken) * 100 / has
                    }
                }
                Strategy::Most => taken.min(has) * 100 / has,
                Strategy::Ratio(line) => on_line(line, if taken > has { 100 } else { taken * 100 / has }),
            }
        });
        match self.strategy {
            Strategy::Least | Strategy::Most => scores.iter().sum::<i64>() / 2,
            // Resources with score 0 are ignored.
            Strategy::Ratio(_) => {
                let counted: Vec<_> = scores.into_iter().filter(|score| *score > 0).collect();
                if counted.is_empty() {
                    return 0;
                }
                (counted.iter().sum::<i64>() as f64 / counted.len() as f64).round() as i64
            }
        }
    }

    fn balanced(&self, pod: &Value, node: &Value) -> i64 {
        let requested = |resource: &str| requests::amount(pod, resource);
        if requested("cpu") == 0 && requested("memory") == 0 {
            return 0;
        }
        let evenness = |with: bool| {
            let [cpu, memory] = ["cpu", "memory"].map(|resource| {
                let taken = self.taken(node, resource);
                let all = if with { taken + requested(resource) } else { taken };
                (all as f64 / Self::has(node, resource) as f64).min(1.0)
            });
            ((1.0 - ((cpu - memory) / 2.0).abs()) * 100.0) as i64
        };
        50 + (50 + evenness(true) - evenness(false)) / 2
    }

    fn images(&self, pod: &Value, node: &Value) -> i64 {
        let all = images(pod);
        let (mib, number) = (1024 * 1024, i64::try_from(all.len()).unwrap());
        let size = |node: &Value, image: &str| {
            let named = |it: &&Value| list(it, &["names"]).iter().any(|name| name.as_str() == Some(image));
            let found = list(node, &["status", "images"]).iter().find(named);
            found.map(|it| it.get("sizeBytes").and_then(Value::as_int).unwrap())
        };
        let scaled = |image: &String| {
            let spread = self.nodes.values().filter(|other| size(other, image).is_some()).count();
            let share = spread as f64 / self.nodes.len() as f64;
            size(node, image).map_or(0, |size| (size as f64 * share) as i64)
        };
        let sum: i64 = all.iter().map(scaled).sum();
        100 * (sum.clamp(23 * mib, 1000 * mib * number) - 23 * mib) / (1000 * mib * number - 23 * mib)
    }

    fn spread_scores(&self, pod: &Value, nodes: &[&Value]) -> Vec<i64> {
        let rules = spread_rules(pod, "ScheduleAnyway");
        if rules.is_empty() {
            return vec![0; nodes.len()];
        }
        let ranked = |node: &Value| rules.iter().all(|rule| topology(node, rule).is_some());
        let raw = |node: &Value| -> f64 {
            let of_rule = |rule: &&Value| {
                let candidates = nodes.iter().filter(|node| ranked(node));
                let (size, count) = if text(rule, &["topologyKey"]) == HOSTNAME {
                    let here = self.on(node).filter(|other| is_counted(pod, rule, other)).count();
                    (candidates.count(), i64::try_from(here).unwrap())
                } else {
                    let values: BTreeSet<_> = candidates.map(|node| topology(node, rule)).collect();
                    let count = self.domains(pod, rule, &rules).get(topology(node, rule).unwrap()).copied();
                    (values.len(), count.unwrap_or(0))
                };
                let skew = rule.get("maxSkew").and_then(Value::as_int).unwrap();
                count as f64 * (size as f64 + 2.0).ln() + (skew - 1) as f64
            };
            rules.iter().map(of_rule).sum()
        };
        let raw: Vec<_> = nodes.iter().map(|node| ranked(node).then(|| raw(node).round() as i64)).collect();
        let most = raw.iter().flatten().max().copied().unwrap_or(0);
        let least = raw.iter().flatten().min().copied().unwrap_or(0);
        let scaled = |score: i64| if most == 0 { 100 } else { 100 * (most + least - score) / most };
        raw.into_iter().map(|score| score.map_or(0, scaled)).collect()
    }

    fn affinity_scores(&self, pod: &Value, nodes: &[&Value]) -> Vec<i64> {
        let raw = |node: &&Value| -> i64 {
            let mut sum = 0;
            for (other, at) in &self.pods {
                let Some(there) = self.nodes.get(at) else { continue };
                let of = |holder: &Value, about: &Value| -> i64 {
                    let counts = |term: &Value| is_together(node, there, term) && self.is_about(term, holder, about);
                    let weigh = |kind: &str, sign: i64| -> i64 {
                        let path = ["spec", "affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution"];
                        let met = list(holder, &path).iter().filter(|it| counts(&it["podAffinityTerm"]));
                        met.map(|it| sign * it["weight"].as_int().unwrap()).sum()
                    };
                    weigh("podAffinity", 1) + weigh("podAntiAffinity", -1)
                };
                let must = |term: &&Value| is_together(node, there, term) && self.is_about(term, other, pod);
                let bound = required(other, "podAffinity").iter().filter(must).count();
                sum += of(pod, other) + of(other, pod) + i64::try_from(bound).unwrap();
            }
            sum
        };
        let raw: Vec<_> = nodes.iter().map(raw).collect();
        let (most, least) = (raw.iter().max().unwrap(), raw.iter().min().unwrap());
        let share = |score: &i64| (score - least) as f64 / (most - least) as f64;
        raw.iter().map(|score| if most == least { 0 } else { (100.0 * share(score)) as i64 }).collect()
    }
}

/// Returns the sum of weights of matching preferred terms.
fn preferred(pod: &Value, node: &Value) -> i64 {
    let path = ["spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];
    let met = list(pod, &path).iter().filter(|it| meets(node, &it["preference"]));
    met.map(|it| it["weight"].as_int().unwrap()).sum()
}

/// Returns the number of `PreferNoSchedule` taints that the pod does not tolerate.
fn disliked(pod: &Value, node: &Value) -> i64 {
    let soft = list(node, &["spec", "taints"]).iter().filter(|taint| text(taint, &["effect"]) == "PreferNoSchedule");
    i64::try_from(soft.filter(|taint| !tolerates(pod, taint)).count()).unwrap()
}

/// Interpolates the score at a utilization; scores up to 10 become scores up to 100.
fn on_line(line: &[(i64, i64)], load: i64) -> i64 {
    for (at, (end, score)) in line.iter().enumerate() {
        if load <= *end {
            let Some((start, before)) = at.checked_sub(1).map(|at| line[at]) else { return score * 10 };
            return before * 10 + (score * 10 - before * 10) * (load - start) / (end - start);
        }
    }
    line.last().unwrap().1 * 10
}

fn scaled(scores: Vec<i64>) -> Vec<i64> {
    let most = scores.iter().max().copied().unwrap_or(0);
    scores.into_iter().map(|score| if most == 0 { 0 } else { 100 * score / most }).collect()
}

fn reversed(scores: Vec<i64>) -> Vec<i64> {
    let most = scores.iter().max().copied().unwrap_or(0);
    scores.into_iter().map(|score| if most == 0 { 100 } else { 100 - 100 * score / most }).collect()
}
