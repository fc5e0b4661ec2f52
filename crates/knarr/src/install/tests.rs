//! Installations into a temporary root directory.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::plan::Action;
use super::*;

const TOKEN: &str = "abcdef.0123456789abcdef.0000000000000000000000000000000000000000000000000000000000000000";

/// A root directory, and the commands that were run for it.
struct Host {
    root: tempfile::TempDir,
    commands: Vec<String>,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc/knarr")).unwrap();
        std::fs::write(root.path().join("etc/knarr/config.yaml"), "secure-port: 7443\n").unwrap();
        std::fs::write(root.path().join("knarr.new"), "first").unwrap();
        Self { root, commands: Vec::new() }
    }

    fn path(&self, path: &str) -> PathBuf {
        below(self.root.path(), Path::new(path))
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn mode(&self, path: &str) -> u32 {
        std::fs::metadata(self.path(path)).unwrap().permissions().mode() & 0o7777
    }

    fn record(&self) -> Option<Record> {
        Record::parse(&std::fs::read_to_string(self.path(plan::RECORD)).ok()?)
    }

    fn execute(&mut self, actions: &[Action]) {
        let root = self.root.path().to_owned();
        execute(&root, actions, &mut |words| {
            self.commands.push(words.join(" "));
            Ok(())
        })
        .unwrap();
    }

    fn install(&mut self, line: &str, init: Init) {
        let typed: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let service = options::read(&crate::cli(), &typed, &self.path(settings::FILE)).unwrap();
        let root = self.root.path().to_owned();
        let observed = Observed {
            init,
            program: self.path("/knarr.new"),
            record: self.record(),
            settings: read_settings(&self.path(plan::SETTINGS)).unwrap(),
            is_dir: &|dir| below(&root, dir).is_dir(),
        };
        let mut actions = plan::install(observed, &service);
        actions.extend(plan::start(init));
        self.execute(&actions);
    }

    /// Returns all files and directories with the content of the files.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut dirs = vec![self.root.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(path.clone());
                }
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                found.insert(path, text);
            }
        }
        found
    }
}

#[test]
fn uninstall_leaves_nothing_that_install_created() {
    for init in [Init::Systemd, Init::Openrc] {
        let mut host = Host::new();
        let before = host.files();
        host.install("up --node-name one", init);
        assert_eq!(host.text(plan::PROGRAM), "first");
        assert_eq!(host.mode(plan::PROGRAM), 0o755);
        assert!(host.text(plan::SETTINGS).ends_with("settings.\nnode-name: one\n"), "{}", host.text(plan::SETTINGS));
        let link = if init == Init::Systemd {
            "/etc/systemd/system/multi-user.target.wants/knarr.service"
        } else {
            "/etc/runlevels/default/knarr"
        };
        assert_eq!(std::fs::read_link(host.path(link)).unwrap(), Path::new(init.service()));
        let man = "/usr/local/share/man/man1/knarr-kubectl-get.1";
        for file in [man, "/usr/local/share/zsh/site-functions/_knarr"] {
            assert_eq!(host.mode(file), 0o644, "{file}");
        }
        assert_eq!(host.mode(init.service()), if init == Init::Systemd { 0o644 } else { 0o755 });

        host.commands.clear();
        let record = host.record().unwrap();
        host.execute(&plan::uninstall(&record, Some(vec!["knarr".to_owned(), "down".to_owned()])));
        assert_eq!(host.files(), before);
        let expect: &[&str] = match init {
            Init::Systemd => &["systemctl stop knarr.service", "knarr down", "systemctl daemon-reload"],
            Init::Openrc => &["rc-service knarr stop", "knarr down"],
        };
        assert_eq!(host.commands, expect);
    }
}

#[test]
fn token_is_only_in_a_file_for_root() {
    let mut host = Host::new();
    host.install(&format!("agent --server https://a:6443 --token {TOKEN} --data-dir /srv/knarr"), Init::Systemd);
    let with_token: Vec<PathBuf> =
        host.files().into_iter().filter(|(_, text)| text.contains("0123456789abcdef")).map(|(path, _)| path).collect();
    assert_eq!(with_token, [host.path("/srv/knarr/join-token")]);
    assert_eq!(host.mode("/srv/knarr/join-token"), 0o600);
    assert_eq!(host.mode("/srv/knarr"), 0o711, "other users cannot list the data directory");
    assert!(host.text(plan::SETTINGS).contains("\ntoken-file: /srv/knarr/join-token\n"));
    assert!(!host.commands.iter().any(|command| command.contains("0123456789abcdef")));
    assert!(host.text(Init::Systemd.service()).contains("\nExecStart=/usr/local/bin/knarr agent\n"));

    // The agent deletes the file after it has joined; another installation does not need it.
    std::fs::remove_file(host.path("/srv/knarr/join-token")).unwrap();
    host.install("agent --node-name n", Init::Systemd);
    assert!(!host.path("/srv/knarr/join-token").exists());
}

#[test]
fn second_installation_keeps_settings_replaces_the_binary_and_removes_obsolete_files() {
    let mut host = Host::new();
    host.install("server --node-name one --disable dns", Init::Systemd);
    let obsolete = host.path("/usr/local/share/man/man1/knarr-obsolete.1");
    std::fs::write(&obsolete, "").unwrap();
    let mut record = host.record().unwrap();
    record.files.insert("/usr/local/share/man/man1/knarr-obsolete.1".into());
    let observed = |record, root: &Path| {
        let root = root.to_owned();
        (record, move |dir: &Path| below(&root, dir).is_dir())
    };
    std::fs::write(host.path("/knarr.new"), "second").unwrap();
    let typed: Vec<OsString> = ["server", "--disable", "ingress"].map(OsString::from).into();
    let service = options::read(&crate::cli(), &typed, &host.path(settings::FILE)).unwrap();
    let (record, is_dir) = observed(record, host.root.path());
    let actions = plan::install(
        Observed {
            init: Init::Systemd,
            program: host.path("/knarr.new"),
            record: Some(record.clone()),
            settings: read_settings(&host.path(plan::SETTINGS)).unwrap(),
            is_dir: &is_dir,
        },
        &service,
    );
    host.execute(&actions);
    assert_eq!(host.text(plan::PROGRAM), "second");
    assert!(host.text(plan::SETTINGS).ends_with("\ndisable:\n- ingress\nnode-name: one\n"));
    assert!(!obsolete.exists());
    let after = host.record().unwrap();
    assert_eq!(after.dirs, record.dirs, "directories of the first installation are still removed by uninstall");
    assert_eq!(after.command, "server");
}

#[test]
fn service_manager_of_a_root_directory_is_detected() {
    let check = |file: &str, expect: Option<Init>| {
        let root = tempfile::tempdir().unwrap();
        let path = below(root.path(), Path::new(file));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
        assert_eq!(detect(root.path()).ok(), expect, "{file}");
    };
    check("/usr/lib/systemd/systemd", Some(Init::Systemd));
    check("/sbin/openrc-run", Some(Init::Openrc));
    check("/sbin/runit", None);
}
