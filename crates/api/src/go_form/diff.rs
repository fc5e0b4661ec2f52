//! What differs between two texts, as `diff -u` prints it without the names of files.

/// Lines of unchanged text around each difference.
const CONTEXT: usize = 3;

/// Texts of more lines are told to differ as a whole: the table below grows with the product of both.
const LINES_MAX: usize = 4000;

/// One line of a text that became another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit<'t> {
    Same(&'t str),
    Gone(&'t str),
    New(&'t str),
}

/// The differences in hunks; nothing if there is none.
pub fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let edits = edits(&old, &new);
    let changed: Vec<_> = (0..edits.len()).filter(|at| !matches!(edits[*at], Edit::Same(_))).collect();
    let mut out = String::new();
    let mut rest = changed.as_slice();
    while let Some(first) = rest.first() {
        let near = rest.windows(2).take_while(|pair| pair[1] - pair[0] <= 2 * CONTEXT + 1).count();
        let last = rest[near];
        rest = &rest[near + 1..];
        hunk(&edits, first.saturating_sub(CONTEXT)..(last + 1 + CONTEXT).min(edits.len()), &mut out);
    }
    out
}

fn hunk(edits: &[Edit<'_>], range: std::ops::Range<usize>, out: &mut String) {
    let olds = |edits: &[Edit<'_>]| edits.iter().filter(|edit| !matches!(edit, Edit::New(_))).count();
    let news = |edits: &[Edit<'_>]| edits.iter().filter(|edit| !matches!(edit, Edit::Gone(_))).count();
    let (before, inside) = (&edits[..range.start], &edits[range]);
    let span = |start: usize, count: usize| match count {
        1 => format!("{}", start + 1),
        0 => format!("{start},0"),
        _ => format!("{},{count}", start + 1),
    };
    let (old, new) = (span(olds(before), olds(inside)), span(news(before), news(inside)));
    out.push_str(&format!("@@ -{old} +{new} @@\n"));
    for edit in inside {
        let (mark, line) = match edit {
            Edit::Same(line) => (' ', line),
            Edit::Gone(line) => ('-', line),
            Edit::New(line) => ('+', line),
        };
        out.push(mark);
        out.push_str(line);
        out.push('\n');
    }
}

/// The shortest way from one text to the other, what goes before what comes.
fn edits<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<Edit<'t>> {
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[same..].iter().rev().zip(new[same..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (inner_old, inner_new) = (&old[same..old.len() - tail], &new[same..new.len() - tail]);
    let mut out: Vec<_> = old[..same].iter().map(|line| Edit::Same(line)).collect();
    if inner_old.len().max(inner_new.len()) > LINES_MAX {
        out.extend(inner_old.iter().map(|line| Edit::Gone(line)));
        out.extend(inner_new.iter().map(|line| Edit::New(line)));
    } else {
        walk(inner_old, inner_new, &mut out);
    }
    out.extend(old[old.len() - tail..].iter().map(|line| Edit::Same(line)));
    out
}

fn walk<'t>(old: &[&'t str], new: &[&'t str], out: &mut Vec<Edit<'t>>) {
    // common[i][j]: how many lines the rests of both have in common.
    let width = new.len() + 1;
    let mut common = vec![0_u16; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            out.push(Edit::Same(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            out.push(Edit::Gone(old[i]));
            i += 1;
        } else {
            out.push(Edit::New(new[j]));
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: &str, new: &str, expect: &str) {
        assert_eq!(unified(old, new), expect);
    }

    #[test]
    fn a_changed_line_stands_among_its_neighbours() {
        check(
            "1\n2\n3\n4\n5\n6\n7\n8\n9",
            "1\n2\n3\n4\nfive\n6\n7\n8\n9",
            "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
        );
    }

    #[test]
    fn far_differences_are_apart_and_near_ones_together() {
        let old: Vec<_> = (0..20).map(|n| n.to_string()).collect();
        let mut new = old.clone();
        new[2] = "x".into();
        new[15] = "y".into();
        assert_eq!(unified(&old.join("\n"), &new.join("\n")).matches("@@ -").count(), 2);
        new[9] = "z".into();
        assert_eq!(unified(&old.join("\n"), &new.join("\n")).matches("@@ -").count(), 1);
    }

    #[test]
    fn what_is_the_same_gives_nothing_and_what_is_added_gives_only_that() {
        check("a\nb", "a\nb", "");
        check("a", "a\nb", "@@ -1 +1,2 @@\n a\n+b\n");
    }
}
