//! `kubectl __complete`: the candidates for the last word of a command line.
//!
//! The output is that of kubectl, so that its scripts work too: one candidate per line with a description after a tab,
//! then a line with a directive for the shell.

use std::io::Write;

use client::{ListOptions, Target};

use crate::command::{Command, Flag};
use crate::context::Globals;
use crate::flags::{self, Parsed};
use crate::kubeconfig::{Files, Section};
use crate::{Context, Failure, commands};

/// The shell's use of the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// Completes file names if there are no candidates.
    Default = 0,
    NoFiles = 4,
    /// The candidates are extensions of files.
    Extensions = 8,
}

/// The source of the candidates for a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// Candidates with descriptions.
    Fixed(Vec<(String, String)>, Directive),
    Config(Section),
    Types,
    /// The names of objects of a type.
    Names(String),
    Files,
}

/// A command line before its last word.
#[derive(Debug)]
struct Line<'a> {
    path: Vec<&'static Command>,
    args: Vec<&'a str>,
    /// The flag whose value is completed.
    flag: Option<&'static Flag>,
}

/// Prints the candidates for the last of the words after `kubectl`.
pub fn run(words: &[String]) -> Result<(), Failure> {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", [].as_slice()),
    };
    let line = Line::new(before);
    let (flag, prefix) = match (line.flag, last.split_once('=')) {
        (None, Some((name, value))) if last.starts_with('-') => (line.find(name), value),
        (flag, _) => (flag, last),
    };
    let source = match flag {
        Some(flag) => value_source(flag),
        None if last.starts_with('-') => Source::Fixed(line.flags(last), Directive::NoFiles),
        None => line.source(last),
    };
    let context = Context::new(match flags::parse(&commands::ROOT, before) {
        Ok(Parsed::Run(invocation)) => Globals::of(&invocation),
        _ => Globals::default(),
    });
    let (candidates, directive) = match source {
        Source::Fixed(candidates, directive) => (candidates, directive),
        Source::Files => (Vec::new(), Directive::Default),
        Source::Config(section) => {
            let config = Files::of(&context).load().unwrap_or_default();
            let names = config.entries(section).keys().map(|name| (name.clone(), String::new()));
            (names.collect(), Directive::NoFiles)
        }
        live => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            // A server that does not answer gives no candidates.
            let found = runtime.block_on(live_candidates(&context, &live, prefix)).unwrap_or_default();
            (found.into_iter().map(|name| (name, String::new())).collect(), Directive::NoFiles)
        }
    };
    let mut out = context.out();
    for (name, description) in candidates {
        if directive != Directive::Extensions && !name.starts_with(prefix) {
            continue;
        }
        match description.is_empty() {
            true => writeln!(out, "{name}")?,
            false => writeln!(out, "{name}\t{}", description.lines().next().unwrap_or_default())?,
        }
    }
    writeln!(out, ":{}", directive as u8)?;
    out.flush()?;
    writeln!(context.err(), "Completion ended with directive: {}", directive.name())?;
    Ok(())
}

impl Directive {
    const fn name(self) -> &'static str {
        match self {
            Self::Default => "ShellCompDirectiveDefault",
            Self::NoFiles => "ShellCompDirectiveNoFileComp",
            Self::Extensions => "ShellCompDirectiveFilterFileExt",
        }
    }
}

impl<'a> Line<'a> {
    fn new(words: &'a [String]) -> Self {
        let mut line = Self { path: vec![&commands::ROOT], args: Vec::new(), flag: None };
        for word in words {
            if line.flag.take().is_some() {
                continue;
            }
            if word.starts_with('-') && word.len() > 1 {
                let takes_next = !word.contains('=') && (word.starts_with("--") || word.len() == 2);
                line.flag = line.find(word).filter(|flag| takes_next && flag.without_value.is_none());
                continue;
            }
            match line.command().find(word) {
                Some(command) if line.args.is_empty() => line.path.push(command),
                _ => line.args.push(word),
            }
        }
        line
    }

    fn command(&self) -> &'static Command {
        self.path[self.path.len() - 1]
    }

    /// Returns the flag of a word such as `--output`, `--output=x` or `-o`.
    fn find(&self, word: &str) -> Option<&'static Flag> {
        let name = word.split('=').next().unwrap_or(word);
        let mut flags = flags::of(self.command());
        match name.strip_prefix("--") {
            Some(name) => flags.find(|flag| flag.name == name),
            None => {
                let short = name.strip_prefix('-')?.chars().next_back();
                flags.find(|flag| flag.short == short && short.is_some())
            }
        }
    }

    /// Returns the flags of the command that start with a prefix, the global ones first.
    fn flags(&self, prefix: &str) -> Vec<(String, String)> {
        let command = self.command();
        let help = (format!("help for {}", command.name), Some('h'));
        let own: Vec<&Flag> = command.flags.iter().copied().flatten().filter(|flag| !flag.hidden).collect();
        let is_own = |name: &str| own.iter().any(|flag| flag.name == name);
        let describe = |flag: &Flag| (flag.name.to_owned(), flag.short, flag.help.to_owned());
        let mut global: Vec<_> =
            flags::GLOBAL.iter().filter(|flag| !flag.hidden && !is_own(flag.name)).map(describe).collect();
        let mut local: Vec<_> = own.iter().map(|flag| describe(flag)).collect();
        local.push(("help".to_owned(), help.1, help.0));
        if self.path.len() == 1 {
            global.append(&mut local);
        }
        global.sort();
        local.sort();
        let mut out = Vec::new();
        for (name, short, text) in global.into_iter().chain(local) {
            out.push((format!("--{name}"), text.clone()));
            out.extend(short.map(|short| (format!("-{short}"), text)));
        }
        out.retain(|(name, _)| name.starts_with(prefix));
        out
    }

    fn source(&self, last: &str) -> Source {
        let command = self.command();
        if !command.commands.is_empty() && self.args.is_empty() {
            let listed = command.commands.iter().filter(|command| command.group != crate::command::Group::Hidden);
            let mut names: Vec<_> =
                listed.map(|command| (command.name.to_owned(), command.summary.to_owned())).collect();
            names.sort();
            return Source::Fixed(names, Directive::NoFiles);
        }
        let names: Vec<&str> = self.path.iter().skip(1).map(|command| command.name).collect();
        let none = || Source::Fixed(Vec::new(), Directive::NoFiles);
        let first = |source: Source| if self.args.is_empty() { source } else { none() };
        match names.as_slice() {
            ["config", "use-context" | "delete-context" | "rename-context" | "set-context" | "get-contexts"] => {
                first(Source::Config(Section::Contexts))
            }
            ["config", "set-cluster" | "delete-cluster"] => first(Source::Config(Section::Clusters)),
            ["config", "set-credentials" | "delete-user"] => first(Source::Config(Section::Users)),
            ["completion"] => {
                let shells = ["bash", "zsh", "fish"].map(|shell| (shell.to_owned(), String::new()));
                first(Source::Fixed(shells.into(), Directive::NoFiles))
            }
            ["explain"] => first(Source::Types),
            ["cordon" | "uncordon" | "drain"] | ["top", "node"] => first(Source::Names("nodes".to_owned())),
            ["certificate", _] => Source::Names("certificatesigningrequests".to_owned()),
            ["top", "pod"] => first(Source::Names("pods".to_owned())),
            ["logs" | "exec" | "attach" | "port-forward" | "debug"] => {
                if last.contains('/') {
                    self.types_or_names(last)
                } else {
                    first(Source::Names("pods".to_owned()))
                }
            }
            [
                "get" | "describe" | "delete" | "edit" | "label" | "annotate" | "patch" | "wait" | "expose" | "scale"
                | "autoscale" | "taint" | "events",
            ]
            | ["rollout" | "set" | "apply", _] => self.types_or_names(last),
            _ => Source::Files,
        }
    }

    /// Completes a type, then names of that type, or `type/name`.
    fn types_or_names(&self, last: &str) -> Source {
        match (self.args.first(), last.split_once('/')) {
            (Some(resource), _) if !resource.contains('/') => Source::Names((*resource).to_owned()),
            (_, Some((resource, _))) => Source::Names(format!("{resource}/")),
            _ => Source::Types,
        }
    }
}

/// Returns the source of a flag's values.
fn value_source(flag: &Flag) -> Source {
    match flag.name {
        "namespace" => Source::Names("namespaces".to_owned()),
        "context" => Source::Config(Section::Contexts),
        "cluster" => Source::Config(Section::Clusters),
        "user" => Source::Config(Section::Users),
        "filename" => {
            let extensions = ["json", "yaml", "yml"].map(|extension| (extension.to_owned(), String::new()));
            Source::Fixed(extensions.into(), Directive::Extensions)
        }
        // The help names the values: `One of: (json, yaml).`
        // DEVIATION: kubectl completes them for `get` only.
        "output" => match flag.help.split_once("One of: (").and_then(|(_, rest)| rest.split_once(')')) {
            Some((values, _)) => {
                let values = values.split(", ").map(|value| (value.to_owned(), String::new()));
                Source::Fixed(values.collect(), Directive::NoFiles)
            }
            None => Source::Files,
        },
        _ => Source::Files,
    }
}

async fn live_candidates(context: &Context, source: &Source, prefix: &str) -> Result<Vec<String>, Failure> {
    let mapper = context.mapper().await?;
    let Source::Names(resource) = source else {
        // The last of several types is completed.
        let done = prefix.rfind(',').map_or("", |comma| &prefix[..=comma]);
        let mappings = mapper.preferred().await?;
        let readable = mappings.iter().filter(|mapping| mapping.allows("get"));
        let mut names: Vec<_> = readable
            .map(|mapping| match mapping.resource.group.as_str() {
                "" => format!("{done}{}", mapping.resource.plural),
                group => format!("{done}{}.{group}", mapping.resource.plural),
            })
            .collect();
        names.sort();
        return Ok(names);
    };
    let (resource, with_type) = match resource.strip_suffix('/') {
        Some(resource) => (resource, format!("{resource}/")),
        None => (resource.as_str(), String::new()),
    };
    let mapping = mapper.resource(resource).await?;
    let namespace = if mapping.namespaced() { context.namespace()?.name } else { String::new() };
    let target = Target::within(&mapping.resource, namespace.as_str());
    let list = context.client()?.metadata_only().list_all(&target, &ListOptions::default()).await?;
    let name =
        |object: &apimachinery::Value| object.str_at(&["metadata", "name"]).map(|name| format!("{with_type}{name}"));
    Ok(list.items.iter().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().unwrap();
        let line = Line::new(before);
        line.flag.map_or_else(|| line.source(last), value_source)
    }

    #[test]
    fn the_place_of_a_word_selects_its_candidates() {
        assert_eq!(source("config use-context "), Source::Config(Section::Contexts));
        assert_eq!(source("--context "), Source::Config(Section::Contexts));
        assert_eq!(source("-n "), Source::Names("namespaces".to_owned()));
        assert_eq!(source("label "), Source::Types);
        assert_eq!(source("-n x label pods "), Source::Names("pods".to_owned()));
        assert_eq!(source("label pods/"), Source::Names("pods/".to_owned()));
        assert!(
            matches!(source("config set-c"), Source::Fixed(names, _) if names.iter().any(|(name, _)| name == "set-cluster"))
        );
    }

    #[test]
    fn flags_are_completed_with_their_help() {
        let line = Line::new(&[]);
        let found = line.flags("--cont");
        assert_eq!(
            found,
            [("--context".to_owned(), "Context entry of the kubeconfig to use instead of the current one.".to_owned())]
        );
    }
}
