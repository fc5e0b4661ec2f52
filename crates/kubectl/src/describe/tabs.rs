//! Elastic tabstops: aligns tab-terminated cells of adjacent lines, like Go's `text/tabwriter`.

/// Aligns `text` and appends it to `out`. A column is a block of adjacent lines that have a tab-terminated cell in the
/// same position; it is as wide as its widest cell and `padding`.
pub fn align(text: &str, padding: usize, out: &mut String) {
    // A form feed ends the line and every column.
    for part in text.split_inclusive('\u{c}') {
        let (part, broken) = part.strip_suffix('\u{c}').map_or((part, false), |part| (part, true));
        let lines: Vec<Vec<&str>> = part.split('\n').map(|line| line.split(['\t', '\u{b}']).collect()).collect();
        let last = lines.len() - 1;
        Block { lines: &lines, last, padding }.format(0, lines.len(), &mut Vec::new(), out);
        if broken {
            out.push('\n');
        }
    }
}

struct Block<'a> {
    lines: &'a [Vec<&'a str>],
    /// The index of the last line, which has no newline.
    last: usize,
    padding: usize,
}

impl Block<'_> {
    /// Writes the lines from `start` to `end`, of which the first columns have known widths.
    fn format(&self, mut start: usize, end: usize, widths: &mut Vec<usize>, out: &mut String) {
        let column = widths.len();
        let has_cell = |at: usize| column + 1 < self.lines[at].len();
        let mut at = start;
        while at < end {
            if !has_cell(at) {
                at += 1;
                continue;
            }
            self.write(start, at, widths, out);
            start = at;
            while at < end && has_cell(at) {
                at += 1;
            }
            let width = |line: &Vec<&str>| line[column].chars().count() + self.padding;
            widths.push(self.lines[start..at].iter().map(width).max().unwrap_or_default());
            self.format(start, at, widths, out);
            widths.pop();
            start = at;
        }
        self.write(start, end, widths, out);
    }

    fn write(&self, start: usize, end: usize, widths: &[usize], out: &mut String) {
        for at in start..end {
            for (index, cell) in self.lines[at].iter().enumerate() {
                out.push_str(cell);
                let missing = widths.get(index).map_or(0, |width| width - cell.chars().count());
                out.extend(std::iter::repeat_n(' ', missing));
            }
            if at != self.last {
                out.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_tab_terminated_cells_are_aligned() {
        let check = |text: &str, aligned: &str| {
            let mut out = String::new();
            align(text, 2, &mut out);
            assert_eq!(out, aligned);
        };
        check("a:\tb\nlonger:\tc\n", "a:       b\nlonger:  c\n");
        check("a\tb\nno tab\nlonger\tc\n", "a  b\nno tab\nlonger  c\n");
        check("a\tb\tc\nd\te\n", "a  b  c\nd  e\n");
        check("\tx\n\ty\tz\n", "  x\n  y  z\n");
        check("é\tx\nab\ty", "é   x\nab  y");
        check("a\t\n", "a  \n");
        check("a\tb\u{c}longer\tc", "a  b\nlonger  c");
        check("", "");
    }
}
