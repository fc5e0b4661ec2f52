//! `--admission-control-config-file`: reads the AdmissionConfiguration file and the plugin files it references.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use admission::configuration::{self, Error as Wrong};
use apimachinery::Value;

/// Reasons why the admission configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The configuration of one plugin is invalid.
    #[error("{file}: the configuration of admission plugin {plugin:?} is invalid")]
    Plugin {
        /// The AdmissionConfiguration file, or the plugin's file that it references.
        file: PathBuf,
        plugin: String,
        source: Box<Wrong>,
    },
    /// The AdmissionConfiguration file itself is invalid.
    #[error("the admission configuration {0} is invalid")]
    File(PathBuf, #[source] Box<Wrong>),
}

/// Returns the plugin configurations by plugin name. Paths in them are made absolute.
pub fn read(file: &Path) -> Result<BTreeMap<String, Value>, Error> {
    let entries = configuration::parse(&text(file)?).map_err(|wrong| Error::File(file.to_owned(), Box::new(wrong)))?;
    let mut found = BTreeMap::new();
    for entry in entries {
        let path = beside(file, &entry.path);
        let (from, config) = match (entry.path.as_str(), entry.configuration) {
            ("", Value::Null) => continue,
            ("", config) => (file, config),
            _ => {
                let read = configuration::read(&text(&path)?);
                (path.as_path(), read.map_err(|source| named(&path, &entry.name, source))?)
            }
        };
        configuration::check(&entry.name, &config).map_err(|source| named(from, &entry.name, source))?;
        found.insert(entry.name, rooted(config, from));
    }
    Ok(found)
}

fn text(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|error| Error::Read(file.to_owned(), error))
}

fn named(file: &Path, plugin: &str, source: Wrong) -> Error {
    Error::Plugin { file: file.to_owned(), plugin: plugin.to_owned(), source: Box::new(source) }
}

/// Resolves `path` relative to the directory of the file that references it.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// Makes the kubeconfig path in a plugin configuration absolute.
fn rooted(mut config: Value, file: &Path) -> Value {
    let holder = match config.get("imagePolicy") {
        Some(_) => config.get_mut("imagePolicy"),
        None => Some(&mut config),
    };
    if let Some(fields) = holder.and_then(Value::as_object_mut)
        && let Some(path) = fields.get("kubeConfigFile").and_then(Value::as_str).map(|path| beside(file, path))
    {
        fields.insert("kubeConfigFile", path.to_string_lossy().as_ref());
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referenced_files_are_read_and_errors_name_the_file_and_plugin() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("admission.yaml");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        write("image.yaml", "imagePolicy: {kubeConfigFile: kube.yaml}");
        write("admission.yaml", &format!("{head}plugins: [{{name: ImagePolicyWebhook, path: image.yaml}}]"));
        let found = read(&file).unwrap();
        let expect = dir.path().join("kube.yaml");
        assert_eq!(found["ImagePolicyWebhook"]["imagePolicy"]["kubeConfigFile"], expect.to_str().unwrap().into());
        write("admission.yaml", &format!("{head}plugins: [{{name: PodSecurity, path: none.yaml}}]"));
        let missing = dir.path().join("none.yaml");
        assert_eq!(read(&file).unwrap_err().to_string(), format!("failed to read {}", missing.display()));
        write("admission.yaml", &format!("{head}plugins: [{{name: PodSecurity, configuration: {{kind: Nope}}}}]"));
        let error = read(&file).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{}: the configuration of admission plugin \"PodSecurity\" is invalid", file.display())
        );
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, "no kind \"Nope\" is registered for version \"\"");
    }
}
