//! `kubectl __complete`: the candidates for the last word of a command line.
//!
//! The output is that of kubectl, so that its scripts work too: one candidate per line with a description after a tab,
//! then a line with a directive for the shell.
//!
//! ```text
//!   words ──> Line ──> Source ──> candidates        fixed ones
//!                            └──> live::candidates  those of the server
//! ```

mod arguments;
mod live;

use std::io::Write;

use arguments::Arguments;
use live::Query;

use crate::command::{Command, Flag, Group};
use crate::context::Globals;
use crate::flags::{self, Parsed};
use crate::kubeconfig::{Files, Section};
use crate::{Context, Failure, commands};

/// The shell's use of the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// Completes file names if there are no candidates.
    Default = 0,
    /// Completes file names if there are no candidates, and appends no space to a candidate.
    NoSpace = 2,
    NoFiles = 4,
    NoSpaceNoFiles = 6,
    /// The candidates are extensions of files.
    Extensions = 8,
}

/// The source of the candidates for a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// Candidates with descriptions.
    Fixed(Vec<(String, String)>, Directive),
    Config(Section),
    Live(Live),
    Files,
}

/// Candidates of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Live {
    query: Query,
    /// The prefix of each candidate, from the command line: `pods/`.
    before: String,
    /// The suffix of each candidate.
    after: &'static str,
    /// Words that are on the command line already.
    used: Vec<String>,
    directive: Directive,
}

/// A command line before its last word.
#[derive(Debug)]
struct Line<'a> {
    path: Vec<&'static Command>,
    args: Vec<&'a str>,
    /// The flag whose value is completed.
    flag: Option<&'static Flag>,
}

/// The hidden commands that complete a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Candidates with descriptions.
    Described,
    Names,
}

impl Request {
    /// Returns the request of a hidden command.
    pub fn of(command: &str) -> Option<Self> {
        match command {
            "__complete" => Some(Self::Described),
            "__completeNoDesc" => Some(Self::Names),
            _ => None,
        }
    }
}

/// Prints the candidates for the last of the words after `kubectl`.
pub fn run(request: Request, words: &[String]) -> Result<(), Failure> {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", [].as_slice()),
    };
    // The words after `help` name a command.
    let (is_topic, before) = match before {
        [first, topic @ ..] if first == "help" => (true, topic),
        _ => (false, before),
    };
    let line = Line::new(before);
    let (flag, prefix) = match (line.flag, last.split_once('=')) {
        (None, Some((name, value))) if last.starts_with('-') => (line.find(name), value),
        (flag, _) => (flag, last),
    };
    let source = match flag {
        _ if is_topic => line.commands(),
        Some(flag) => line.value_source(flag),
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
        Source::Live(live) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            // There are no candidates if the server does not respond.
            let found = runtime.block_on(live::candidates(&context, &live.query, prefix)).unwrap_or_default();
            live.complete(&found, prefix)
        }
    };
    let is_offered = |(name, _): &(String, String)| directive == Directive::Extensions || name.starts_with(prefix);
    let mut offered: Vec<_> = candidates.into_iter().filter(is_offered).collect();
    if request == Request::Names {
        offered.iter_mut().for_each(|(_, description)| description.clear());
    }
    write(&mut context.out(), &mut context.err(), &offered, directive)?;
    Ok(())
}

/// Writes candidates with their descriptions and the directive in the form that the scripts of
/// [`commands::completion`] read.
pub fn write(
    out: &mut impl Write,
    err: &mut impl Write,
    candidates: &[(String, String)],
    directive: Directive,
) -> std::io::Result<()> {
    for (name, description) in candidates {
        match description.is_empty() {
            true => writeln!(out, "{name}")?,
            false => writeln!(out, "{name}\t{}", description.lines().next().unwrap_or_default())?,
        }
    }
    writeln!(out, ":{}", directive as u8)?;
    out.flush()?;
    writeln!(err, "Completion ended with directive: {}", directive.name())
}

impl Directive {
    const fn name(self) -> &'static str {
        match self {
            Self::Default => "ShellCompDirectiveDefault",
            Self::NoSpace => "ShellCompDirectiveNoSpace",
            Self::NoSpaceNoFiles => "ShellCompDirectiveNoSpace, ShellCompDirectiveNoFileComp",
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

    /// Returns the subcommands of the command.
    fn commands(&self) -> Source {
        let listed = self.command().commands.iter().filter(|command| command.group != Group::Hidden);
        let mut names: Vec<_> = listed.map(|command| (command.name.to_owned(), command.summary.to_owned())).collect();
        names.sort();
        Source::Fixed(names, Directive::NoFiles)
    }

    fn source(&self, last: &str) -> Source {
        let command = self.command();
        if !command.commands.is_empty() && self.args.is_empty() {
            return self.commands();
        }
        let names: Vec<&str> = self.path.iter().skip(1).map(|command| command.name).collect();
        match (arguments::of(&names), self.args.as_slice()) {
            (Arguments::Files, _) => Source::Files,
            (Arguments::Entry(section), []) => Source::Config(section),
            (Arguments::Shell, []) => {
                let shells = commands::completion::SHELLS.map(|shell| (shell.to_owned(), String::new()));
                Source::Fixed(shells.into(), Directive::NoFiles)
            }
            (Arguments::Type, []) => Live::new(Query::Types).into(),
            (Arguments::Name(resource), []) => Live::new(Query::Names(resource.to_owned())).into(),
            (Arguments::Names(resource), used) => Live::new(Query::Names(resource.to_owned())).without(used).into(),
            (Arguments::Objects(types), used) => objects(types, used, last),
            (Arguments::Object(types), used) if used.len() <= 1 && !used.iter().any(|word| word.contains('/')) => {
                objects(types, used, last)
            }
            (Arguments::Pod | Arguments::PodAndContainer | Arguments::PodAndPort, []) => match last.split_once('/') {
                Some((resource, _)) => Live::with_type(resource).into(),
                None => Live::new(Query::Pods).into(),
            },
            (Arguments::PodAndContainer, [pod]) => Live::new(Query::Containers((*pod).to_owned())).into(),
            (Arguments::PodAndPort, [pod]) => Live::new(Query::Ports((*pod).to_owned())).into(),
            (Arguments::Copied, []) if !last.starts_with(['/', '.', '~']) && !last.contains(':') => {
                Live { directive: Directive::NoSpace, ..Live::new(Query::Copied) }.into()
            }
            (Arguments::Copied, _) => Source::Fixed(Vec::new(), Directive::NoSpace),
            _ => Source::Fixed(Vec::new(), Directive::NoFiles),
        }
    }

    /// Returns the source of a flag's values.
    fn value_source(&self, flag: &Flag) -> Source {
        let fixed = |values: &[&str], directive| {
            Source::Fixed(values.iter().map(|value| ((*value).to_owned(), String::new())).collect(), directive)
        };
        match flag.name {
            "namespace" => Live::new(Query::Names("namespaces".to_owned())).into(),
            "context" => Source::Config(Section::Contexts),
            "cluster" => Source::Config(Section::Clusters),
            "user" => Source::Config(Section::Users),
            "container" => match self.args.first() {
                Some(pod) => Live::new(Query::Containers((*pod).to_owned())).into(),
                None => fixed(&[], Directive::NoFiles),
            },
            "subresource" => fixed(&["status", "scale", "resize"], Directive::NoFiles),
            "filename" => fixed(&["json", "yaml", "yml"], Directive::Extensions),
            // The help names the values: `One of: (json, yaml).`
            // DEVIATION: kubectl completes them for `get` only.
            "output" => match flag.help.split_once("One of: (").and_then(|(_, rest)| rest.split_once(')')) {
                Some((values, _)) => fixed(&values.split(", ").collect::<Vec<_>>(), Directive::NoFiles),
                None => Source::Files,
            },
            _ => Source::Files,
        }
    }
}

/// Completes a type and then names of that type, or `TYPE/NAME` any number of times.
fn objects(types: &[&str], used: &[&str], last: &str) -> Source {
    if let Some((resource, names)) = used.split_first()
        && !resource.contains('/')
    {
        return Live::new(Query::Names((*resource).to_owned())).without(names).into();
    }
    if let Some((resource, _)) = last.split_once('/') {
        return Live::with_type(resource).without(used).into();
    }
    // A first word with a slash requires one in all words.
    let (after, directive) = if used.is_empty() { ("", Directive::NoFiles) } else { ("/", Directive::NoSpaceNoFiles) };
    if types.is_empty() {
        return Live { after, directive, ..Live::new(Query::Types) }.into();
    }
    let candidates = types.iter().map(|name| (format!("{name}{after}"), String::new()));
    Source::Fixed(candidates.collect(), directive)
}

impl Live {
    fn new(query: Query) -> Self {
        Self { query, before: String::new(), after: "", used: Vec::new(), directive: Directive::NoFiles }
    }

    /// Names of a type after `TYPE/`.
    fn with_type(resource: &str) -> Self {
        Self { before: format!("{resource}/"), ..Self::new(Query::Names(resource.to_owned())) }
    }

    fn without(self, used: &[&str]) -> Self {
        Self { used: used.iter().map(|word| (*word).to_owned()).collect(), ..self }
    }

    /// Returns the candidates for a word with the shell's directive.
    fn complete(&self, found: &[String], word: &str) -> (Vec<(String, String)>, Directive) {
        let candidates: Vec<(String, String)> = found
            .iter()
            .map(|name| format!("{}{name}{}", self.before, self.after))
            .filter(|name| name.starts_with(word) && !self.used.contains(name))
            .map(|name| (name, String::new()))
            .collect();
        // A type of objects with pods is continued, a pod is complete.
        let only_types = candidates.iter().all(|(name, _)| name.ends_with('/'));
        match self.query {
            Query::Pods if only_types => (candidates, Directive::NoSpaceNoFiles),
            _ => (candidates, self.directive),
        }
    }
}

impl From<Live> for Source {
    fn from(live: Live) -> Self {
        Self::Live(live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().unwrap();
        let line = Line::new(before);
        line.flag.map_or_else(|| line.source(last), |flag| line.value_source(flag))
    }

    fn names(resource: &str) -> Source {
        Live::new(Query::Names(resource.to_owned())).into()
    }

    #[test]
    fn position_of_a_word_selects_its_candidates() {
        assert_eq!(source("config use-context "), Source::Config(Section::Contexts));
        assert_eq!(source("--context "), Source::Config(Section::Contexts));
        assert_eq!(source("-n "), names("namespaces"));
        assert_eq!(source("label "), Live::new(Query::Types).into());
        assert_eq!(source("-n x label pods "), names("pods"));
        assert_eq!(source("label pods a "), Live::new(Query::Names("pods".to_owned())).without(&["a"]).into());
        assert_eq!(source("label pods/"), Live::with_type("pods").into());
        assert_eq!(source("exec "), Live::new(Query::Pods).into());
        assert_eq!(source("exec web -c "), Live::new(Query::Containers("web".to_owned())).into());
        assert_eq!(source("logs web "), Live::new(Query::Containers("web".to_owned())).into());
        assert_eq!(source("port-forward svc/web "), Live::new(Query::Ports("svc/web".to_owned())).into());
        assert_eq!(source("drain node "), Source::Fixed(Vec::new(), Directive::NoFiles));
        assert!(
            matches!(source("config set-c"), Source::Fixed(names, _) if names.iter().any(|(name, _)| name == "set-cluster"))
        );
    }

    #[test]
    fn types_after_an_object_continue_with_a_slash() {
        let Source::Live(live) = source("get pods/a ") else { panic!("types of the server") };
        let expect = (vec![("pods/".to_owned(), String::new())], Directive::NoSpaceNoFiles);
        assert_eq!(live.complete(&["pods".to_owned(), "nodes".to_owned()], "po"), expect);
        let expect = vec![("node/".to_owned(), String::new())];
        assert_eq!(source("taint node/a "), Source::Fixed(expect, Directive::NoSpaceNoFiles));
        assert_eq!(source("rollout status deployment/a "), Source::Fixed(Vec::new(), Directive::NoFiles));
    }

    #[test]
    fn pods_are_complete_and_types_of_pods_are_not() {
        let live = Live::new(Query::Pods);
        let found = ["web".to_owned(), "pods/".to_owned()];
        assert_eq!(live.complete(&found, "w"), (vec![("web".to_owned(), String::new())], Directive::NoFiles));
        assert_eq!(live.complete(&found, "p"), (vec![("pods/".to_owned(), String::new())], Directive::NoSpaceNoFiles));
    }

    #[test]
    fn words_on_the_command_line_are_not_candidates() {
        let live = Live::with_type("pods").without(&["pods/a"]);
        let (found, _) = live.complete(&["a".to_owned(), "b".to_owned()], "pods/");
        assert_eq!(found, [("pods/b".to_owned(), String::new())]);
    }

    #[test]
    fn requests_are_named_by_hidden_commands() {
        assert_eq!(Request::of("__complete"), Some(Request::Described));
        assert_eq!(Request::of("__completeNoDesc"), Some(Request::Names));
        assert_eq!(Request::of("get"), None);
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
