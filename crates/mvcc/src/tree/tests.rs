//! Property tests of the tree against a `BTreeMap`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
struct Number {
    key: u32,
    weight: usize,
}

impl Item for Number {
    fn order(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
    fn weight(&self) -> usize {
        self.weight
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, usize),
    Remove(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let insert = || (0..2000u32, 0..3usize).prop_map(|(key, weight)| Step::Insert(key, weight));
    prop_oneof![
        proptest::collection::vec(prop_oneof![3 => insert(), 1 => (0..2000u32).prop_map(Step::Remove)], 0..3000),
        proptest::collection::vec(prop_oneof![1 => insert(), 1 => (0..200u32).prop_map(Step::Remove)], 0..3000),
    ]
}

fn items(tree: &Tree<Number>) -> Vec<(u32, usize)> {
    tree.iter().map(|number| (number.key, number.weight)).collect()
}

fn verify(tree: &Tree<Number>, model: &BTreeMap<u32, usize>, at: u32) {
    assert_eq!(tree.len(), model.len());
    assert_eq!(items(tree), model.iter().map(|(key, weight)| (*key, *weight)).collect::<Vec<_>>());
    assert_eq!(
        tree.weight_before(|number| number.key < at),
        model.range(..at).map(|(_, weight)| *weight).sum::<usize>()
    );
    assert_eq!(
        tree.last_before(|number| number.key < at).map(|number| number.key),
        model.range(..at).next_back().map(|(key, _)| *key)
    );
    let from: Vec<u32> = tree.iter_from(|number| number.key < at).map(|number| number.key).collect();
    assert_eq!(from, model.range(at..).map(|(key, _)| *key).collect::<Vec<_>>());
    assert_eq!(tree.find(|number| number.key.cmp(&at)).map(|number| number.weight), model.get(&at).copied());
    check_node(&tree.root, true);
}

/// Returns the depth; fails if the summary of a child does not match its subtree.
fn check_node(node: &Node<Number>, root: bool) -> usize {
    assert!(node.len() <= NODE_MAX);
    match node {
        Node::Leaf(_) => 1,
        Node::Inner(children) => {
            assert!(root || !children.is_empty());
            let depths: Vec<usize> = children
                .iter()
                .map(|child| {
                    assert_eq!(child.first, *child.node.first());
                    assert_eq!(child.weight, child.node.weight());
                    check_node(&child.node, false)
                })
                .collect();
            assert!(depths.iter().all(|depth| *depth == depths[0]), "leaves are at the same depth");
            depths[0] + 1
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn tree_behaves_like_a_sorted_map_and_clones_never_change(steps in steps(), at in 0..2000u32, pause in 0..3000usize) {
        let mut tree = Tree::default();
        let mut model = BTreeMap::new();
        let mut clone = None;
        for (index, step) in steps.iter().enumerate() {
            if index == pause {
                clone = Some((tree.clone(), model.clone()));
            }
            match *step {
                Step::Insert(key, weight) => {
                    let replaced = tree.insert(Number { key, weight }).map(|number| number.weight);
                    prop_assert_eq!(replaced, model.insert(key, weight));
                }
                Step::Remove(key) => {
                    let removed = tree.remove(|number| number.key.cmp(&key)).map(|number| number.weight);
                    prop_assert_eq!(removed, model.remove(&key));
                }
            }
        }
        verify(&tree, &model, at);
        if let Some((tree, model)) = clone {
            verify(&tree, &model, at);
        }
    }
}

#[test]
fn ascending_keys_fill_their_nodes() {
    let mut tree = Tree::default();
    for key in 0..10_000 {
        tree.insert(Number { key, weight: 1 });
    }
    let leaves = count_leaves(&tree.root);
    assert!(leaves <= 10_000 / NODE_MAX + 2, "{leaves} leaves for 10,000 items");
}

fn count_leaves(node: &Node<Number>) -> usize {
    match node {
        Node::Leaf(_) => 1,
        Node::Inner(children) => children.iter().map(|child| count_leaves(&child.node)).sum(),
    }
}
