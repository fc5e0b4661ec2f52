//! kubectl: a client of any Kubernetes cluster with the commands, output and exit codes of kubectl 1.36.
//!
//! A command is a row of the table in [`commands`] and a module below it. [`flags`] parses the command line,
//! [`Context`] provides configuration, client and types of the server on request, [`resources`] resolves the objects of
//! a command, and [`mod@print`] turns objects into text without side effects.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the macros panic when standard output is closed; use `output`"
)]

pub mod apply;
pub mod cache_file;
pub mod changes;
pub mod command;
pub mod commands;
pub mod completion;
pub mod context;
pub mod describe;
pub mod failure;
pub mod flags;
pub mod generate;
pub mod help;
pub mod http_cache;
pub mod kubeconfig;
pub mod kuberc;
pub mod kustomize;
pub mod man;
pub mod mapper;
pub mod output;
pub mod plugins;
pub mod pods;
pub mod print;
pub mod request;
pub mod resources;
pub mod stream;
pub mod transport;
pub mod wait;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

pub use context::{Context, Namespace};
pub use failure::Failure;
pub use flags::Invocation;
pub use mapper::{Mapper, Mapping};

use command::Command;
use context::Globals;
use flags::Parsed;
use kuberc::Preference;

/// The version of Kubernetes whose kubectl this crate implements.
pub const VERSION: &str = "v1.36.4";

/// Runs kubectl with the arguments after the program name, and returns the exit code.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let args: Vec<String> = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                // Messages of servers and names in archives are untrusted.
                let _ = writeln!(std::io::stderr().lock(), "{}", print::escape_terminal(&text));
            }
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: &[String]) -> Result<(), Failure> {
    // The words of a command line that is not complete cannot be parsed as one.
    if let Some((command, words)) = args.split_first()
        && let Some(request) = completion::Request::of(command)
    {
        return completion::run(request, words);
    }
    let preference = kuberc::load(args)?.unwrap_or_default();
    // `create` is the only command whose subcommands may be plugins.
    if let [create, subcommand, ..] = args
        && create == "create"
        && !subcommand.starts_with('-')
        && commands::path(&["kubectl", create, subcommand]).len() == 2
    {
        plugins::run(args, 2)?;
    }
    match flags::parse(&commands::ROOT, args)? {
        Parsed::Help(path) => show(&help::help(&path, &plugin_names(&path))),
        Parsed::Unknown { name, args, .. } if name == "help" => help_for(&args),
        Parsed::Unknown { name, at, args: rest } => {
            if let Some(alias) = preference.aliases.iter().find(|alias| alias.name == name) {
                return run_alias(&preference, alias, args, at);
            }
            if let Some(flag) = args.first().filter(|arg| arg.starts_with('-')) {
                return Err(Failure::plain(format!("Error: flags cannot be placed before plugin name: {flag}")));
            }
            let unknown = Failure::new(commands::unknown(&name));
            plugins::run(&[vec![name], rest].concat(), 1)?;
            Err(unknown)
        }
        Parsed::Run(invocation) if kuberc::is_disabled() && invocation.path.get(1) == Some(&"kuberc") => {
            Err(Failure::new(commands::unknown("kuberc")))
        }
        Parsed::Run(invocation) if kuberc::is_disabled() && invocation.is_set("kuberc") => {
            Err(Failure::new(format!("unknown flag: --kuberc\nSee '{} --help' for usage.", invocation.name())))
        }
        Parsed::Run(invocation) => run_with_defaults(&preference, invocation, None),
    }
}

fn run_alias(preference: &Preference, alias: &kuberc::Alias, args: &[String], at: usize) -> Result<(), Failure> {
    let args = kuberc::expand_alias(&commands::ROOT, alias, args, at).map_err(kuberc::failure)?;
    match flags::parse(&commands::ROOT, &args)? {
        Parsed::Help(path) => show(&help::help(&path, &[])),
        Parsed::Unknown { name, .. } => Err(Failure::new(commands::unknown(&name))),
        Parsed::Run(mut invocation) => {
            kuberc::set_options(alias, &mut invocation).map_err(kuberc::failure)?;
            run_with_defaults(preference, invocation, Some(&alias.name))
        }
    }
}

fn run_with_defaults(preference: &Preference, mut invocation: Invocation, alias: Option<&str>) -> Result<(), Failure> {
    let warnings = kuberc::apply_defaults(&commands::ROOT, preference, &mut invocation, alias);
    for notice in warnings.map_err(kuberc::failure)?.into_iter().chain(invocation.deprecated()) {
        let _ = writeln!(std::io::stderr().lock(), "{notice}");
    }
    let globals = Globals { plugin_policy: preference.plugin_policy.clone(), ..Globals::of(&invocation) };
    run_command(globals, &invocation)
}

fn run_command(globals: Globals, invocation: &Invocation) -> Result<(), Failure> {
    let Some(run) = invocation.command.run else {
        if let Some(name) = invocation.args.first() {
            return Err(Failure::usage(&invocation.name(), format_args!("unknown command {name:?}")));
        }
        let path = commands::path(&invocation.path);
        let text = help::help(&path, &plugin_names(&path));
        if path.len() == 1 {
            return show(&text);
        }
        // A command that only has subcommands fails without one. Of these, only `rollout` prints to standard output.
        if invocation.command.name == "rollout" {
            show(&text)?;
        } else {
            std::io::stderr().lock().write_all(help::for_terminal(&text).as_bytes())?;
        }
        return Err(Failure::silent(1));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let context = Context::new(globals);
    let done = runtime.block_on(run(&context, invocation));
    let flushed = context.out().flush();
    // A blocked read of standard input must not keep the process running.
    runtime.shutdown_background();
    done?;
    flushed?;
    match (context.globals().warnings_as_errors, context.warnings()) {
        (true, 1) => Err(Failure::new("1 warning received")),
        (true, count) if count > 1 => Err(Failure::new(format!("{count} warnings received"))),
        _ => Ok(()),
    }
}

fn help_for(args: &[String]) -> Result<(), Failure> {
    let mut names = vec!["kubectl"];
    names.extend(args.iter().map(String::as_str).take_while(|arg| !arg.starts_with('-')));
    let path = commands::path(&names);
    // As with kubectl, words after the name of a command do not matter.
    if path.len() == 1 && names.len() > 1 {
        let topics: Vec<String> = args.iter().map(|arg| format!("`{arg}`")).collect();
        let usage = help::help(&path[..1], &plugin_names(&path[..1]));
        let usage = usage.strip_prefix(commands::ROOT.description).unwrap_or(&usage);
        let _ = write!(std::io::stderr().lock(), "Unknown help topic [{}]\n{usage}", topics.join(" "));
        return Ok(());
    }
    show(&help::help(&path, &plugin_names(&path)))
}

/// Returns the names of plugins for the help of `kubectl` itself. The help of a command shows none.
fn plugin_names(path: &[&Command]) -> Vec<String> {
    match path {
        [_] => plugins::names(|name| commands::ROOT.find(name).is_some()),
        _ => Vec::new(),
    }
}

fn show(text: &str) -> Result<(), Failure> {
    let mut out = output::Output::stdout();
    out.write_all(help::for_terminal(text).as_bytes())?;
    out.flush()?;
    Ok(())
}
