//! Unified diffs, for hosts without a diff program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::Failure;

/// The number of unchanged lines around changes.
const CONTEXT: usize = 3;

/// Compares the files of two directories; absent files are empty.
pub(super) fn directories(old: &Path, new: &Path) -> Result<String, Failure> {
    let mut names = BTreeSet::new();
    for directory in [old, new] {
        for entry in fs::read_dir(directory)? {
            names.insert(entry?.file_name());
        }
    }
    let mut text = String::new();
    for name in names {
        let (old, new) = (old.join(&name), new.join(&name));
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let changes = hunks(&read(&old), &read(&new));
        if !changes.is_empty() {
            let (old, new) = (old.display(), new.display());
            text.push_str(&format!("diff -u -N {old} {new}\n--- {old}\n+++ {new}\n{changes}"));
        }
    }
    Ok(text)
}

/// A line of a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// Returns the changes with their context; empty if the texts are equal.
fn hunks(old: &str, new: &str) -> String {
    let lines = compare(&old.lines().collect::<Vec<_>>(), &new.lines().collect::<Vec<_>>());
    let changed: Vec<usize> = (0..lines.len()).filter(|at| !matches!(lines[*at], Line::Same(_))).collect();
    let mut text = String::new();
    let mut next = 0;
    while next < changed.len() {
        let start = changed[next].saturating_sub(CONTEXT);
        while next + 1 < changed.len() && changed[next + 1] - changed[next] <= 2 * CONTEXT {
            next += 1;
        }
        let end = (changed[next] + CONTEXT + 1).min(lines.len());
        text.push_str(&hunk(&lines, start, end));
        next += 1;
    }
    text
}

fn hunk(lines: &[Line<'_>], start: usize, end: usize) -> String {
    let count = |lines: &[Line<'_>], old: bool| {
        let counted = |line: &&Line<'_>| match line {
            Line::Same(_) => true,
            Line::Removed(_) => old,
            Line::Added(_) => !old,
        };
        lines.iter().filter(counted).count()
    };
    let range = |old: bool| {
        let (before, within) = (count(&lines[..start], old), count(&lines[start..end], old));
        match within {
            0 => format!("{before},0"),
            1 => format!("{}", before + 1),
            _ => format!("{},{within}", before + 1),
        }
    };
    let mut text = format!("@@ -{} +{} @@\n", range(true), range(false));
    for line in &lines[start..end] {
        let (sign, line) = match line {
            Line::Same(line) => (' ', line),
            Line::Removed(line) => ('-', line),
            Line::Added(line) => ('+', line),
        };
        text.push(sign);
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Finds a shortest list of removed and added lines (Myers).
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let max = old.len() + new.len();
    let mut reached = vec![0_usize; 2 * max + 2];
    let mut trace = Vec::new();
    'search: for distance in 0..=max {
        trace.push(reached.clone());
        for diagonal in (max - distance..=max + distance).step_by(2) {
            let down = diagonal == max - distance
                || (diagonal != max + distance && reached[diagonal - 1] < reached[diagonal + 1]);
            let mut x = if down { reached[diagonal + 1] } else { reached[diagonal - 1] + 1 };
            let mut y = x + max - diagonal;
            while x < old.len() && y < new.len() && old[x] == new[y] {
                x += 1;
                y += 1;
            }
            reached[diagonal] = x;
            if x >= old.len() && y >= new.len() {
                break 'search;
            }
        }
    }
    backtrack(old, new, &trace, max)
}

fn backtrack<'a>(old: &[&'a str], new: &[&'a str], trace: &[Vec<usize>], max: usize) -> Vec<Line<'a>> {
    let (mut x, mut y) = (old.len(), new.len());
    let mut lines = Vec::with_capacity(max);
    for (distance, reached) in trace.iter().enumerate().rev() {
        let diagonal = x + max - y;
        let down =
            diagonal == max - distance || (diagonal != max + distance && reached[diagonal - 1] < reached[diagonal + 1]);
        let previous = if down { diagonal + 1 } else { diagonal - 1 };
        let (from_x, from_y) = match distance {
            0 => (0, 0),
            _ => (reached[previous], (reached[previous] + max).saturating_sub(previous)),
        };
        while x > from_x && y > from_y {
            x -= 1;
            y -= 1;
            lines.push(Line::Same(old[x]));
        }
        if distance > 0 {
            if down {
                y -= 1;
                lines.push(Line::Added(new[y]));
            } else {
                x -= 1;
                lines.push(Line::Removed(old[x]));
            }
        }
    }
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_three_lines_of_context() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let new = "a\nb\nc\nd\nE\nf\ng\nh\n";
        assert_eq!(hunks(old, new), "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n");
    }

    #[test]
    fn absent_files_are_empty() {
        assert_eq!(hunks("", "a\nb\n"), "@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(hunks("a\n", ""), "@@ -1 +0,0 @@\n-a\n");
        assert_eq!(hunks("a\n", "a\n"), "");
    }

    #[test]
    fn distant_changes_are_separate() {
        let old: String = (0..20).map(|n| format!("{n}\n")).collect();
        let new = old.replace("1\n2\n", "1\nx\n2\n").replace("\n18\n", "\n");
        assert_eq!(
            hunks(&old, &new),
            "@@ -1,5 +1,6 @@\n 0\n 1\n+x\n 2\n 3\n 4\n@@ -16,5 +17,4 @@\n 15\n 16\n 17\n-18\n 19\n"
        );
    }
}
