//! Manual pages, made from a table of commands.

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

/// The content of a manual page, as plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manual {
    /// The words of the command, joined by hyphens: `kubectl-config-view`.
    pub name: String,
    /// The program and its version, in the footer of the page.
    pub source: String,
    pub summary: String,
    pub synopsis: String,
    /// Paragraphs, separated by empty lines.
    pub description: String,
    /// Options, or commands, under their headings.
    pub options: Vec<(String, Vec<OptionText>)>,
    pub examples: String,
    /// Names of other pages.
    pub related: Vec<String>,
}

/// An option of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionText {
    /// The notation of the option, such as `-o, --output=yaml`.
    pub name: String,
    pub help: String,
}

impl Manual {
    /// Returns the page of this content.
    pub fn page(&self) -> Page {
        let Self { name, source, summary, synopsis, description, options, examples, related } = self;
        let mut text = format!(".TH \"{}\" \"1\" \"\" \"{source}\" \"User Commands\"\n", name.to_uppercase());
        let _ = write!(text, ".SH NAME\n{} \\- {}\n", escape(name), escape(summary));
        let _ = write!(text, ".SH SYNOPSIS\n.B {}\n", escape(synopsis));
        let _ = write!(text, ".SH DESCRIPTION\n{}", paragraphs(description));
        for (heading, options) in options.iter().filter(|(_, options)| !options.is_empty()) {
            let _ = writeln!(text, ".SH {heading}");
            for OptionText { name, help } in options {
                let _ = write!(text, ".TP\n.B {}\n{}\n", escape(name), escape(help));
            }
        }
        if !examples.is_empty() {
            let _ = write!(text, ".SH EXAMPLES\n.nf\n{}\n.fi\n", escape(examples));
        }
        if !related.is_empty() {
            let related: Vec<_> = related.iter().map(|name| format!(".BR {} (1)", escape(name))).collect();
            let _ = write!(text, ".SH SEE ALSO\n{}\n", related.join(",\n"));
        }
        Page { file: format!("{name}.1"), text }
    }
}

/// Returns the pages of all commands. `program` is the command of another program that runs kubectl, such as
/// `knarr`; empty for kubectl itself.
pub fn pages(program: &str) -> Vec<Page> {
    let mut pages = Vec::new();
    add(program, &[&commands::ROOT], &mut pages);
    pages
}

fn add(program: &str, path: &[&'static Command], pages: &mut Vec<Page>) {
    pages.push(manual(program, path).page());
    for command in path[path.len() - 1].commands.iter().filter(|command| command.group != Group::Hidden) {
        add(program, &[path, &[*command]].concat(), pages);
    }
}

fn manual(program: &str, path: &[&'static Command]) -> Manual {
    let command = path[path.len() - 1];
    let words = |path: &[&'static Command]| {
        let program = Some(program).filter(|program| !program.is_empty());
        program.into_iter().chain(path.iter().map(|command| command.name)).collect::<Vec<_>>().join("-")
    };
    let name = words(path);
    let listed = command.commands.iter().filter(|command| command.group != Group::Hidden);
    let related = (path.len() > 1).then(|| words(&path[..path.len() - 1])).into_iter();
    let related = related.chain(listed.map(|command| format!("{name}-{}", command.name))).collect();
    let global = if path.len() == 1 { options(flags::GLOBAL.iter()) } else { Vec::new() };
    Manual {
        name,
        source: format!("Kubernetes {VERSION}"),
        summary: command.summary.to_owned(),
        synopsis: format!("{program} {}", command.usage).trim().to_owned(),
        description: if command.description.is_empty() { command.summary } else { command.description }.to_owned(),
        options: vec![
            ("OPTIONS".to_owned(), options(command.flags.iter().copied().flatten())),
            ("GLOBAL OPTIONS".to_owned(), global),
        ],
        examples: command.examples.to_owned(),
        related,
    }
}

fn options<'a>(flags: impl Iterator<Item = &'a Flag>) -> Vec<OptionText> {
    let mut flags: Vec<&Flag> = flags.filter(|flag| !flag.hidden).collect();
    flags.sort_by_key(|flag| flag.name);
    let text = |flag: &Flag| {
        let short = flag.short.map_or_else(String::new, |short| format!("-{short}, "));
        let default = if flag.default.is_empty() { String::new() } else { format!("={}", flag.default) };
        OptionText { name: format!("{short}--{}{default}", flag.name), help: flag.help.to_owned() }
    };
    flags.into_iter().map(text).collect()
}

fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(|paragraph| format!("{}\n.PP\n", escape(paragraph.trim()))).collect()
}

/// Escapes the characters that are special to the formatter.
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
        let pages = pages("");
        let page = |file: &str| pages.iter().find(|page| page.file == file).unwrap_or_else(|| panic!("no {file}"));
        assert!(page("kubectl.1").text.contains(".SH GLOBAL OPTIONS\n"));
        let view = &page("kubectl-config-view.1").text;
        assert!(view.contains(".B \\-o, \\-\\-output=yaml\n"), "{view}");
        assert!(view.contains(".SH SEE ALSO\n.BR kubectl\\-config (1)\n"), "{view}");
        assert!(pages.iter().all(|page| page.text.starts_with(".TH ")));
    }

    #[test]
    fn pages_name_the_program_that_runs_kubectl() {
        let pages = pages("knarr");
        let view = &pages.iter().find(|page| page.file == "knarr-kubectl-config-view.1").unwrap().text;
        assert!(view.contains(".SH SYNOPSIS\n.B knarr kubectl config view"), "{view}");
        assert!(view.contains(".SH SEE ALSO\n.BR knarr\\-kubectl\\-config (1)\n"), "{view}");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape(".a\n'b\\c-d"), "\\&.a\n\\&'b\\ec\\-d");
    }
}
