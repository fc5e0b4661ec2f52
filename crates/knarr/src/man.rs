//! `knarr man`: manual pages of all commands, made from the table of commands.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Args, FromArgMatches};
use kubectl::man::{Manual, OptionText, Page};

use crate::output::outln;

/// Write the manual pages of all commands into a directory.
#[derive(Args, Debug)]
struct Man {
    /// Directory for the pages, such as /usr/local/share/man/man1. It is created if it does not exist.
    dir: PathBuf,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Man::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Man { dir } = Man::from_arg_matches(matches)?;
    let pages = pages();
    std::fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
    for page in &pages {
        write(&dir, page)?;
    }
    outln!("wrote {} manual pages into {}", pages.len(), dir.display());
    Ok(())
}

fn write(dir: &Path, page: &Page) -> Result<()> {
    let path = dir.join(&page.file);
    std::fs::write(&path, &page.text).with_context(|| format!("failed to write {}", path.display()))
}

/// Returns the pages of all commands, those of `knarr kubectl` included.
pub(crate) fn pages() -> Vec<Page> {
    let mut cli = crate::cli();
    // Sets the usage of commands, and adds the flags of their parents to them.
    cli.build();
    let mut pages = vec![root(&cli).page()];
    // The table of commands determines the pages, as for `--help`: clap's list hides some of its commands.
    let names = crate::command_groups().into_iter().flat_map(|(_, commands)| commands);
    for command in names.filter_map(|(name, _)| cli.find_subcommand(name)) {
        if command.get_name() == "kubectl" {
            pages.extend(kubectl::man::pages("knarr"));
        } else {
            add("knarr", command, &mut pages);
        }
    }
    pages
}

fn add(parent: &str, command: &clap::Command, pages: &mut Vec<Page>) {
    let manual = manual(parent, command);
    pages.push(manual.page());
    for inner in commands(command) {
        add(&manual.name, inner, pages);
    }
}

/// Returns the content of the page of the binary itself, with its commands in groups.
fn root(cli: &clap::Command) -> Manual {
    let (mut options, mut related) = (Vec::new(), Vec::new());
    for (heading, commands) in crate::command_groups() {
        related.extend(commands.iter().map(|(name, _)| format!("knarr-{name}")));
        let text = |(name, about): (&str, &str)| OptionText { name: name.to_owned(), help: about.to_owned() };
        options.push((heading.to_uppercase(), commands.into_iter().map(text).collect()));
    }
    options.push(("OPTIONS".to_owned(), flags(cli)));
    Manual { name: "knarr".to_owned(), related, options, ..plain(cli) }
}

fn manual(parent: &str, command: &clap::Command) -> Manual {
    let name = format!("{parent}-{}", command.get_name());
    let text = |inner: &clap::Command| OptionText {
        name: inner.get_name().to_owned(),
        help: inner.get_about().map(ToString::to_string).unwrap_or_default(),
    };
    let inner = commands(command).map(|inner| format!("{name}-{}", inner.get_name()));
    Manual {
        related: [parent.to_owned()].into_iter().chain(inner).collect(),
        options: vec![
            ("COMMANDS".to_owned(), commands(command).map(text).collect()),
            ("ARGUMENTS".to_owned(), command.get_positionals().map(positional).collect()),
            ("OPTIONS".to_owned(), flags(command)),
        ],
        name,
        ..plain(command)
    }
}

/// Returns the parts that all pages have in common.
fn plain(command: &clap::Command) -> Manual {
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").split_whitespace().collect();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let paragraphs = [Some(format!("{about}.")), command.get_after_help().map(ToString::to_string)];
    Manual {
        source: format!("Knarr {}", env!("CARGO_PKG_VERSION")),
        synopsis: usage.join(" "),
        description: paragraphs.into_iter().flatten().collect::<Vec<_>>().join("\n\n"),
        summary: about,
        ..Manual::default()
    }
}

/// Returns the subcommands that help texts list. clap adds `help`, which has no page.
fn commands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn positional(arg: &Arg) -> OptionText {
    OptionText { name: value_name(arg), help: help(arg) }
}

fn flags(command: &clap::Command) -> Vec<OptionText> {
    let flags = command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
    flags
        .map(|arg| {
            let names = arg.get_short().map(|short| format!("-{short}")).into_iter();
            let names = names.chain(arg.get_long().map(|long| format!("--{long}"))).collect::<Vec<_>>().join(", ");
            let value = if arg.get_action().takes_values() { format!(" {}", value_name(arg)) } else { String::new() };
            OptionText { name: names + &value, help: help(arg) }
        })
        .collect()
}

fn value_name(arg: &Arg) -> String {
    match arg.get_value_names() {
        Some(names) => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        None => arg.get_id().as_str().to_uppercase(),
    }
}

/// Returns the help of an argument with its default and its possible values.
fn help(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    if !arg.get_action().takes_values() {
        return text;
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && !arg.is_hide_default_value_set() {
        text += &format!(" [default: {}]", defaults.join(","));
    }
    let possible = arg.get_possible_values();
    let names: Vec<&str> =
        possible.iter().filter(|value| !value.is_hide_set()).map(clap::builder::PossibleValue::get_name).collect();
    if !names.is_empty() {
        text += &format!(" [possible values: {}]", names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_has_a_page_and_references_lead_to_pages() {
        let pages = pages();
        let files: BTreeSet<&str> = pages.iter().map(|page| page.file.as_str()).collect();
        assert_eq!(files.len(), pages.len(), "two pages have one name");
        for command in crate::commands::COMMANDS {
            assert!(files.contains(format!("knarr-{}.1", command.name).as_str()), "{}", command.name);
        }
        for page in &pages {
            let (_, related) = page.text.split_once(".SH SEE ALSO\n").unwrap_or_default();
            for name in related.lines().filter_map(|line| line.strip_prefix(".BR ")?.split(' ').next()) {
                let file = format!("{}.1", name.replace("\\-", "-"));
                assert!(files.contains(file.as_str()), "{} refers to {file}", page.file);
            }
        }
    }

    #[test]
    fn page_has_usage_options_and_defaults() {
        let pages = pages();
        let page = |file: &str| &pages.iter().find(|page| page.file == file).unwrap().text;
        let up = page("knarr-up.1");
        for part in [
            "knarr\\-up \\- Run a cluster on this host, in one process\n",
            ".B knarr up [OPTIONS]\n",
            ".B \\-d, \\-\\-background\n",
            ".B \\-\\-secure\\-port SECURE_PORT\nPort of the API server [default: 6443]\n",
            "[possible values: controller\\-manager,",
        ] {
            assert!(up.contains(part), "{part:?} is not in {up}");
        }
        assert!(!page("knarr-down.1").contains("\\-\\-node "), "hidden flags are not documented");
        let root = page("knarr.1");
        assert!(root.contains(".SH CLUSTER COMMANDS\n") && root.contains(".TP\n.B up\nRun a cluster"), "{root}");
        assert!(page("knarr-store-snapshot-save.1").contains(".SH ARGUMENTS\n.TP\n.B FILE\nFile to write\n"));
    }
}
