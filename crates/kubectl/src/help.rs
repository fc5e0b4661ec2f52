//! Help texts of commands, in kubectl's layout.

use std::fmt::Write;

use crate::command::{Command, Flag, FlagKind, Group};
use crate::flags;

/// The minimum width of the column of command names.
const NAME_WIDTH_MIN: usize = 11;

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
