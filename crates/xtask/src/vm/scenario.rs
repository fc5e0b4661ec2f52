//! Scenarios as data, and what runs them: steps in order on machines that exist for as long as it takes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::image::Image;
use super::machine::{Machine, Spec};
use super::network;

/// Prepended to every script.
const PRELUDE: &str = include_str!("prelude.sh");

/// Where machines live while a scenario runs; the number of the process follows.
const LAB: &str = "/tmp/knarr-vm-";

/// Machines and what is done with them.
pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub machines: &'static [Spec],
    pub steps: &'static [Step],
}

/// One thing that is done on a machine and must come true.
pub struct Step {
    pub machine: &'static str,
    /// What holds if the step succeeds.
    pub claim: &'static str,
    pub action: Action,
    /// True if nothing after it makes sense without it.
    pub is_required: bool,
}

/// What a step does.
#[derive(Clone, Copy)]
pub enum Action {
    /// Switches a machine on, copies the program to it, and waits until it takes scripts.
    PowerOn,
    /// Pulls the plug.
    PowerOff,
    /// Runs a script that must exit with 0 within so many seconds.
    Run(&'static str, u64),
    /// Runs a script that makes the machine boot again.
    Boot(&'static str),
}

impl Step {
    /// A step without which the rest makes no sense.
    pub const fn required(machine: &'static str, claim: &'static str, action: Action) -> Self {
        Self { machine, claim, action, is_required: true }
    }

    /// A step whose failure is counted.
    pub const fn check(machine: &'static str, claim: &'static str, limit_seconds: u64, script: &'static str) -> Self {
        Self { machine, claim, action: Action::Run(script, limit_seconds), is_required: false }
    }
}

impl Scenario {
    /// Runs all steps, prints each, and returns how many failed.
    pub fn run(&self, image: &Image, program: &Path) -> anyhow::Result<usize> {
        let lab = Lab::open(program)?;
        let ports = network::open_hub(&lab.dir, self.machines.len())?;
        let mut machines = BTreeMap::new();
        for (spec, port) in self.machines.iter().zip(ports) {
            machines.insert(spec.name, Machine::new(spec, image, &lab.dir, &lab.share, port)?);
        }
        let mut failures = 0;
        for step in self.steps {
            let machine = machines.get_mut(step.machine).with_context(|| format!("no machine {}", step.machine))?;
            let started = Instant::now();
            let ended = perform(step.action, machine, image);
            let seconds = started.elapsed().as_secs_f64();
            match ended {
                Ok(output) => {
                    println!("ok    {}: {} ({seconds:.0} s)", step.machine, step.claim);
                    print!("{}", indented(&output));
                }
                Err(error) => {
                    failures += 1;
                    println!("FAIL  {}: {} ({seconds:.0} s)", step.machine, step.claim);
                    print!("{}", indented(&format!("{error:#}")));
                    if step.is_required {
                        println!("      the remaining steps need this one");
                        break;
                    }
                }
            }
        }
        Ok(failures)
    }
}

/// Returns what the step printed, or why it failed.
fn perform(action: Action, machine: &mut Machine, image: &Image) -> anyhow::Result<String> {
    match action {
        Action::PowerOn => {
            machine.power_on(image)?;
            run(machine, "[ -e /usr/local/bin/knarr ] || install -m 0755 /lab/knarr /usr/local/bin/knarr", 300)
        }
        Action::PowerOff => machine.power_off().map(|()| String::new()),
        Action::Run(script, limit_seconds) => run(machine, script, limit_seconds),
        Action::Boot(script) => machine.run_and_boot(script).map(|()| String::new()),
    }
}

fn run(machine: &mut Machine, script: &str, limit_seconds: u64) -> anyhow::Result<String> {
    let ended = machine.run(&format!("{PRELUDE}\n{script}"), Duration::from_secs(limit_seconds))?;
    if ended.code != 0 {
        bail!("exit code {}\n{}", ended.code, ended.output);
    }
    Ok(ended.output)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("      {line}\n")).collect()
}

/// The directory of a run: disks, sockets, consoles, and what machines see as `/lab`. Removed when dropped.
struct Lab {
    dir: PathBuf,
    share: PathBuf,
}

impl Lab {
    fn open(program: &Path) -> anyhow::Result<Self> {
        remove_abandoned();
        let dir = PathBuf::from(format!("{LAB}{}", std::process::id()));
        let lab = Self { share: dir.join("share"), dir };
        // Fails if somebody else made it: the name can be guessed.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&lab.dir)
            .with_context(|| format!("cannot create {}", lab.dir.display()))?;
        fs::create_dir(&lab.share)?;
        fs::copy(program, lab.share.join("knarr")).with_context(|| format!("cannot copy {}", program.display()))?;
        Ok(lab)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// Removes what runs left that were killed.
fn remove_abandoned() {
    let entries = fs::read_dir("/tmp").into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let process = path.to_str().and_then(|path| path.strip_prefix(LAB));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            fs::remove_dir_all(&path).ok();
        }
    }
}
