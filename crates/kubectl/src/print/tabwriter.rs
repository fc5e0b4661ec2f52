//! Aligns tab-separated cells in columns, like the tabwriter of kubectl.
//!
//! Cells end with a tab; the text after the last tab of a line belongs to no column. A column is a run of consecutive
//! lines that have a cell in it, so a line without tabs ends all columns.

use super::escape_terminal;

/// Aligns text. Optionally keeps the widths of columns from one call to the next.
#[derive(Clone, Debug)]
pub struct TabWriter {
    /// The minimal width of a cell with its padding.
    width_min: usize,
    padding: usize,
    keeps_widths: bool,
    widths: Vec<usize>,
}

impl TabWriter {
    /// Returns the writer of tables: three spaces between columns, widths are remembered.
    pub const fn for_tables() -> Self {
        Self { width_min: 6, padding: 3, keeps_widths: true, widths: Vec::new() }
    }

    /// Returns a writer that does not remember widths.
    pub const fn new(width_min: usize, padding: usize) -> Self {
        Self { width_min, padding, keeps_widths: false, widths: Vec::new() }
    }

    /// Resets the widths of columns, before objects of another type are printed.
    pub fn reset_widths(&mut self) {
        self.widths.clear();
    }

    /// Replaces the tabs of a text with spaces. Cells may come from objects of other users, so characters that control
    /// a terminal are escaped.
    pub fn format(&mut self, text: &str) -> String {
        let text = escape_terminal(text);
        let lines: Vec<Vec<&str>> = split_lines(&text);
        let columns = lines.iter().map(|line| line.len().saturating_sub(1)).max().unwrap_or(0);
        let mut widths = vec![Vec::new(); lines.len()];
        for column in 0..columns {
            self.measure(&lines, column, &mut widths);
        }
        let mut out = String::with_capacity(text.len() * 2);
        for (at, (line, widths)) in lines.iter().zip(&widths).enumerate() {
            if at > 0 {
                out.push('\n');
            }
            for (cell, width) in line.iter().zip(widths.iter().copied().chain([0])) {
                out.push_str(cell);
                out.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
            }
        }
        out
    }

    /// Appends the width of a column to each line that has a cell in it.
    fn measure(&mut self, lines: &[Vec<&str>], column: usize, widths: &mut [Vec<usize>]) {
        let in_column = |line: &Vec<&str>| line.len() > column + 1;
        let mut start = 0;
        for run in lines.chunk_by(|a, b| in_column(a) == in_column(b)) {
            let end = start + run.len();
            if run.first().is_some_and(in_column) {
                let cells = run.iter().map(|line| line[column].chars().count() + self.padding);
                let mut width = cells.max().unwrap_or(0).max(self.width_min);
                if self.keeps_widths {
                    match self.widths.get_mut(column) {
                        Some(known) => {
                            width = width.max(*known);
                            *known = width;
                        }
                        None => self.widths.push(width),
                    }
                }
                widths[start..end].iter_mut().for_each(|line| line.push(width));
            }
            start = end;
        }
    }
}

/// Splits text into lines of cells. A vertical tab also ends a cell, a form feed also ends a line.
fn split_lines(text: &str) -> Vec<Vec<&str>> {
    let mut lines: Vec<Vec<&str>> =
        text.split(['\n', '\u{c}']).map(|line| line.split(['\t', '\u{b}']).collect()).collect();
    // A cell that the text leaves open belongs to no column.
    if let Some(last) = lines.last_mut()
        && last.len() > 1
        && last.last() == Some(&"")
    {
        last.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_in_runs_of_lines() {
        let mut writer = TabWriter::new(0, 2);
        assert_eq!(writer.format("a\tb\tc\nlong\tx\ty\n"), "a     b  c\nlong  x  y\n");
        assert_eq!(writer.format("a\tb\n\nlong\tx\n"), "a  b\n\nlong  x\n");
        assert_eq!(writer.format("k:\tv\n  k2:\tvalue\tx\n"), "k:     v\n  k2:  value  x\n");
        assert_eq!(writer.format("ä\tb\nab\tc\n"), "ä   b\nab  c\n");
        assert_eq!(writer.format("a\t\n"), "a  \n");
        assert_eq!(writer.format(""), "");
    }

    #[test]
    fn cells_cannot_control_the_terminal() {
        let mut writer = TabWriter::new(0, 2);
        assert_eq!(writer.format("1\t\u{1b}]0;title\u{7}\n"), "1  ^[]0;title\\u{7}\n");
    }

    #[test]
    fn tables_keep_their_widths() {
        let mut writer = TabWriter::for_tables();
        assert_eq!(writer.format("NAME\tAGE\nlong-name\t1s\n"), "NAME        AGE\nlong-name   1s\n");
        assert_eq!(writer.format("a\t2s\n"), "a           2s\n");
        writer.reset_widths();
        assert_eq!(writer.format("a\t2s\n"), "a     2s\n");
    }
}
