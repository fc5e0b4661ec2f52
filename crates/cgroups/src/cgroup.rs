//! Cgroups by path, on v1, v2 and hybrid hosts: create, join, read, kill, remove.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libcgroups::common::{CgroupConfig, CgroupManager, ControllerOpt, create_cgroup_manager};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::controllers::Controllers;
use crate::systemd::Systemd;

mod usage;

pub use usage::{Pressure, Stall, Usage};

/// cgroup v1 controllers of a container.
const CONTROLLERS: &[&str] =
    &["cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "name=systemd"];

/// A cgroup by its path below the mount points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
}

/// A systemd unit that owns a cgroup.
enum Unit<'a> {
    Slice(&'a str),
    Scope(&'a str),
}

/// Mount points of the cgroup hierarchies.
#[derive(Debug, Default)]
struct Hierarchies {
    /// cgroup v2, if it has the controllers.
    unified: Option<PathBuf>,
    /// cgroup v1: controllers and mount points.
    separate: Vec<(String, PathBuf)>,
    /// cgroup v2 beside v1 (hybrid), where runc also places containers.
    beside: Option<PathBuf>,
}

impl Cgroup {
    /// Returns the cgroup of a path such as `/kubepods/pod1/abc`.
    pub fn at(path: &str) -> Cgroup {
        Cgroup { path: path.trim_matches('/').split('/').filter(|part| *part != ".." && !part.is_empty()).collect() }
    }

    /// Returns the path from the root of a hierarchy.
    pub fn path(&self) -> PathBuf {
        Path::new("/").join(&self.path)
    }

    /// Whether the cgroup exists in any hierarchy.
    pub fn exists(&self) -> bool {
        self.dirs().next().is_some()
    }

    pub fn has_children(&self) -> bool {
        self.dirs().any(|dir| !children(&dir).is_empty())
    }

    /// Creates the cgroup and its parents in every hierarchy that has controllers; systemd starts a slice.
    pub fn create(&self) -> io::Result<()> {
        let hierarchies = hierarchies();
        if let Some(Unit::Slice(unit)) = self.unit() {
            Systemd::default().start_slice(unit)?;
        }
        for (controller, root) in &hierarchies.separate {
            self.create_under(root)?;
            if controller == "cpuset" {
                self.inherit_cpuset(root)?;
            }
        }
        if let Some(root) = &hierarchies.unified {
            self.delegate(root)?;
            self.create_under(root)?;
        }
        Ok(())
    }

    /// Creates the cgroup and moves a process into it. For a cgroup below a scope, systemd starts the scope with the
    /// process, because a scope cannot exist without one.
    pub fn create_with(&self, pid: u32) -> io::Result<()> {
        if let Some(scope) = self.scope()
            && let Some(Unit::Scope(unit)) = scope.unit()
        {
            let slice = scope.path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
            Systemd::default().start_scope(unit, slice.unwrap_or("-.slice"), pid)?;
            // The process must leave the scope's own cgroup before controllers are enabled there for its children.
            // Otherwise the cgroup becomes a threaded domain, and no process can join its children.
            if let Some(dir) = self.unified_dir() {
                fs::create_dir_all(dir)?;
                self.join(pid)?;
            }
        }
        self.create()?;
        self.join(pid)
    }

    /// Returns the scope directly above the cgroup.
    pub fn scope(&self) -> Option<Cgroup> {
        let parent = Cgroup { path: self.path.parent()?.to_owned() };
        matches!(parent.unit(), Some(Unit::Scope(_))).then_some(parent)
    }

    /// Returns the systemd unit that owns the cgroup, by its name.
    fn unit(&self) -> Option<Unit<'_>> {
        let name = self.path.file_name()?.to_str()?;
        match name.rsplit_once('.')?.1 {
            "slice" => Some(Unit::Slice(name)),
            "scope" => Some(Unit::Scope(name)),
            _ => None,
        }
    }

    /// Moves a process into the cgroup.
    pub fn join(&self, pid: u32) -> io::Result<()> {
        for dir in self.dirs() {
            fs::write(dir.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Returns the PIDs in the cgroup and below it.
    pub fn pids(&self) -> BTreeSet<i32> {
        let mut pids = BTreeSet::new();
        for dir in self.dirs() {
            collect_pids(&dir, &mut pids);
        }
        pids
    }

    /// Kills every process of the cgroup, including processes forked meanwhile.
    pub fn kill(&self) {
        if let Some(root) = &hierarchies().unified
            && fs::write(root.join(&self.path).join("cgroup.kill"), "1").is_ok()
        {
            return;
        }
        // Killed processes cannot fork. Several rounds are needed for processes that fork while the PIDs are read.
        for _ in 0..16 {
            let pids = self.pids();
            if pids.is_empty() {
                return;
            }
            for pid in pids {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }

    /// Removes the cgroup with its children; a missing cgroup is not an error. Stops the unit of a slice or scope.
    pub fn remove(&self) -> io::Result<()> {
        if let Some(Unit::Slice(unit) | Unit::Scope(unit)) = self.unit() {
            Systemd::default().stop(unit)?;
        }
        for dir in self.dirs() {
            remove_tree(&dir)?;
        }
        Ok(())
    }

    /// Returns the directory in each cgroup v1 hierarchy, by the names under which hierarchies are usually mounted.
    /// Empty on v2.
    pub fn places(&self) -> BTreeMap<String, PathBuf> {
        if hierarchies().unified.is_some() {
            return BTreeMap::new();
        }
        hierarchies().separate.iter().flat_map(|(controller, root)| names(controller, root, &self.path)).collect()
    }

    /// Returns the number of OOM kills in the cgroup.
    pub fn oom_kills(&self) -> u64 {
        let text = match &hierarchies().unified {
            Some(root) => fs::read_to_string(root.join(&self.path).join("memory.events")),
            None => fs::read_to_string(self.file("memory", "memory.oom_control")),
        };
        value_of(&text.unwrap_or_default(), "oom_kill").unwrap_or(0)
    }

    /// Returns the resource usage of the cgroup.
    pub fn usage(&self) -> Usage {
        match &hierarchies().unified {
            Some(root) => usage::unified(&root.join(&self.path)),
            None => usage::separate(|controller, name| self.file(controller, name)),
        }
    }

    /// Applies OCI resources.
    pub fn update(&self, resources: &serde_json::Value) -> io::Result<()> {
        let resources = serde_json::from_value(resources.clone())?;
        let config = CgroupConfig { cgroup_path: self.path(), systemd_cgroup: false, container_name: String::new() };
        let options = ControllerOpt {
            resources: &resources,
            disable_oom_killer: false,
            oom_score_adj: None,
            freezer_state: None,
        };
        // The library warns of every controller that it does not support, such as `rdma` and `misc` on most hosts. It
        // also warns of every controller that the kernel lacks. Failures are in the result.
        let quiet = tracing::subscriber::NoSubscriber::default();
        tracing::subscriber::with_default(quiet, || {
            create_cgroup_manager(config).map_err(io::Error::other)?.apply(&options).map_err(io::Error::other)
        })?;
        match (self.unit(), self.unified_dir()) {
            (Some(Unit::Slice(unit)), Some(dir)) => Ok(Systemd::default().keep_limits(unit, &dir)?),
            _ => Ok(()),
        }
    }

    /// Returns the controllers that can limit this cgroup. For a cgroup that does not exist, these are the controllers of
    /// its nearest existing parent, which may fail to enable them for its children.
    pub fn controllers(&self) -> Controllers {
        let hierarchies = hierarchies();
        match &hierarchies.unified {
            Some(root) => {
                let full = root.join(&self.path);
                let dirs = full.ancestors().take_while(|dir| dir.starts_with(root));
                let found =
                    dirs.map(|dir| dir.join("cgroup.controllers")).find_map(|file| fs::read_to_string(file).ok());
                Controllers::named(found.unwrap_or_default().split_whitespace())
            }
            None => Controllers::named(hierarchies.separate.iter().map(|(controller, _)| controller.as_str())),
        }
    }

    /// Whether the host has the device controller, which only cgroup v1 has.
    pub fn has_device_controller() -> bool {
        hierarchies().separate.iter().any(|(controller, _)| controller == "devices")
    }

    /// Returns the cgroup v2 directory, on hosts where v2 has the controllers.
    pub fn unified_dir(&self) -> Option<PathBuf> {
        hierarchies().unified.as_ref().map(|root| root.join(&self.path))
    }

    /// Whether cgroup v2 has the controllers.
    pub fn is_unified() -> bool {
        hierarchies().unified.is_some()
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        let hierarchies = hierarchies();
        let roots =
            hierarchies.separate.iter().map(|(_, root)| root).chain(&hierarchies.unified).chain(&hierarchies.beside);
        let dirs: BTreeSet<PathBuf> = roots.map(|root| root.join(&self.path)).filter(|dir| dir.is_dir()).collect();
        dirs.into_iter()
    }

    fn file(&self, controller: &str, name: &str) -> PathBuf {
        let root = hierarchies().separate.iter().find(|(own, _)| own == controller).map(|(_, root)| root.as_path());
        root.unwrap_or(Path::new("/nonexistent")).join(&self.path).join(name)
    }

    fn create_under(&self, root: &Path) -> io::Result<()> {
        fs::create_dir_all(root.join(&self.path))
    }

    /// Copies the cpuset of each parent: a new cpuset is empty and accepts no process.
    fn inherit_cpuset(&self, root: &Path) -> io::Result<()> {
        let mut dir = root.to_owned();
        for part in &self.path {
            let parent = dir.clone();
            dir.push(part);
            for name in ["cpuset.cpus", "cpuset.mems"] {
                if fs::read_to_string(dir.join(name))?.trim().is_empty() {
                    fs::write(dir.join(name), fs::read_to_string(parent.join(name))?.trim())?;
                }
            }
        }
        Ok(())
    }

    /// Enables the controllers of each parent for its children, as cgroup v2 requires.
    fn delegate(&self, root: &Path) -> io::Result<()> {
        let mut dir = root.to_owned();
        for part in &self.path {
            let available = fs::read_to_string(dir.join("cgroup.controllers"))?;
            for controller in available.split_whitespace() {
                // Controllers are enabled one at a time, so that one that cannot be delegated does not affect the
                // others.
                let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
            }
            dir.push(part);
            fs::create_dir_all(&dir)?;
        }
        Ok(())
    }
}

fn collect_pids(dir: &Path, pids: &mut BTreeSet<i32>) {
    if let Ok(text) = fs::read_to_string(dir.join("cgroup.procs")) {
        pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    for child in children(dir) {
        collect_pids(&child, pids);
    }
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    for child in children(dir) {
        remove_tree(&child)?;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Returns the value of a name in lines of `name value`.
fn value_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns the names of a hierarchy: its mount point, and the controller if several share the hierarchy.
fn names(controller: &str, root: &Path, path: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let mounted = root.file_name().map(|name| name.to_string_lossy().into_owned());
    let own = Some(controller.to_owned()).filter(|name| !name.contains('='));
    let dir = root.join(path);
    mounted.into_iter().chain(own).map(move |name| (name, dir.clone()))
}

/// Returns the hierarchies, which do not change while the host runs.
fn hierarchies() -> &'static Hierarchies {
    static FOUND: OnceLock<Hierarchies> = OnceLock::new();
    FOUND.get_or_init(|| parse_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()))
}

fn parse_mounts(mountinfo: &str) -> Hierarchies {
    let mut found = Hierarchies::default();
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let Some(mount_point) = before.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut fields = after.split(' ');
        match (fields.next(), fields.nth(1)) {
            (Some("cgroup2"), _) if mount_point == Path::new("/sys/fs/cgroup") => found.unified = Some(mount_point),
            (Some("cgroup2"), _) => found.beside = Some(mount_point),
            (Some("cgroup"), Some(options)) => {
                let own = options.split(',').filter(|option| CONTROLLERS.contains(option));
                found.separate.extend(own.map(|controller| (controller.to_owned(), mount_point.clone())));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_on_hybrid_and_v2_hosts() {
        let hybrid = "31 30 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = parse_mounts(hybrid);
        assert_eq!(found.separate, [("cpu".to_owned(), PathBuf::from("/sys/fs/cgroup/cpu"))]);
        assert_eq!((found.unified, found.beside), (None, Some(PathBuf::from("/sys/fs/cgroup/unified"))));
        let unified = parse_mounts("30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
        assert_eq!(unified.unified, Some(PathBuf::from("/sys/fs/cgroup")));
    }

    #[test]
    fn hierarchy_is_named_by_mount_point_and_controllers() {
        let check = |controller: &str, root: &str, expect: &[&str]| {
            let found: Vec<_> = names(controller, Path::new(root), Path::new("a/b")).collect();
            let dir = Path::new(root).join("a/b");
            let expect: Vec<_> = expect.iter().map(|name| ((*name).to_owned(), dir.clone())).collect();
            assert_eq!(found, expect, "{controller}");
        };
        check("cpu", "/sys/fs/cgroup/cpu,cpuacct", &["cpu,cpuacct", "cpu"]);
        check("memory", "/sys/fs/cgroup/memory", &["memory", "memory"]);
        check("name=systemd", "/sys/fs/cgroup/systemd", &["systemd"]);
    }

    #[test]
    fn path_cannot_leave_the_hierarchy() {
        assert_eq!(Cgroup::at("/a/../../b//c/").path(), Path::new("/a/b/c"));
    }
}
