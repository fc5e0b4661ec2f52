//! The control loop: a pass after each change of the directory, and while problems last after changes of the cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use apimachinery::Value;
use client::backoff::{Backoff, Waits};
use client::cache::{self, ChangeQueue, Source};
use client::{Client, apply_set, discovery};
use component_base::election::{self, Election};
use component_base::events::Recorder;
use component_base::inotify::Changes;
use controller::{EventType, Regarding, kinds};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::cluster::{self, Parents};
use crate::directory::{self, Directory, FileVersion, Root};
use crate::execute::{self, Outcome};
use crate::plan::{self, ObjectId, Plan};
use crate::report::{self, MANAGER, Problem, Report, Scope};

/// Back-off while an object cannot be applied or the API server does not respond.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(300) };
/// Quiet time after a change: programs replace a file by deleting it first, and change several files.
const QUIET: Duration = Duration::from_millis(200);
/// Maximum number of quiet times that a change is waited for.
const QUIET_TIMES_MAX: u32 = 25;

/// The parameters of the component.
#[derive(Clone, Debug)]
pub struct Config {
    pub directory: PathBuf,
    /// The name of the set and of its parent. Directories with different content need different names.
    pub name: String,
    /// The lease under which objects are changed; `None` if no other directory is applied to the cluster.
    pub election: Option<election::Settings>,
}

/// The state between passes. All of it can be lost.
struct Applier {
    client: Client,
    config: Config,
    set: String,
    recorder: Recorder,
    changes: Option<Arc<Changes>>,
    /// Reports that the directory appears, while it is missing.
    appearance: Option<Changes>,
    /// The versions of the files from which the members were applied.
    applied: BTreeMap<ObjectId, FileVersion>,
    /// The problems of the last pass.
    problems: Vec<KnownProblem>,
    /// The objects that the last pass removed from the set.
    removed: Vec<String>,
    /// Whether the cluster has nothing of this directory.
    is_unused: bool,
}

/// The result of observing and planning.
struct Observed {
    plan: Plan,
    files: usize,
    /// The kinds and namespaces that the parent names, and its report.
    parent: Option<Scope>,
    text: String,
}

/// A problem, and whether an Event has reported it.
struct KnownProblem {
    problem: Problem,
    since: Instant,
    is_reported: bool,
}

/// The events that lead to the next pass, besides changes of the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Next {
    /// Another pass follows at once.
    again: bool,
    /// Changes of the cluster can make a difference.
    follow: bool,
    /// The pass is repeated after a while.
    retry: bool,
}

/// Runs for as long as the future is polled; returns if Events can no longer be sent.
pub async fn run(client: Client, config: Config) {
    let (recorder, sending) = Recorder::new(client.clone(), MANAGER);
    let changes = Changes::none().inspect_err(|error| tracing::warn!(%error, "failed to create an inotify instance"));
    let (parent, key) = report::parent_of(&config.name);
    let applier = Applier {
        client,
        set: apply_set::id(parent, &key),
        config,
        recorder,
        changes: changes.ok().map(Arc::new),
        appearance: None,
        applied: BTreeMap::new(),
        problems: Vec::new(),
        removed: Vec::new(),
        is_unused: false,
    };
    tokio::select! {
        () = applier.work() => {}
        () = sending => {}
    }
}

impl Applier {
    async fn work(mut self) {
        let (mut waits, mut watches) = (RETRY.waits(), None);
        loop {
            let next = self.pass().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "failed to apply the manifests directory; retrying");
                Next { follow: false, retry: true, again: false }
            });
            if !next.follow {
                watches = None;
            } else if watches.is_none() {
                watches = Some(Watches::start(&self.client, &self.config.name));
            }
            if !next.again {
                self.wait(next, &mut waits, watches.as_ref()).await;
            }
        }
    }

    async fn wait(&self, next: Next, waits: &mut Waits, watches: Option<&Watches>) {
        if !next.retry {
            waits.reset();
        }
        let retry = async {
            match next.retry {
                true => tokio::time::sleep(waits.next_wait()).await,
                false => std::future::pending().await,
            }
        };
        let followed = async {
            match watches {
                Some(watches) => drop(watches.changes.take().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.changed() => waits.reset(),
            () = followed => {}
            () = retry => {}
        }
    }

    /// Waits for a change of the directory, and until it is quiet.
    async fn changed(&self) {
        let any_change = async || {
            tokio::select! {
                () = next_change(self.changes.as_deref()) => {}
                () = next_change(self.appearance.as_ref()) => {}
            }
        };
        any_change().await;
        for _ in 0..QUIET_TIMES_MAX {
            if tokio::time::timeout(QUIET, any_change()).await.is_err() {
                return;
            }
        }
    }

    async fn read(&mut self) -> Directory {
        let (root, changes) = (self.config.directory.clone(), self.changes.clone());
        // Without the parent directory, only the next start notices that the directory appears.
        self.appearance = (!root.exists()).then(|| appearance(&root)).transpose().ok().flatten();
        let read = move || {
            let no_instance = || std::io::Error::other("no inotify instance");
            directory::read(&root, &|path| match &changes {
                Some(changes) => changes.watch_directory(path),
                None => Err(no_instance()),
            })
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Directory {
            root: Root::Refused(format!("failed to read it: {error}")),
            ..Directory::default()
        })
    }

    /// Observes, plans, executes and reports.
    async fn pass(&mut self) -> Result<Next, client::Error> {
        let Some(observed) = self.observe().await? else { return Ok(Next::default()) };
        match self.config.election.clone() {
            Some(settings) if observed.plan.changes_objects() => self.pass_as_leader(settings).await,
            _ => self.execute(observed).await,
        }
    }

    /// Observes again and executes while no other server does: two servers that find an object missing would both apply
    /// it, and the first would not notice that it belongs to the second.
    async fn pass_as_leader(&mut self, settings: election::Settings) -> Result<Next, client::Error> {
        let mut election = Election::new(self.client.clone(), settings);
        election.acquire().await;
        let pass = async {
            match self.observe().await? {
                Some(observed) => self.execute(observed).await,
                None => Ok(Next::default()),
            }
        };
        let result = tokio::select! {
            result = pass => result,
            () = election.hold() => {
                tracing::warn!("lost the lease while applying the manifests directory; retrying");
                Ok(Next { retry: true, ..Next::default() })
            }
        };
        election.release().await;
        result
    }

    /// Reads the directory, observes the cluster, and plans; `None` if there is nothing to do or to report.
    async fn observe(&mut self) -> Result<Option<Observed>, client::Error> {
        let directory = self.read().await;
        let (files, is_empty) = (directory.files.len(), directory.files.is_empty());
        if self.is_unused && is_empty && directory.root == Root::Present {
            return Ok(None);
        }
        let parents = Parents::read(&self.client, &self.config.name).await?;
        self.is_unused = parents.own.is_none();
        if self.is_unused && is_empty && directory.root == Root::Present {
            return Ok(None);
        }
        let served = discovery::discover(&self.client).await?;
        let desired = plan::resolve(directory, &served);
        let text = parents.own.as_ref().map(|own| own.text_at(&["data", report::REPORT]).to_owned());
        let cluster = cluster::observe(&self.client, parents, &served, &desired, &self.set).await?;
        self.applied.retain(|id, _| cluster.members.contains_key(id));
        let plan = plan::plan(desired, &cluster, &self.applied, &self.set);
        Ok(Some(Observed { plan, files, parent: cluster.parent, text: text.unwrap_or_default() }))
    }

    async fn execute(&mut self, observed: Observed) -> Result<Next, client::Error> {
        let Observed { plan, files, parent, text } = observed;
        if plan.create_directory {
            return Ok(self.create_directory());
        }
        // Members of a kind that the parent does not name would not be found after a crash.
        if parent.is_none_or(|parent| !parent.contains(&plan.scope)) {
            execute::apply_parent(&self.client, &self.config.name, &plan.scope, &text).await?;
        }
        let Plan { scope, apply, prune, unchanged, claims, problems, .. } = plan;
        let mut outcome = Outcome { problems, ..Outcome::default() };
        execute::apply(&self.client, apply, &mut self.applied, &mut outcome).await?;
        execute::prune(&self.client, prune, &mut self.applied, &mut outcome).await?;
        let next = Next {
            // The members that were removed no longer determine the kinds of the set. An object that remains a member
            // because others own its label is not removed again at once.
            again: !outcome.removed.is_empty() && outcome.removed != self.removed,
            follow: !claims.is_empty() || outcome.problems.iter().any(|problem| problem.retry),
            retry: outcome.problems.iter().any(|problem| problem.retry),
        };
        let report = Report {
            directory: self.config.directory.display().to_string(),
            files,
            objects: unchanged + outcome.applied.values().sum::<usize>(),
            problems: outcome.problems.clone(),
            claims: claims.iter().map(ToString::to_string).collect(),
        };
        let parent = execute::apply_parent(&self.client, &self.config.name, &scope, &report.text()).await?;
        self.is_unused = false;
        self.removed.clone_from(&outcome.removed);
        self.record(&parent, outcome);
        Ok(next)
    }

    fn create_directory(&mut self) -> Next {
        match directory::create(&self.config.directory) {
            Ok(()) => Next { again: true, ..Next::default() },
            Err(error) => {
                let path = self.config.directory.display();
                tracing::warn!(%error, directory = %path, "failed to create the manifests directory");
                Next { retry: true, ..Next::default() }
            }
        }
    }

    /// Records Events about what happened, and about new problems. A type that is defined in the same directory exists
    /// a moment later, so that problems which may disappear are recorded only when they last.
    fn record(&mut self, parent: &Value, outcome: Outcome) {
        let regarding = Regarding::object(parent);
        for (file, count) in outcome.applied {
            let objects = if count == 1 { "object" } else { "objects" };
            let message = format!("applied {count} {objects} of {file}");
            self.recorder.record(&regarding, EventType::Normal, "Applied", &message);
        }
        for message in outcome.removed {
            self.recorder.record(&regarding, EventType::Normal, "Pruned", &message);
        }
        let known = std::mem::take(&mut self.problems);
        for problem in outcome.problems {
            let before = known.iter().find(|known| known.problem == problem);
            let since = before.map_or_else(Instant::now, |known| known.since);
            let was_reported = before.is_some_and(|known| known.is_reported);
            let is_reported = was_reported || !problem.retry || since.elapsed() >= RETRY.first;
            if is_reported && !was_reported {
                let reason = if problem.object.is_empty() { "InvalidManifest" } else { "ApplyFailed" };
                tracing::warn!(%problem, "a manifest is not applied");
                self.recorder.record(&regarding, EventType::Warning, reason, &problem.to_string());
            }
            self.problems.push(KnownProblem { problem, since, is_reported });
        }
    }
}

/// Watches for the creation of a directory.
fn appearance(root: &Path) -> std::io::Result<Changes> {
    let changes = Changes::none()?;
    changes.watch_names(root.parent().unwrap_or(root))?;
    Ok(changes)
}

/// Waits for a change, if there is a watch.
async fn next_change(changes: Option<&Changes>) {
    match changes {
        Some(changes) => {
            if let Err(error) = changes.next().await {
                tracing::warn!(%error, "failed to read changes of the manifests directory");
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}

/// Watches of objects that let problems disappear: types, namespaces, and the parents of other directories.
struct Watches {
    changes: ChangeQueue,
    _reflectors: JoinSet<()>,
}

impl Watches {
    fn start(client: &Client, name: &str) -> Self {
        let (changes, mut reflectors) = (ChangeQueue::new(1), JoinSet::new());
        let metadata = client.metadata_only();
        let mut sources: Vec<Source> = [&kinds::CUSTOM_RESOURCE_DEFINITIONS, &kinds::API_SERVICES, &kinds::NAMESPACES]
            .map(|resource| Source::all(metadata.clone(), resource.clone()))
            .into();
        let (parents, own) = report::parent_of(name);
        sources.push(Source {
            namespace: own.namespace.clone(),
            label_selector: report::parents_selector(),
            ..Source::all(metadata, parents.clone())
        });
        for source in sources {
            let (reflector, reader) = cache::digest(source, cache::Settings::default(), Vec::new(), |_| ());
            let own = own.clone();
            reader.subscribe(&changes, move |change, keys| {
                if *change.key != own {
                    keys.push(change.key.clone());
                }
            });
            reflectors.spawn(reflector.run().in_current_span());
        }
        Self { changes, _reflectors: reflectors }
    }
}
