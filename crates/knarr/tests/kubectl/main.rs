//! Transcripts of kubectl: command lines with their full output, run against an API server of this project.
//!
//! The transcripts are the files `crates/kubectl/tests/transcripts/*.txt`; [`transcript`] describes their form. Each is
//! run with the binary under the name `kubectl`, and its output must be that of the file; `UPDATE=1` rewrites the file.
//! If another kubectl of version 1.32 or later is on `PATH` or in `KUBECTL`, the transcript is also run with it,
//! against a separate server. Its output must be the same.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod completion;
mod mask;
mod real;
#[path = "../kube_apiserver/server.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod server;
#[path = "../common/tmux.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod tmux;
mod transcript;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mask::mask;
use real::Kubectl;
use server::Server;
use transcript::{Step, Transcript};

const KNARR: &str = env!("CARGO_BIN_EXE_knarr");
const TRANSCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kubectl/tests/transcripts");

/// Declares a test for each transcript.
macro_rules! transcripts {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_transcript_is_run() {
            let files = std::fs::read_dir(TRANSCRIPTS).unwrap();
            let files: BTreeSet<String> = files
                .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            let run: BTreeSet<String> = [$(stringify!($name).to_owned()),*].into();
            assert_eq!(files, run);
        }
    };
}

transcripts!(
    annotate,
    apply,
    auth,
    bad_input,
    certificate,
    complete,
    config,
    create,
    delete_replace_and_wait,
    describe,
    edit,
    edit_last_applied,
    get_and_explain,
    kustomize,
    label,
    nodes,
    patch,
    rollout,
    run_and_expose,
    scale,
    set,
    templates,
    top,
);

/// Runs a transcript and compares the output with the file, and with that of another kubectl.
fn check(name: &str) {
    let file = Path::new(TRANSCRIPTS).join(format!("{name}.txt"));
    let expected = Transcript::parse(&std::fs::read_to_string(&file).unwrap());
    let actual = run(&expected, Path::new(KNARR));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, actual.to_string()).unwrap();
    } else {
        compare(&expected, &actual, |_| true, "the transcript and this kubectl");
    }
    if let Some(Kubectl { path, minor }) = Kubectl::find() {
        let reference = run(&expected, &path);
        compare(&reference, &actual, |step| step.since <= minor, &format!("{} and this kubectl", path.display()));
    }
}

/// Runs the commands of a transcript in a separate directory, in which `kubectl` is the given binary.
fn run(transcript: &Transcript, kubectl: &Path) -> Transcript {
    // No controller creates the service accounts that pods would need.
    let server = Server::start_with(&["--disable-admission-plugins", "ServiceAccount", "--allow-privileged"]);
    let dir = server.dir.path();
    let [home, work, bin] = ["home", "work", "bin"].map(|name| dir.join(name));
    for directory in [&home, &work, &bin] {
        std::fs::create_dir(directory).unwrap();
    }
    std::os::unix::fs::symlink(kubectl, bin.join("kubectl")).unwrap();
    let path = std::env::join_paths([bin, PathBuf::from("/usr/bin"), PathBuf::from("/bin")]).unwrap();
    let step = |step: &Step| {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", &step.command]).current_dir(&work).stdin(Stdio::null());
        command.env_clear().env("PATH", &path).env("HOME", &home).env("EDITOR", "true");
        command.env("KUBECONFIG", dir.join("kubeconfig"));
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut process = command.spawn().unwrap();
        // Its writers must be closed for the reader to see the end.
        drop(command);
        let output = std::io::read_to_string(reader).unwrap();
        let code = process.wait().unwrap().code().unwrap_or(-1);
        Step { output: mask(&output, dir), code, ..step.clone() }
    };
    Transcript { preface: transcript.preface.clone(), steps: transcript.steps.iter().map(step).collect() }
}

/// Runs this kubectl against a server.
fn run_kubectl(server: &Server, arguments: &str) {
    let mut command = Command::new(KNARR);
    command.arg("kubectl").args(arguments.split(' ')).env("KUBECONFIG", server.dir.path().join("kubeconfig"));
    let output = command.env("HOME", server.dir.path()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Fails with the differences between two runs, of the commands that `counts` selects.
fn compare(expected: &Transcript, found: &Transcript, counts: impl Fn(&Step) -> bool, what: &str) {
    let mut differences = String::new();
    for (expected, found) in expected.steps.iter().zip(&found.steps).filter(|(step, _)| counts(step)) {
        if (&expected.output, expected.code) != (&found.output, found.code) {
            differences.push_str(&format!("--- expected\n{expected}--- found\n{found}"));
        }
    }
    assert!(differences.is_empty(), "{what} differ:\n{differences}");
}
