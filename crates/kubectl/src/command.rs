//! Commands as static tables: names, help texts, flags and the function that runs them.

use futures_util::future::LocalBoxFuture;

use crate::{Context, Failure, Invocation};

/// A command or a subcommand.
#[derive(Debug)]
pub struct Command {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub group: Group,
    /// The line in the list of commands.
    pub summary: &'static str,
    /// The first paragraphs of the help; the summary if empty.
    pub description: &'static str,
    /// The examples, indented by two spaces; empty for none.
    pub examples: &'static str,
    /// The usage line, from `kubectl` to `[options]`.
    pub usage: &'static str,
    /// The flags in addition to the global ones, in any order.
    pub flags: &'static [&'static [Flag]],
    pub commands: &'static [&'static Command],
    /// `None` for a command that only has subcommands.
    pub run: Option<Run>,
}

/// Runs a command.
pub type Run = for<'a> fn(&'a Context, &'a Invocation) -> LocalBoxFuture<'a, Result<(), Failure>>;

/// The section of `kubectl --help` that lists a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    BasicBeginner,
    BasicIntermediate,
    Deploy,
    ClusterManagement,
    Troubleshooting,
    Advanced,
    Settings,
    Other,
    /// Not listed.
    Hidden,
}

/// A flag of a command.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub kind: FlagKind,
    /// The default in its text form; a list is written `[a,b]`.
    pub default: &'static str,
    /// The value of the flag if it is given without `=value`; `None` if it needs a value.
    pub without_value: Option<&'static str>,
    pub help: &'static str,
    pub hidden: bool,
    /// The last part of the deprecation warning, which is printed when the flag is used.
    pub deprecated: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagKind {
    Bool,
    Int,
    /// An integer of 32 bits.
    Int32,
    Text,
    Duration,
    /// Repeatable, and each value is a comma-separated list.
    List,
    /// Repeatable. Commas have no meaning.
    Array,
}

impl Command {
    /// A command without any properties, for struct update syntax.
    pub const EMPTY: Self = Self {
        name: "",
        aliases: &[],
        group: Group::Other,
        summary: "",
        description: "",
        examples: "",
        usage: "",
        flags: &[],
        commands: &[],
        run: None,
    };

    /// Returns the subcommand with this name or alias.
    pub fn find(&self, name: &str) -> Option<&'static Command> {
        self.commands.iter().find(|command| command.name == name || command.aliases.contains(&name)).copied()
    }
}

impl Group {
    /// The groups in the order of the help, before the plugins.
    pub const LISTED: [Self; 7] = [
        Self::BasicBeginner,
        Self::BasicIntermediate,
        Self::Deploy,
        Self::ClusterManagement,
        Self::Troubleshooting,
        Self::Advanced,
        Self::Settings,
    ];

    pub const fn heading(self) -> &'static str {
        match self {
            Self::BasicBeginner => "Basic Commands (Beginner):",
            Self::BasicIntermediate => "Basic Commands (Intermediate):",
            Self::Deploy => "Deploy Commands:",
            Self::ClusterManagement => "Cluster Management Commands:",
            Self::Troubleshooting => "Troubleshooting and Debugging Commands:",
            Self::Advanced => "Advanced Commands:",
            Self::Settings => "Settings Commands:",
            Self::Other => "Other Commands:",
            Self::Hidden => "",
        }
    }
}

impl Flag {
    const fn new(name: &'static str, kind: FlagKind, default: &'static str, help: &'static str) -> Self {
        Self { name, short: None, kind, default, without_value: None, help, hidden: false, deprecated: None }
    }

    /// A switch that is off by default.
    pub const fn bool(name: &'static str, help: &'static str) -> Self {
        let mut flag = Self::new(name, FlagKind::Bool, "false", help);
        flag.without_value = Some("true");
        flag
    }

    pub const fn int(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, FlagKind::Int, default, help)
    }

    pub const fn int32(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, FlagKind::Int32, default, help)
    }

    pub const fn text(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, FlagKind::Text, default, help)
    }

    pub const fn duration(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, FlagKind::Duration, default, help)
    }

    pub const fn list(name: &'static str, help: &'static str) -> Self {
        Self::new(name, FlagKind::List, "[]", help)
    }

    pub const fn array(name: &'static str, help: &'static str) -> Self {
        Self::new(name, FlagKind::Array, "[]", help)
    }

    #[must_use]
    pub const fn short(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    #[must_use]
    pub const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    #[must_use]
    pub const fn without_value(mut self, value: &'static str) -> Self {
        self.without_value = Some(value);
        self
    }

    #[must_use]
    pub const fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    #[must_use]
    pub const fn deprecated(mut self, instead: &'static str) -> Self {
        self.hidden = true;
        self.deprecated = Some(instead);
        self
    }
}
