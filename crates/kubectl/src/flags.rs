//! The command line: finds the command and parses its flags with the grammar and messages of kubectl's parser.

mod parse;
mod sets;

use std::time::Duration;

pub use parse::{Parsed, boolean as parse_bool, duration as parse_duration, parse};
pub use sets::*;

use crate::command::{Command, Flag};

/// A command with its flags and arguments.
#[derive(Debug)]
pub struct Invocation {
    pub command: &'static Command,
    /// The names from `kubectl` to the command.
    pub path: Vec<&'static str>,
    /// The arguments that are not flags.
    pub args: Vec<String>,
    /// The number of arguments before `--`.
    pub dash: Option<usize>,
    values: Vec<(&'static Flag, Vec<String>)>,
}

impl Invocation {
    /// Returns the full name of the command: `kubectl create deployment`.
    pub fn name(&self) -> String {
        self.path.join(" ")
    }

    /// Returns the command line: the command, the arguments and then the flags with their values.
    pub fn command_line(&self) -> String {
        let mut line = self.name();
        for arg in &self.args {
            line.push(' ');
            line.push_str(arg);
        }
        for (flag, values) in &self.values {
            for value in values {
                line.push_str(&format!(" --{}={value}", flag.name));
            }
        }
        line
    }

    /// Whether the flag was given.
    pub fn is_set(&self, name: &str) -> bool {
        self.values.iter().any(|(flag, _)| flag.name == name)
    }

    /// Whether the command has this flag.
    pub fn has(&self, name: &str) -> bool {
        find(self.command, name).is_some()
    }

    /// Sets a flag as if it had been given; a repeatable one receives another value.
    ///
    /// # Panics
    /// If the command has no such flag.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let flag = self.declared(name);
        parse::set(&mut self.values, flag, value)
    }

    /// Returns the value of a flag, or its default.
    ///
    /// # Panics
    /// If the command has no such flag.
    pub fn text(&self, name: &str) -> &str {
        self.given(name).map_or_else(|| self.declared(name).default, |values| values.last().map_or("", String::as_str))
    }

    pub fn bool(&self, name: &str) -> bool {
        parse::boolean(self.text(name)).unwrap_or(false)
    }

    pub fn int(&self, name: &str) -> i64 {
        parse::integer(self.text(name)).unwrap_or(0)
    }

    /// Returns a duration; a negative one counts as zero.
    pub fn duration(&self, name: &str) -> Duration {
        let nanos = parse::duration(self.text(name)).unwrap_or(0);
        Duration::from_nanos(nanos.try_into().unwrap_or(0))
    }

    /// Returns the values of a repeatable flag.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.given(name) {
            Some(values) => values.to_vec(),
            None => {
                let default = self.declared(name).default.trim_start_matches('[').trim_end_matches(']');
                default.split(',').filter(|value| !value.is_empty()).map(str::to_owned).collect()
            }
        }
    }

    /// Returns the given values of a repeatable flag; none if it was not given.
    pub fn values(&self, name: &str) -> &[String] {
        self.given(name).unwrap_or_default()
    }

    /// Returns the notices for deprecated flags that were given.
    pub fn deprecated(&self) -> impl Iterator<Item = String> {
        self.values.iter().filter_map(|(flag, _)| {
            flag.deprecated.map(|instead| format!("Flag --{} has been deprecated, {instead}", flag.name))
        })
    }

    fn given(&self, name: &str) -> Option<&[String]> {
        self.values.iter().find(|(flag, _)| flag.name == name).map(|(_, values)| values.as_slice())
    }

    fn declared(&self, name: &str) -> &'static Flag {
        find(self.command, name).unwrap_or_else(|| panic!("{} has no flag --{name}", self.name()))
    }
}

/// Returns all flags of a command: its own before the global ones.
pub fn of(command: &'static Command) -> impl Iterator<Item = &'static Flag> {
    command.flags.iter().copied().flatten().chain(GLOBAL)
}

fn find(command: &'static Command, name: &str) -> Option<&'static Flag> {
    of(command).find(|flag| flag.name == name)
}

#[cfg(test)]
mod tests;
