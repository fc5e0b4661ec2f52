//! `cargo xtask vm`: clusters on Debian virtual machines, emulated by qemu.
//!
//! A scenario is a list of steps on named VMs. The steps are shell scripts that run inside a VM and exit with 0 if
//! their claim holds. VMs are built from Debian's packages at run time; only a disk image is cached below `target`.

mod ha;
mod image;
mod install;
mod join;
mod machine;
mod network;
mod node;
mod reboot;
mod scenario;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use crate::process::{self, Package};
use image::Image;
use scenario::Scenario;

/// Packages needed to build and run a VM.
const PACKAGES: &[Package] = &[
    ("mke2fs", "e2fsprogs"),
    ("mmdebstrap", "mmdebstrap"),
    ("qemu-img", "qemu-utils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("setpriv", "util-linux"),
];

/// All scenarios, in the order in which `all` runs them.
const SCENARIOS: &[&Scenario] =
    &[&node::SCENARIO, &install::SCENARIO, &reboot::SCENARIO, &join::SCENARIO, &ha::SCENARIO];

/// Parsed command line.
struct Options {
    scenarios: Vec<&'static Scenario>,
    program: Option<PathBuf>,
    fresh: bool,
}

/// Runs the named scenarios and fails if a check of one of them failed.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let options = parse(args)?;
    process::install_missing(PACKAGES)?;
    let target = process::target_dir()?;
    let program = match options.program {
        Some(program) => program,
        None => {
            process::cargo(&["build", "--locked", "--package", "knarr"], &[])?;
            target.join("debug/knarr")
        }
    };
    ensure!(program.is_file(), "{} is not a file", program.display());
    let image = Image::open_or_build(&target.join("vm"), options.fresh)?;
    let mut failed = Vec::new();
    for scenario in options.scenarios {
        println!("── {}: {}", scenario.name, scenario.about);
        let started = Instant::now();
        let failures = scenario.run(&image, &program)?;
        println!("── {}: {failures} checks failed, {:.0} s", scenario.name, started.elapsed().as_secs_f64());
        if failures > 0 {
            failed.push(scenario.name);
        }
    }
    ensure!(failed.is_empty(), "checks failed in: {}", failed.join(", "));
    Ok(())
}

fn parse(args: &[String]) -> anyhow::Result<Options> {
    let mut options = Options { scenarios: Vec::new(), program: None, fresh: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "all" => options.scenarios.extend(SCENARIOS),
            "--fresh" => options.fresh = true,
            "--program" => {
                let path = Path::new(args.next().context("--program needs the path of a knarr binary")?);
                options.program = Some(path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?);
            }
            name => match SCENARIOS.iter().find(|scenario| scenario.name == name) {
                Some(scenario) => options.scenarios.push(scenario),
                None => bail!("unknown scenario {name:?}; choose node, install, join, ha, reboot or all"),
            },
        }
    }
    ensure!(!options.scenarios.is_empty(), "usage: cargo xtask vm node|install|join|ha|reboot|all");
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_selected_by_name_and_unknown_ones_are_rejected() {
        let names = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            parse(&args).map(|options| options.scenarios.iter().map(|scenario| scenario.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["join", "--fresh"]).unwrap(), ["join"]);
        assert_eq!(names(&["all"]).unwrap(), ["node", "install", "reboot", "join", "ha"]);
        assert!(names(&["nodes"]).is_err());
        assert!(names(&[]).is_err());
    }

    #[test]
    fn steps_refer_to_machines_of_their_scenario() {
        for scenario in SCENARIOS {
            for step in scenario.steps {
                assert!(
                    scenario.machines.iter().any(|machine| machine.name == step.machine),
                    "{}: {}",
                    scenario.name,
                    step.claim
                );
            }
        }
    }
}
