//! Merges topology hints: the NUMA nodes from which all resources can be allocated.

use super::{Hints, Policy};

/// A set of NUMA nodes with IDs up to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nodes(u64);

/// A set of NUMA nodes that suffices for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// `None` for any.
    pub nodes: Option<Nodes>,
    /// Whether no smaller set suffices.
    pub preferred: bool,
}

/// Maximum number of hint combinations that are evaluated; hosts have few NUMA nodes and containers few resources.
const COMBINATIONS_MAX: usize = 1 << 20;

impl Nodes {
    /// Creates a set; ignores IDs above 63.
    pub fn of(nodes: impl IntoIterator<Item = u32>) -> Self {
        Self(nodes.into_iter().filter(|node| *node < 64).fold(0, |set, node| set | 1 << node))
    }

    pub const fn has(self, node: u32) -> bool {
        node < 64 && self.0 & (1 << node) != 0
    }

    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the intersection.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the IDs in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |node| self.has(*node))
    }

    /// Returns all subsets that are not empty, smaller ones first. Considers only the first 16 nodes.
    pub fn subsets(self) -> Vec<Self> {
        let nodes: Vec<u32> = self.iter().take(16).collect();
        let of = |choice: u32| {
            Self::of(nodes.iter().enumerate().filter(|(at, _)| choice & (1 << at) != 0).map(|(_, node)| *node))
        };
        let mut all: Vec<Self> = (1..1_u32 << nodes.len()).map(of).collect();
        all.sort_by_key(|set| (set.count(), *set));
        all
    }

    /// Whether the set is better: fewer nodes, or lower IDs.
    const fn is_narrower_than(self, other: Self) -> bool {
        if self.count() == other.count() { self.0 < other.0 } else { self.count() < other.count() }
    }
}

/// Returns the best hint for all providers together, and whether the policy admits it.
pub fn merge(policy: Policy, nodes: Nodes, providers: &[Hints]) -> (Hint, bool) {
    if policy == Policy::None {
        return (Hint { nodes: None, preferred: true }, true);
    }
    let mut lists = lists(providers);
    if policy == Policy::SingleNode {
        for list in &mut lists {
            list.retain(|hint| hint.preferred && hint.nodes.is_none_or(|nodes| nodes.count() == 1));
        }
    }
    let mut best = best(nodes, &lists);
    if policy == Policy::SingleNode && best.nodes == Some(nodes) {
        // No provider has a preference, so the container is not bound to all nodes.
        best.nodes = None;
    }
    (best, policy == Policy::BestEffort || best.preferred)
}

/// Returns one list of hints per resource.
fn lists(providers: &[Hints]) -> Vec<Vec<Hint>> {
    let anywhere = || vec![Hint { nodes: None, preferred: true }];
    let mut lists = Vec::new();
    for hints in providers {
        if hints.is_empty() {
            lists.push(anywhere());
        }
        for hints in hints.values() {
            lists.push(match hints {
                None => anywhere(),
                Some(none) if none.is_empty() => vec![Hint { nodes: None, preferred: false }],
                Some(hints) => hints.clone(),
            });
        }
    }
    lists
}

/// Evaluates all combinations of one hint per list, up to [`COMBINATIONS_MAX`].
fn best(all: Nodes, lists: &[Vec<Hint>]) -> Hint {
    let combinations = lists.iter().try_fold(1_usize, |product, list| product.checked_mul(list.len()));
    let mut best: Option<Hint> = None;
    let widest =
        lists.iter().map(|list| list.iter().filter_map(|hint| hint.nodes).map(Nodes::count).min().unwrap_or(0));
    let widest = widest.max().unwrap_or(0);
    for number in 0..combinations.unwrap_or(COMBINATIONS_MAX).min(COMBINATIONS_MAX) {
        let mut rest = number;
        let chosen = lists.iter().map(|list| {
            let hint = list[rest % list.len()];
            rest /= list.len();
            hint
        });
        let candidate = together(all, chosen);
        if candidate.nodes.is_some_and(|nodes| nodes.count() > 0) {
            best = Some(best.map_or(candidate, |best| better(best, candidate, widest)));
        }
    }
    best.unwrap_or(Hint { nodes: Some(all), preferred: false })
}

/// Intersects hints; the result is preferred if all are preferred and have the same nodes.
fn together(all: Nodes, hints: impl Iterator<Item = Hint>) -> Hint {
    let (mut nodes, mut preferred, mut first) = (all, true, None);
    for hint in hints {
        preferred &= hint.preferred;
        if let Some(own) = hint.nodes {
            preferred &= *first.get_or_insert(own) == own;
            nodes = nodes.and(own);
        }
    }
    Hint { nodes: Some(nodes), preferred }
}

/// Returns the better of two hints. A hint that is not preferred should have as many nodes as the resource that needs
/// most of them.
fn better(current: Hint, candidate: Hint, widest: u32) -> Hint {
    let (Some(have), Some(offered)) = (current.nodes, candidate.nodes) else { return current };
    let narrower = if offered.is_narrower_than(have) { candidate } else { current };
    if current.preferred != candidate.preferred {
        return if candidate.preferred { candidate } else { current };
    }
    if current.preferred || have.count() > widest {
        return narrower;
    }
    match (have.count() == widest, offered.count().cmp(&widest)) {
        (true, std::cmp::Ordering::Equal) => narrower,
        (true, _) | (false, std::cmp::Ordering::Greater) => current,
        (false, std::cmp::Ordering::Equal) => candidate,
        (false, std::cmp::Ordering::Less) => match offered.count().cmp(&have.count()) {
            std::cmp::Ordering::Greater => candidate,
            std::cmp::Ordering::Less => current,
            std::cmp::Ordering::Equal => narrower,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses hints: `0+1!` are nodes 0 and 1, preferred; `*` is any; `-` is none.
    fn list(text: &str) -> Option<Vec<Hint>> {
        let hint = |word: &str| {
            let nodes = Nodes::of(word.trim_end_matches('!').split('+').map(|node| node.parse().unwrap()));
            Hint { nodes: Some(nodes), preferred: word.ends_with('!') }
        };
        match text {
            "*" => None,
            "-" => Some(Vec::new()),
            text => Some(text.split(' ').map(hint).collect()),
        }
    }

    fn check(policy: Policy, resources: &[&str], expect: &str) {
        let providers: Vec<Hints> = resources.iter().map(|text| Hints::from([("r".to_owned(), list(text))])).collect();
        let (best, admitted) = merge(policy, Nodes::of(0..4), &providers);
        let nodes = best
            .nodes
            .map_or("*".to_owned(), |nodes| nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>().join("+"));
        let found =
            format!("{nodes}{}{}", if best.preferred { "!" } else { "" }, if admitted { "" } else { " refused" });
        assert_eq!(found, expect, "{policy:?} {resources:?}");
    }

    #[test]
    fn best_effort_policy_admits_the_best_hint() {
        use Policy::BestEffort as P;
        check(P, &["0! 1! 0+1", "1! 0+1"], "1!");
        check(P, &["0! 1!", "*"], "0!");
        check(P, &["0!", "1!"], "0+1+2+3");
        check(P, &["0! 0+1", "1! 0+1"], "0");
        check(P, &["*", "*"], "0+1+2+3!");
        check(P, &["-", "0! 1!"], "0");
        check(P, &["0+1! 0+1+2", "0! 1! 0+1"], "0+1");
        check(P, &["2+3! 0+1!", "*"], "0+1!");
    }

    #[test]
    fn restricted_policy_rejects_hints_that_are_not_preferred() {
        use Policy::Restricted as P;
        check(P, &["0! 1! 0+1", "1! 0+1"], "1!");
        check(P, &["0! 0+1", "1! 0+1"], "0 refused");
        check(P, &["0+1!", "0+1!"], "0+1!");
        check(P, &["-"], "0+1+2+3 refused");
    }

    #[test]
    fn single_numa_node_policy_requires_one_node() {
        use Policy::SingleNode as P;
        check(P, &["0! 1! 0+1", "1! 0+1"], "1!");
        check(P, &["0+1!", "0+1!"], "* refused");
        check(P, &["*", "*"], "*!");
        check(P, &["0!", "1!"], "* refused");
    }

    #[test]
    fn none_policy_ignores_hints() {
        check(Policy::None, &["-", "0!"], "*!");
        assert_eq!(
            merge(Policy::Restricted, Nodes::of([0]), &[]),
            (Hint { nodes: Some(Nodes::of([0])), preferred: true }, true)
        );
    }

    #[test]
    fn subsets_are_complete_and_ordered_by_size() {
        let subsets: Vec<Vec<u32>> =
            Nodes::of([0, 2, 5]).subsets().into_iter().map(|set| set.iter().collect()).collect();
        assert_eq!(subsets, [vec![0], vec![2], vec![5], vec![0, 2], vec![0, 5], vec![2, 5], vec![0, 2, 5]]);
        assert!(Nodes::default().subsets().is_empty() && Nodes::of([64, 99]).count() == 0);
        assert_eq!(Nodes::of(0..64).subsets().len(), (1 << 16) - 1);
    }
}
