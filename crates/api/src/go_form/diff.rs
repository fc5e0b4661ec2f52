//! Unified diffs, equal to those of upstream's diff library.
//!
//! The algorithm is that of Python's `difflib`: find the longest common run, then recurse before and after it. Very
//! frequent lines start no run; without that rule the diffs would differ from upstream's.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::ops::Range;

/// Number of context lines around a difference.
const CONTEXT: usize = 3;
/// Minimum number of lines for the rule on frequent lines.
const FREQUENT_FROM: usize = 200;
/// Longer texts are compared only from both ends, because the general algorithm is quadratic.
const LINES_MAX: usize = 10_000;

/// Returns the diff from `old` to `new`, empty if they are equal.
pub(super) fn unified(old: &str, new: &str) -> String {
    let (a, b): (Vec<_>, Vec<_>) = (old.split('\n').collect(), new.split('\n').collect());
    let blocks = if a.len().max(b.len()) > LINES_MAX { both_ends(&a, &b) } else { matching_blocks(&a, &b) };
    let mut out = String::new();
    for group in groups(&changes(&blocks, a.len(), b.len())) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (from, to) = (first.old.start..last.old.end, first.new.start..last.new.end);
        writeln!(out, "@@ -{} +{} @@", range(&from), range(&to)).expect("writing to a String cannot fail");
        for change in &group {
            let mut lines = |sign: char, lines: &[&str]| {
                for line in lines {
                    writeln!(out, "{sign}{line}").expect("writing to a String cannot fail");
                }
            };
            if change.same {
                lines(' ', &a[change.old.clone()]);
            } else {
                lines('-', &a[change.old.clone()]);
                lines('+', &b[change.new.clone()]);
            }
        }
    }
    out
}

/// A range of equal or changed lines.
#[derive(Clone, Debug)]
struct Change {
    same: bool,
    old: Range<usize>,
    new: Range<usize>,
}

/// A common run of lines.
#[derive(Clone, Copy, Debug)]
struct Block {
    old: usize,
    new: usize,
    length: usize,
}

fn range(lines: &Range<usize>) -> String {
    match lines.len() {
        1 => format!("{}", lines.start + 1),
        0 => format!("{},0", lines.start),
        length => format!("{},{length}", lines.start + 1),
    }
}

fn both_ends(a: &[&str], b: &[&str]) -> Vec<Block> {
    let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let left = a.len().min(b.len()) - head;
    let tail = a.iter().rev().zip(b.iter().rev()).take(left).take_while(|(a, b)| a == b).count();
    vec![Block { old: 0, new: 0, length: head }, Block { old: a.len() - tail, new: b.len() - tail, length: tail }]
}

fn matching_blocks(a: &[&str], b: &[&str]) -> Vec<Block> {
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in b.iter().enumerate() {
        positions.entry(line).or_default().push(at);
    }
    if b.len() >= FREQUENT_FROM {
        let frequent = b.len() / 100 + 1;
        positions.retain(|_, at| at.len() <= frequent);
    }
    let mut todo = vec![(0..a.len(), 0..b.len())];
    let mut found = Vec::new();
    while let Some((old, new)) = todo.pop() {
        let block = longest(a, b, &positions, &old, &new);
        if block.length == 0 {
            continue;
        }
        todo.push((old.start..block.old, new.start..block.new));
        todo.push((block.old + block.length..old.end, block.new + block.length..new.end));
        found.push(block);
    }
    found.sort_by_key(|block| (block.old, block.new));
    found
}

/// Returns the longest common run within two ranges, the earliest of several.
fn longest(
    a: &[&str],
    b: &[&str],
    positions: &HashMap<&str, Vec<usize>>,
    old: &Range<usize>,
    new: &Range<usize>,
) -> Block {
    let mut best = Block { old: old.start, new: new.start, length: 0 };
    let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
    for at in old.clone() {
        let mut next = BTreeMap::new();
        for &other in positions.get(a[at]).into_iter().flatten().filter(|other| new.contains(other)) {
            let before = other.checked_sub(1).and_then(|before| lengths.get(&before));
            let length = before.copied().unwrap_or_default() + 1;
            next.insert(other, length);
            if length > best.length {
                best = Block { old: at + 1 - length, new: other + 1 - length, length };
            }
        }
        lengths = next;
    }
    while best.old > old.start && best.new > new.start && a[best.old - 1] == b[best.new - 1] {
        best = Block { old: best.old - 1, new: best.new - 1, length: best.length + 1 };
    }
    while best.old + best.length < old.end
        && best.new + best.length < new.end
        && a[best.old + best.length] == b[best.new + best.length]
    {
        best.length += 1;
    }
    best
}

fn changes(blocks: &[Block], old_length: usize, new_length: usize) -> Vec<Change> {
    let end = Block { old: old_length, new: new_length, length: 0 };
    let (mut old, mut new) = (0, 0);
    let mut changes: Vec<Change> = Vec::new();
    for block in blocks.iter().chain([&end]) {
        if old < block.old || new < block.new {
            changes.push(Change { same: false, old: old..block.old, new: new..block.new });
        }
        (old, new) = (block.old + block.length, block.new + block.length);
        if block.length == 0 {
            continue;
        }
        match changes.last_mut() {
            // Adjacent runs are merged.
            Some(last) if last.same => (last.old.end, last.new.end) = (old, new),
            _ => changes.push(Change { same: true, old: block.old..old, new: block.new..new }),
        }
    }
    changes
}

/// Groups nearby differences into hunks with context lines.
fn groups(changes: &[Change]) -> Vec<Vec<Change>> {
    let mut groups = Vec::new();
    let mut group: Vec<Change> = Vec::new();
    let last = changes.len().saturating_sub(1);
    for (index, change) in changes.iter().enumerate() {
        let mut change = change.clone();
        if change.same && index == 0 {
            change.old.start = change.old.end.saturating_sub(CONTEXT).max(change.old.start);
            change.new.start = change.new.end.saturating_sub(CONTEXT).max(change.new.start);
        }
        if change.same && index == last {
            change.old.end = change.old.end.min(change.old.start + CONTEXT);
            change.new.end = change.new.end.min(change.new.start + CONTEXT);
        }
        if change.same && change.old.len() > 2 * CONTEXT {
            let (old, new) = (change.old.clone(), change.new.clone());
            let head = Change { same: true, old: old.start..old.start + CONTEXT, new: new.start..new.start + CONTEXT };
            group.push(head);
            groups.push(std::mem::take(&mut group));
            change.old.start = old.end - CONTEXT;
            change.new.start = new.end - CONTEXT;
        }
        group.push(change);
    }
    groups.push(group);
    groups.retain(|group| group.iter().any(|change| !change.same));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_printed_with_context() {
        let check = |old: &str, new: &str, expect: &str| assert_eq!(unified(old, new), expect);
        check("a\nb", "a\nb", "");
        check("a", "b", "@@ -1 +1 @@\n-a\n+b\n");
        check(
            "a\nb\nc\nd\ne\nf\ng\nh\ni",
            "a\nb\nc\nd\nX\nf\ng\nh\ni",
            "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+X\n f\n g\n h\n",
        );
        check("a\nc", "a\nb\nc", "@@ -1,2 +1,3 @@\n a\n+b\n c\n");
        check("a\nb\nc", "a\nc", "@@ -1,3 +1,2 @@\n a\n-b\n c\n");
    }

    #[test]
    fn distant_differences_are_separate_hunks() {
        let old: Vec<_> = (0..30).map(|line| line.to_string()).collect();
        let mut new = old.clone();
        new[2] = "x".to_owned();
        new[20] = "y".to_owned();
        let diff = unified(&old.join("\n"), &new.join("\n"));
        assert_eq!(diff.matches("@@ -").count(), 2, "{diff}");
    }

    #[test]
    fn long_texts_are_compared_in_linear_time() {
        let old = "x\n".repeat(20_000);
        let new = format!("{}y\n{}", "x\n".repeat(10_000), "x\n".repeat(9_999));
        assert_eq!(unified(&old, &new).matches("\n+y").count(), 1);
    }
}
