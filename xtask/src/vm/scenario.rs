//! Scenarios as data, and their runner: steps in order on temporary VMs.

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

/// Prefix of the directory of a run; the PID follows.
const LAB: &str = "/tmp/knarr-vm-";

/// VMs and the steps on them.
pub(super) struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub machines: &'static [Spec],
    pub steps: &'static [Step],
}

/// An action on a VM that must succeed.
pub(super) struct Step {
    pub machine: &'static str,
    /// The fact that holds if the step succeeds.
    pub claim: &'static str,
    pub action: Action,
    /// Whether later steps depend on this one.
    pub is_required: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Action {
    /// Powers a VM on, copies the binary to it, and waits until it accepts scripts.
    PowerOn,
    /// Powers a VM off without a shutdown.
    PowerOff,
    /// Runs a script that must exit with 0 within this many seconds.
    Run(&'static str, u64),
    /// Runs a script that reboots the VM.
    Boot(&'static str),
}

impl Step {
    /// Returns a step on which later steps depend.
    pub(super) const fn required(machine: &'static str, claim: &'static str, action: Action) -> Self {
        Self { machine, claim, action, is_required: true }
    }

    /// Returns a step whose failure is only counted.
    pub(super) const fn check(
        machine: &'static str,
        claim: &'static str,
        limit_seconds: u64,
        script: &'static str,
    ) -> Self {
        Self { machine, claim, action: Action::Run(script, limit_seconds), is_required: false }
    }
}

impl Scenario {
    /// Runs all steps, prints each, and returns the number of failures.
    pub(super) fn run(&self, image: &Image, program: &Path) -> anyhow::Result<usize> {
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
            let result = execute_action(step.action, machine, image);
            let seconds = started.elapsed().as_secs_f64();
            match result {
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

/// Returns the output of the step, or the reason of its failure.
fn execute_action(action: Action, machine: &mut Machine, image: &Image) -> anyhow::Result<String> {
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
    let result = machine.run(&format!("{PRELUDE}\n{script}"), Duration::from_secs(limit_seconds))?;
    if result.code != 0 {
        bail!("exit code {}\n{}", result.code, result.output);
    }
    Ok(result.output)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("      {line}\n")).collect()
}

/// The directory of a run: disks, sockets, consoles, and the share mounted as `/lab`. Removed on drop.
struct Lab {
    dir: PathBuf,
    share: PathBuf,
}

impl Lab {
    fn open(program: &Path) -> anyhow::Result<Self> {
        remove_abandoned();
        let dir = PathBuf::from(format!("{LAB}{}", std::process::id()));
        let lab = Self { share: dir.join("share"), dir };
        // Fails if another user has created the directory: its name can be guessed.
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

/// Removes directories of killed runs.
fn remove_abandoned() {
    let entries = fs::read_dir("/tmp").into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let process = path.to_str().and_then(|path| path.strip_prefix(LAB));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            fs::remove_dir_all(&path).ok();
        }
    }
}
