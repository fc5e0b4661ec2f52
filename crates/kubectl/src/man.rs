//! Manual pages, made from the table of commands.

use std::fmt::Write;

use crate::command::{Command, Flag, Group};
use crate::{VERSION, commands, flags};

/// A manual page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The name of the file, such as `kubectl-config-view.1`.
    pub file: String,
    pub text: String,
}

/// Returns the pages of all commands.
pub fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    add(&[&commands::ROOT], &mut pages);
    pages
}

fn add(path: &[&'static Command], pages: &mut Vec<Page>) {
    pages.push(page(path));
    for command in path[path.len() - 1].commands.iter().filter(|command| command.group != Group::Hidden) {
        add(&[path, &[*command]].concat(), pages);
    }
}

fn page(path: &[&'static Command]) -> Page {
    let command = path[path.len() - 1];
    let name = path.iter().map(|command| command.name).collect::<Vec<_>>().join("-");
    let mut text = format!(".TH \"{}\" \"1\" \"\" \"Kubernetes {VERSION}\" \"User Commands\"\n", name.to_uppercase());
    let _ = write!(text, ".SH NAME\n{} \\- {}\n", escape(&name), escape(command.summary));
    let _ = write!(text, ".SH SYNOPSIS\n.B {}\n", escape(command.usage));
    let description = if command.description.is_empty() { command.summary } else { command.description };
    let _ = write!(text, ".SH DESCRIPTION\n{}", paragraphs(description));
    options(&mut text, "OPTIONS", command.flags.iter().copied().flatten());
    if path.len() == 1 {
        options(&mut text, "GLOBAL OPTIONS", flags::GLOBAL.iter());
    }
    if !command.examples.is_empty() {
        let _ = write!(text, ".SH EXAMPLES\n.nf\n{}\n.fi\n", escape(command.examples));
    }
    let mut related: Vec<String> = Vec::new();
    if path.len() > 1 {
        related.push(path[..path.len() - 1].iter().map(|command| command.name).collect::<Vec<_>>().join("-"));
    }
    let listed = command.commands.iter().filter(|command| command.group != Group::Hidden);
    related.extend(listed.map(|command| format!("{name}-{}", command.name)));
    if !related.is_empty() {
        let related: Vec<_> = related.iter().map(|name| format!(".BR {} (1)", escape(name))).collect();
        let _ = write!(text, ".SH SEE ALSO\n{}\n", related.join(",\n"));
    }
    Page { file: format!("{name}.1"), text }
}

fn options<'a>(text: &mut String, heading: &str, flags: impl Iterator<Item = &'a Flag>) {
    let mut flags: Vec<&Flag> = flags.filter(|flag| !flag.hidden).collect();
    if flags.is_empty() {
        return;
    }
    flags.sort_by_key(|flag| flag.name);
    let _ = writeln!(text, ".SH {heading}");
    for flag in flags {
        let short = flag.short.map_or_else(String::new, |short| format!("\\-{short}, "));
        let default = if flag.default.is_empty() { String::new() } else { format!("={}", escape(flag.default)) };
        let _ = write!(text, ".TP\n.B {short}\\-\\-{}{default}\n{}\n", escape(flag.name), escape(flag.help));
    }
}

fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(|paragraph| format!("{}\n.PP\n", escape(paragraph.trim()))).collect()
}

/// Escapes what has a meaning for the formatter.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let pages = pages();
        let page = |file: &str| pages.iter().find(|page| page.file == file).unwrap_or_else(|| panic!("no {file}"));
        assert!(page("kubectl.1").text.contains(".SH GLOBAL OPTIONS\n"));
        let view = &page("kubectl-config-view.1").text;
        assert!(view.contains(".B \\-o, \\-\\-output=yaml\n"), "{view}");
        assert!(view.contains(".SH SEE ALSO\n.BR kubectl\\-config (1)\n"), "{view}");
        assert!(pages.iter().all(|page| page.text.starts_with(".TH ")));
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape(".a\n'b\\c-d"), "\\&.a\n\\&'b\\ec\\-d");
    }
}
