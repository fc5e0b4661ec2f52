//! Help texts of commands, in kubectl's layout.

use std::borrow::Cow;
use std::fmt::Write;

use crate::command::{Command, Flag, FlagKind, Group};
use crate::flags;

/// The columns by which descriptions of options are narrower than other text.
const OPTION_OFFSET: usize = 10;
/// The minimum width of the column of command names.
const NAME_WIDTH_MIN: usize = 11;

// DEVIATION: help texts of `kubectl` are worded differently from upstream's and are not translated; upstream translates
// some by `LANG`.
/// Returns the help of the last command in a path from the root. `plugins` are the names of the plugins on `PATH`.
pub fn help(path: &[&'static Command], plugins: &[String]) -> String {
    let command = path[path.len() - 1];
    let names: Vec<&str> = path.iter().map(|command| command.name).collect();
    let mut out = String::new();
    let description = if command.description.is_empty() { command.summary } else { command.description };
    out.push_str(description.trim());
    out.push_str("\n\n");
    if !command.aliases.is_empty() {
        let aliases = command.aliases.join(", ");
        let _ = write!(out, "Aliases:\n{}, {aliases}\n\n", command.name);
    }
    if !command.examples.is_empty() {
        // As in kubectl, empty lines have the indentation of the others.
        let examples = command.examples.trim_end().replace("\n\n", "\n  \n");
        let _ = write!(out, "Examples:\n{examples}\n\n");
    }
    if path.len() == 1 {
        out.push_str(&groups(command, plugins));
    } else if command.commands.iter().any(|command| command.group != Group::Hidden) {
        out.push_str("Available Commands:\n");
        let mut commands: Vec<_> =
            command.commands.iter().copied().filter(|command| command.group != Group::Hidden).collect();
        commands.sort_by_key(|command| command.name);
        list(&mut out, command, commands.into_iter());
        out.push('\n');
    }
    let flags: Vec<&Flag> = command.flags.iter().copied().flatten().collect();
    if flags.iter().any(|flag| !flag.hidden) {
        let _ = write!(out, "Options:\n{}\n\n", options(flags.into_iter()).trim_end());
    }
    if !command.usage.is_empty() {
        let _ = write!(out, "Usage:\n  {}\n\n", command.usage);
    }
    if !command.commands.is_empty() {
        let names = names.join(" ");
        let _ = writeln!(out, "Use \"{names} <command> --help\" for more information about a given command.");
    }
    out.push_str("Use \"kubectl options\" for a list of global command-line options (applies to all commands).\n");
    out
}

/// Wraps a help text to the width of the terminal, if standard output is one.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    match crate::output::help_width() {
        Some(width) => wrap(text, width).into(),
        None => text.into(),
    }
}

/// Wraps a help text at white space. Descriptions of options, which start with a tab, are ten columns narrower and keep
/// the tab. Words that are longer than the width are not split.
pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 40);
    for line in text.split_inclusive('\n') {
        match line.strip_prefix('\t') {
            Some(description) => wrap_line(description, width - OPTION_OFFSET, "\t", &mut out),
            None => wrap_line(line, width, "", &mut out),
        }
    }
    out
}

fn wrap_line(line: &str, width: usize, prefix: &str, out: &mut String) {
    out.push_str(prefix);
    let mut column = 0;
    let mut rest = line;
    while !rest.is_empty() {
        let space = rest.len() - rest.trim_start_matches(' ').len();
        let word = rest[space..].find(' ').unwrap_or(rest.len() - space);
        let (spaces, after) = rest.split_at(space);
        let (word, after) = after.split_at(word);
        let length = word.trim_end_matches('\n').chars().count();
        if column + space + length > width && length < width && column > 0 {
            out.push('\n');
            out.push_str(prefix);
            column = 0;
        } else {
            out.push_str(spaces);
            column += space;
        }
        out.push_str(word);
        column += length;
        rest = after;
    }
}

/// Returns the text of `kubectl options`.
pub fn global_options() -> String {
    let options = options(flags::GLOBAL.iter());
    format!("Every command accepts these options:\n\n{}\n\n", options.trim_end())
}

fn groups(root: &Command, plugins: &[String]) -> String {
    let mut out = String::new();
    let in_group = |group| root.commands.iter().copied().filter(move |command| command.group == group);
    for group in Group::LISTED {
        let _ = writeln!(out, "{}", group.heading());
        list(&mut out, root, in_group(group));
        out.push('\n');
    }
    out.push_str("Subcommands provided by plugins:\n");
    let width = name_width(root);
    for plugin in plugins {
        let _ = writeln!(out, "  {plugin:<width$}   Run the plugin {plugin} from your PATH");
    }
    let _ = write!(out, "\n{}\n", Group::Other.heading());
    let mut others: Vec<_> = in_group(Group::Other).collect();
    others.sort_by_key(|command| command.name);
    list(&mut out, root, others.into_iter());
    out.push('\n');
    out
}

fn list(out: &mut String, parent: &Command, commands: impl Iterator<Item = &'static Command>) {
    let width = name_width(parent);
    for command in commands {
        let _ = writeln!(out, "  {:<width$}   {}", command.name, command.summary);
    }
}

fn name_width(parent: &Command) -> usize {
    parent.commands.iter().map(|command| command.name.len()).max().unwrap_or(0).max(NAME_WIDTH_MIN)
}

fn options<'a>(flags: impl Iterator<Item = &'a Flag>) -> String {
    let mut flags: Vec<&Flag> = flags.filter(|flag| !flag.hidden).collect();
    flags.sort_by_key(|flag| flag.name);
    let mut out = String::new();
    for flag in flags {
        let short = flag.short.map_or_else(String::new, |short| format!("-{short}, "));
        let default =
            if flag.name == "cache-dir" { crate::context::default_cache_dir() } else { flag.default.to_owned() };
        let default = if flag.kind == FlagKind::Text { format!("'{default}'") } else { default };
        let _ = write!(out, "    {short}--{}={default}:\n\t{}\n\n", flag.name, flag.help.replace('\n', " "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_spaces_and_options_keep_their_tab() {
        let check = |text: &str, width: usize, expect: &str| assert_eq!(wrap(text, width), expect);
        check("a bc de\n\nf\n", 4, "a bc\nde\n\nf\n");
        check("  a  b c\n", 20, "  a  b c\n");
        check("    --x=y:\n\tone two three\n", 17, "    --x=y:\n\tone two\n\tthree\n");
        check("a looooooong b\n", 6, "a looooooong\nb\n");
        check("ä öü\n", 4, "ä öü\n");
    }
}
