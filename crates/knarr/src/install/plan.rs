//! The steps of an installation and of its removal, as data.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use apimachinery::{Object, Value, json, yaml};
use kubectl::commands::completion::{SHELLS, script};

use super::options::Service;
use crate::join::token_args;
use crate::man;
use crate::service_unit as unit;
use crate::up::DATA_DIR_MODE;

/// The installed binary.
pub(super) const PROGRAM: &str = "/usr/local/bin/knarr";
/// The drop-in file with the flags of `knarr install`.
pub(super) const SETTINGS: &str = "/etc/knarr/config.d/install.yaml";
/// The record of an installation, which `knarr uninstall` reads.
pub(super) const RECORD: &str = "/usr/local/share/knarr/install.json";
const SHARE: &str = "/usr/local/share";
const MODE_DIR: u32 = 0o755;
const MODE_PROGRAM: u32 = 0o755;
const MODE_FILE: u32 = 0o644;
const MODE_SECRET: u32 = 0o600;

/// Service managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Init {
    Systemd,
    Openrc,
}

impl Init {
    /// Returns the path of the service.
    pub(super) const fn service(self) -> &'static str {
        match self {
            Self::Systemd => "/etc/systemd/system/knarr.service",
            Self::Openrc => "/etc/init.d/knarr",
        }
    }

    /// Returns the link that starts the service at boot.
    const fn enabled(self) -> &'static str {
        match self {
            Self::Systemd => "/etc/systemd/system/multi-user.target.wants/knarr.service",
            Self::Openrc => "/etc/runlevels/default/knarr",
        }
    }

    const fn reload(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Systemd => Some(&["systemctl", "daemon-reload"]),
            Self::Openrc => None,
        }
    }

    const fn restart(self) -> &'static [&'static str] {
        match self {
            Self::Systemd => &["systemctl", "restart", "knarr.service"],
            Self::Openrc => &["rc-service", "knarr", "restart"],
        }
    }

    const fn stop(self) -> &'static [&'static str] {
        match self {
            Self::Systemd => &["systemctl", "stop", "knarr.service"],
            Self::Openrc => &["rc-service", "knarr", "stop"],
        }
    }

    /// Returns the file that the service writes its output to.
    const fn log_file(self) -> Option<&'static str> {
        match self {
            Self::Systemd => None,
            Self::Openrc => Some("/var/log/knarr.log"),
        }
    }

    /// Returns the command that prints why the service does not start.
    pub(super) const fn log(self) -> &'static str {
        match self {
            Self::Systemd => "journalctl -u knarr.service",
            Self::Openrc => "/var/log/knarr.log",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Openrc => "openrc",
        }
    }
}

/// A step. It is safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    CreateDir {
        path: PathBuf,
        mode: u32,
    },
    Write {
        path: PathBuf,
        mode: u32,
        text: String,
    },
    /// Copies a file, unless source and destination are the same file.
    Copy {
        from: PathBuf,
        path: PathBuf,
        mode: u32,
    },
    Link {
        path: PathBuf,
        target: PathBuf,
    },
    Remove(PathBuf),
    /// Removes a directory if it is empty.
    RemoveDir(PathBuf),
    Run(Vec<String>),
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateDir { path, mode } => {
                write!(formatter, "create directory {} (mode {mode:04o})", path.display())
            }
            Self::Write { path, mode, .. } => write!(formatter, "write {} (mode {mode:04o})", path.display()),
            Self::Copy { from, path, mode } => {
                write!(formatter, "copy {} to {} (mode {mode:04o})", from.display(), path.display())
            }
            Self::Link { path, target } => write!(formatter, "link {} to {}", path.display(), target.display()),
            Self::Remove(path) => write!(formatter, "remove {}", path.display()),
            Self::RemoveDir(path) => write!(formatter, "remove directory {} if it is empty", path.display()),
            Self::Run(words) => write!(formatter, "run {}", words.join(" ")),
        }
    }
}

/// The record of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub init: Init,
    /// The command that the service runs.
    pub command: String,
    /// Installed files and links.
    pub files: BTreeSet<PathBuf>,
    /// Directories that the installation created.
    pub dirs: BTreeSet<PathBuf>,
}

impl Record {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value = json::parse(text.as_bytes()).ok()?;
        let paths = |key: &str| -> Option<BTreeSet<PathBuf>> {
            value.get(key)?.as_array()?.iter().map(|path| Some(PathBuf::from(path.as_str()?))).collect()
        };
        let init = value.str_at(&["init"])?;
        Some(Self {
            init: [Init::Systemd, Init::Openrc].into_iter().find(|one| one.name() == init)?,
            command: value.str_at(&["command"])?.to_owned(),
            files: paths("files")?,
            dirs: paths("directories")?,
        })
    }

    fn text(&self) -> String {
        let paths = |paths: &BTreeSet<PathBuf>| {
            Value::from(paths.iter().map(|path| Value::from(path.display().to_string())).collect::<Vec<_>>())
        };
        let record = apimachinery::value!({
            "init": (self.init.name()), "command": (self.command.as_str()),
            "files": (paths(&self.files)), "directories": (paths(&self.dirs)),
        });
        json::to_string_pretty(&record) + "\n"
    }
}

/// State of the host before an installation.
pub(super) struct Observed<'a> {
    pub init: Init,
    /// The running binary.
    pub program: PathBuf,
    pub record: Option<Record>,
    /// The settings of an earlier installation.
    pub settings: Object,
    pub is_dir: &'a dyn Fn(&Path) -> bool,
}

/// Returns the steps of an installation, excluding the start of the service.
pub(super) fn install(observed: Observed<'_>, service: &Service) -> Vec<Action> {
    let Observed { init, program, record, mut settings, is_dir } = observed;
    let mut files = vec![Action::Copy { from: program, path: PROGRAM.into(), mode: MODE_PROGRAM }];
    for (flag, value) in service.settings.iter() {
        settings.insert(flag, value.clone());
    }
    if let Some(token) = &service.token {
        let path = token_args::stored_token(&service.data_dir);
        settings.insert("token-file", path.display().to_string());
        files.push(Action::Write { path, mode: MODE_SECRET, text: token.clone() });
    }
    let service_text = match init {
        Init::Systemd => unit::systemd(Path::new(PROGRAM), std::slice::from_ref(&service.command), &[]),
        Init::Openrc => unit::openrc(Path::new(PROGRAM), &service.command),
    };
    let service_mode = if init == Init::Openrc { MODE_PROGRAM } else { MODE_FILE };
    files.push(Action::Write { path: SETTINGS.into(), mode: MODE_FILE, text: settings_text(settings) });
    files.push(Action::Write { path: init.service().into(), mode: service_mode, text: service_text });
    files.push(Action::Link { path: init.enabled().into(), target: init.service().into() });
    files.extend(documents());
    let paths: BTreeSet<PathBuf> = files.iter().filter_map(installed).map(Path::to_owned).collect();
    let parents =
        paths.iter().map(PathBuf::as_path).chain([Path::new(RECORD)]).flat_map(|path| path.ancestors().skip(1));
    let missing: BTreeSet<PathBuf> = parents.filter(|dir| !is_dir(dir)).map(Path::to_owned).collect();
    let mode = |dir: &Path| if dir == service.data_dir { DATA_DIR_MODE } else { MODE_DIR };
    let create = |path: &PathBuf| Action::CreateDir { mode: mode(path), path: path.clone() };
    let mut actions: Vec<Action> = missing.iter().map(create).collect();
    actions.append(&mut files);
    let before = record.unwrap_or_else(|| Record {
        init,
        command: String::new(),
        files: BTreeSet::new(),
        dirs: BTreeSet::new(),
    });
    actions.extend(before.files.difference(&paths).cloned().map(Action::Remove));
    let dirs = before.dirs.union(&missing).cloned().collect();
    let record = Record { init, command: service.command.clone(), files: paths, dirs };
    actions.push(Action::Write { path: RECORD.into(), mode: MODE_FILE, text: record.text() });
    actions
}

/// Returns the steps that start an installed service.
pub(super) fn start(init: Init) -> Vec<Action> {
    init.reload().into_iter().chain([init.restart()]).map(run).collect()
}

/// Returns the steps that remove an installation. `down` is the command that stops the pods, if there are any.
pub(super) fn uninstall(record: &Record, down: Option<Vec<String>>) -> Vec<Action> {
    let mut actions = vec![run(record.init.stop())];
    actions.extend(down.map(Action::Run));
    actions.extend(record.files.iter().cloned().map(Action::Remove));
    actions.push(Action::Remove(RECORD.into()));
    actions.extend(record.init.log_file().map(|file| Action::Remove(file.into())));
    actions.extend(record.dirs.iter().rev().cloned().map(Action::RemoveDir));
    actions.extend(record.init.reload().map(run));
    actions
}

fn run(words: &[&str]) -> Action {
    Action::Run(words.iter().map(ToString::to_string).collect())
}

/// Returns the path that an action installs.
fn installed(action: &Action) -> Option<&Path> {
    match action {
        Action::Write { path, .. } | Action::Copy { path, .. } | Action::Link { path, .. } => Some(path),
        Action::CreateDir { .. } | Action::Remove(_) | Action::RemoveDir(_) | Action::Run(_) => None,
    }
}

fn settings_text(settings: Object) -> String {
    let head = "# Written by `knarr install`, which overrides the keys that it is given. `knarr config show` shows all settings.\n";
    let settings = if settings.is_empty() { String::new() } else { yaml::to_string(&Value::Object(settings)) };
    format!("{head}{settings}")
}

/// Returns the completion scripts and the manual pages.
fn documents() -> Vec<Action> {
    let file =
        |path: String, text: String| Action::Write { path: format!("{SHARE}/{path}").into(), mode: MODE_FILE, text };
    let scripts = SHELLS.into_iter().filter_map(|shell| {
        let path = match shell {
            "bash" => "bash-completion/completions/knarr",
            "zsh" => "zsh/site-functions/_knarr",
            _ => "fish/vendor_completions.d/knarr.fish",
        };
        Some(file(path.to_owned(), script(shell, "knarr")?))
    });
    scripts.chain(man::pages().into_iter().map(|page| file(format!("man/man1/{}", page.file), page.text))).collect()
}
