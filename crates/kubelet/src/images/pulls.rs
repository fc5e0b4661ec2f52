//! Image pull records: a restarted kubelet must not give private images to pods without credentials.
//!
//! ```text
//! image_manager/pulling/sha256-<image>      a pull in progress; one left by a previous kubelet has unknown credentials
//! image_manager/pulled/sha256-<reference>   the credentials that pulled the image with this runtime reference
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use apimachinery::{Value, json, value};
use node_api::cri::v1;
use tokio::sync::{Mutex, MutexGuard};

use super::verification::{self, Access, AccountUse, Decision, ImageOrigin, Record, SecretUse, Source, Verification};
use crate::blocking;
use crate::plugins::sha256_hex;

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";

/// The record files and the pulls in progress.
pub(super) struct Pulls {
    dir: PathBuf,
    rules: Verification,
    // Held during every access, so that no decision is based on a partly updated record.
    state: Mutex<State>,
}

/// Number of pulls in progress by image.
type State = BTreeMap<String, usize>;

impl Pulls {
    /// Opens the records below the kubelet's directory.
    pub(super) fn new(root_dir: &Path, rules: Verification) -> Self {
        Self { dir: root_dir.join("image_manager"), rules, state: Mutex::default() }
    }

    /// Whether a pod with credentials of these sources may use an image that is present; false if its record cannot be
    /// read.
    pub(super) async fn may_use(&self, image: &str, reference: &str, sources: &[Source]) -> bool {
        let state = self.state.lock().await;
        let record = match blocking::in_place(|| self.record(reference)) {
            Ok(record) => record,
            Err(error) => {
                tracing::error!(%error, reference, "failed to read an image pull record");
                return false;
            }
        };
        let known = match &record {
            Some(record) => ImageOrigin::Pulled(record),
            None if state.contains_key(image) || self.intent(image).exists() => ImageOrigin::Pulling,
            None => ImageOrigin::Preloaded,
        };
        match self.rules.verdict(image, known, sources) {
            Decision::Allowed => true,
            Decision::AllowedBy(source) => {
                // If the record cannot be written, the next check only repeats this decision.
                let written = blocking::in_place(|| self.write(&state, image, reference, Some(Some(source))));
                if let Err(error) = written {
                    tracing::warn!(%error, reference, "failed to update an image pull record");
                }
                true
            }
            Decision::MustPull => false,
        }
    }

    /// Records the start of a pull.
    pub(super) async fn record_start(&self, image: &str) -> io::Result<()> {
        let mut state = self.state.lock().await;
        let intent = value!({"apiVersion": VERSION, "kind": "ImagePullIntent", "image": image});
        blocking::in_place(|| put(&self.intent(image), &intent))?;
        *state.entry(image.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Records the end of a pull. `pulled` is the image reference and the source of the credential that was used, if it
    /// has one; `None` if the pull failed.
    pub(super) async fn end(&self, image: &str, pulled: Option<(&str, Option<&Source>)>) {
        let mut state = self.state.lock().await;
        if let Some((reference, by)) = pulled
            && let Err(error) = blocking::in_place(|| self.write(&state, image, reference, Some(by)))
        {
            // The pull intent stays on disk, so that the image is not treated as preloaded.
            tracing::error!(%error, image, "failed to write an image pull record");
            return;
        }
        let left = state.get(image).copied().unwrap_or_default().saturating_sub(1);
        if left > 0 {
            state.insert(image.to_owned(), left);
            return;
        }
        state.remove(image);
        if let Err(error) = blocking::in_place(|| remove(&self.intent(image))) {
            tracing::error!(%error, image, "failed to remove an image pull intent");
        }
    }

    /// Reconciles the records with the images of the runtime. Pulls started by a previous kubelet are recorded without
    /// credentials, and records of removed images are deleted. `images` is awaited under the lock, so no record changes
    /// meanwhile.
    pub(super) async fn reconcile<E>(&self, images: impl Future<Output = Result<Vec<v1::Image>, E>>) -> Result<(), E> {
        let state = self.state.lock().await;
        let images = images.await?;
        blocking::in_place(|| self.reconcile_with(&state, &images));
        Ok(())
    }

    fn reconcile_with(&self, state: &MutexGuard<'_, State>, images: &[v1::Image]) {
        let failed = |error: io::Error| tracing::error!(%error, "failed to reconcile the image pull records");
        for intent in self.list("pulling").map_err(failed).unwrap_or_default() {
            let image = intent.1.str_at(&["image"]).unwrap_or_default();
            let found =
                images.iter().find(|one| one.repo_tags.iter().chain(&one.repo_digests).any(|name| same(name, image)));
            if let Some(found) = found.filter(|_| !state.contains_key(image)) {
                let written = self.write(state, image, &found.id, None).and_then(|()| remove(&intent.0));
                written.unwrap_or_else(failed);
            }
        }
        let here: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        for (path, record) in self.list("pulled").map_err(failed).unwrap_or_default() {
            if !here.contains(record.str_at(&["imageRef"]).unwrap_or_default()) {
                remove(&path).unwrap_or_else(failed);
            }
        }
    }

    fn intent(&self, image: &str) -> PathBuf {
        self.dir.join("pulling").join(file(image))
    }

    /// Adds a pull and its credentials, if known, to the record of an image.
    fn write(
        &self,
        _alone: &MutexGuard<'_, State>,
        image: &str,
        reference: &str,
        by: Option<Option<&Source>>,
    ) -> io::Result<()> {
        // An unreadable record is replaced: the new one allows less, never more.
        let before = self.record(reference).ok().flatten();
        let mut record = before.clone().unwrap_or_default();
        let changed = by.is_some_and(|by| verification::add(&mut record, image, by));
        if before.is_some() && !changed {
            return Ok(());
        }
        put(&self.dir.join("pulled").join(file(reference)), &to_value(reference, &record))
    }

    fn record(&self, reference: &str) -> io::Result<Option<Record>> {
        let text = match fs::read(self.dir.join("pulled").join(file(reference))) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let value = json::parse(&text).map_err(io::Error::other)?;
        Ok(Some(read(&value)))
    }

    /// Reads all files of one kind; ignores malformed ones.
    fn list(&self, kind: &str) -> io::Result<Vec<(PathBuf, Value)>> {
        let mut all = Vec::new();
        let entries = match fs::read_dir(self.dir.join(kind)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let is_record =
                path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("sha256-"));
            if is_record && let Ok(value) = json::parse(&fs::read(&path)?) {
                all.push((path, value));
            }
        }
        Ok(all)
    }
}

fn file(name: &str) -> String {
    format!("sha256-{}", sha256_hex(name))
}

/// Replaces a file atomically, readable by its owner only.
fn put(path: &Path, value: &Value) -> io::Result<()> {
    sys::create_dirs(path.parent().expect("a file of ours is in a directory"), 0o700)?;
    sys::replace_file(path, json::to_string(value).as_bytes(), 0o600)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether two image names are equal; a name without a tag means `latest`.
fn same(a: &str, b: &str) -> bool {
    let whole = |image: &str| {
        let repository = verification::repository(image);
        match image.split_once('@') {
            Some((_, digest)) => format!("{repository}@{digest}"),
            None => {
                let last = image.rsplit('/').next().unwrap_or(image);
                format!("{repository}:{}", last.split_once(':').map_or("latest", |(_, tag)| tag))
            }
        }
    };
    whole(a) == whole(b)
}

fn to_value(reference: &str, record: &Record) -> Value {
    let mut mapping = Value::object();
    if let Value::Object(entries) = &mut mapping {
        for (repository, access) in record {
            let secrets: Vec<Value> = access.secrets.iter().map(of_secret).collect();
            let mut entry = match access.everybody {
                true => value!({"nodePodsAccessible": true}),
                false => value!({"kubernetesSecrets": secrets}),
            };
            if let Some(entry) = entry.as_object_mut().filter(|_| !access.accounts.is_empty()) {
                let accounts: Vec<Value> = access.accounts.iter().map(of_account).collect();
                entry.insert("kubernetesServiceAccounts", Value::Array(accounts));
            }
            entries.insert(repository.as_str(), entry);
        }
    }
    value!({"apiVersion": VERSION, "kind": "ImagePulledRecord", "lastUpdatedTime": (component_base::clock::now().to_string()),
        "imageRef": reference, "credentialMapping": mapping})
}

fn of_secret(secret: &SecretUse) -> Value {
    value!({"uid": (secret.uid.as_str()), "namespace": (secret.namespace.as_str()), "name": (secret.name.as_str()),
        "credentialHash": (secret.hash.as_str())})
}

fn of_account(account: &AccountUse) -> Value {
    value!({"uid": (account.uid.as_str()), "namespace": (account.namespace.as_str()), "name": (account.name.as_str())})
}

fn read(value: &Value) -> Record {
    let entries = value["credentialMapping"].as_object().into_iter().flat_map(apimachinery::Object::iter);
    let secret = |value: &Value| {
        let text = |field: &str| value.str_at(&[field]).unwrap_or_default().to_owned();
        SecretUse { uid: text("uid"), namespace: text("namespace"), name: text("name"), hash: text("credentialHash") }
    };
    let account = |value: &Value| {
        let text = |field: &str| value.str_at(&[field]).unwrap_or_default().to_owned();
        AccountUse { uid: text("uid"), namespace: text("namespace"), name: text("name") }
    };
    let access = |value: &Value| Access {
        everybody: value["nodePodsAccessible"].as_bool() == Some(true),
        secrets: value["kubernetesSecrets"].as_array().unwrap_or_default().iter().map(secret).collect(),
        accounts: value["kubernetesServiceAccounts"].as_array().unwrap_or_default().iter().map(account).collect(),
    };
    entries.map(|(repository, value)| (repository.to_owned(), access(value))).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const IMAGE: &str = "r.example/a:1";

    fn secret(name: &str) -> Source {
        let hash = format!("hash of {name}");
        Source::Secret(SecretUse { uid: "u".into(), namespace: "n".into(), name: name.into(), hash })
    }

    fn account(name: &str) -> Source {
        Source::Account(AccountUse { uid: "u".into(), namespace: "n".into(), name: name.into() })
    }

    async fn reconcile(pulls: &Pulls, images: &[(&str, &str)]) {
        let image = |(id, tag): &(&str, &str)| v1::Image {
            id: (*id).to_owned(),
            repo_tags: vec![(*tag).to_owned()],
            ..Default::default()
        };
        let images: Vec<v1::Image> = images.iter().map(image).collect();
        pulls.reconcile(async { Ok::<_, Infallible>(images) }).await.unwrap();
    }

    #[tokio::test]
    async fn pull_records_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let pulls = || Pulls::new(dir.path(), Verification::default());
        assert!(pulls().may_use(IMAGE, "id", &[]).await, "it was here before");
        pulls().record_start(IMAGE).await.unwrap();
        assert!(!pulls().may_use(IMAGE, "id", &[]).await, "its pull was cut off");
        let first = pulls();
        first.record_start(IMAGE).await.unwrap();
        first.end(IMAGE, Some(("id", Some(&secret("one"))))).await;
        let next = pulls();
        assert!(next.may_use(IMAGE, "id", &[secret("one")]).await);
        assert!(!next.may_use(IMAGE, "id", &[secret("two")]).await);
        assert_eq!(fs::read_dir(dir.path().join("image_manager/pulling")).unwrap().count(), 0);
        next.end(IMAGE, Some(("id", Some(&account("robot"))))).await;
        assert!(pulls().may_use(IMAGE, "id", &[account("robot")]).await);
        assert!(pulls().may_use(IMAGE, "id", &[secret("one")]).await);
        assert!(!pulls().may_use(IMAGE, "id", &[account("other")]).await);
        next.record_start(IMAGE).await.unwrap();
        next.end(IMAGE, Some(("id", None))).await;
        assert!(pulls().may_use(IMAGE, "id", &[]).await, "everybody could pull it");
    }

    #[tokio::test]
    async fn interrupted_pulls_have_no_credentials_and_removed_images_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let pulls = || Pulls::new(dir.path(), Verification::default());
        pulls().record_start("busybox").await.unwrap();
        let next = pulls();
        reconcile(&next, &[("id", "docker.io/library/busybox:latest")]).await;
        assert!(!next.may_use("busybox", "id", &[]).await, "nobody knows who pulled it");
        assert_eq!(fs::read_dir(dir.path().join("image_manager/pulling")).unwrap().count(), 0);
        reconcile(&next, &[]).await;
        assert!(next.may_use("busybox", "id", &[]).await, "another that came by the same name was not pulled");
    }

    #[tokio::test]
    async fn unreadable_record_allows_no_use() {
        let dir = tempfile::tempdir().unwrap();
        let pulls = Pulls::new(dir.path(), Verification::default());
        pulls.end(IMAGE, Some(("id", None))).await;
        let file = fs::read_dir(dir.path().join("image_manager/pulled")).unwrap().next().unwrap().unwrap().path();
        fs::write(&file, "{").unwrap();
        assert!(!pulls.may_use(IMAGE, "id", &[]).await);
        pulls.end(IMAGE, Some(("id", None))).await;
        assert!(pulls.may_use(IMAGE, "id", &[]).await);
    }
}
