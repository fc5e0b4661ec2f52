//! Reads and writes one kubeconfig file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use apimachinery::{Object, Value, yaml};

use super::{Entry, Kubeconfig, Section};
use crate::Failure;
use crate::failure::{chain, go_io_error};

/// Reads a file; [`None`] if it does not exist.
pub(super) fn load(file: &Path) -> Result<Option<Kubeconfig>, Failure> {
    let path = file.display();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let error = go_io_error(&error);
            return Err(Failure::new(format!("error loading config file \"{path}\": open {path}: {error}")));
        }
    };
    let tree = yaml::parse(&text)
        .map_err(|error| Failure::new(format!("error loading config file \"{path}\": {}", chain(&error))))?;
    Ok(Some(of_tree(&tree, file)))
}

fn of_tree(tree: &Value, file: &Path) -> Kubeconfig {
    let mut config = Kubeconfig {
        current_context: tree.str_at(&["current-context"]).unwrap_or_default().to_owned(),
        preferences: tree.get("preferences").cloned().unwrap_or_default(),
        extensions: tree.get("extensions").cloned().unwrap_or_default(),
        ..Kubeconfig::default()
    };
    for section in Section::ALL {
        let items = tree.get(section.list()).and_then(Value::as_array).unwrap_or_default();
        for item in items {
            let name = item.str_at(&["name"]).unwrap_or_default().to_owned();
            let fields = item.get(section.key()).and_then(Value::as_object).cloned().unwrap_or_else(Object::new);
            let origin = Some(file.to_owned());
            config.entries_mut(section).entry(name).or_insert(Entry { fields, origin });
        }
    }
    config
}

/// Replaces a file atomically. A new file is readable by its owner only. A symbolic link is kept.
pub(super) fn store(file: &Path, config: &Kubeconfig) -> Result<(), Failure> {
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mode = fs::metadata(&target).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    let mut temporary = tempfile::Builder::new()
        .prefix(".config-")
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(directory)?;
    temporary.write_all(yaml::to_string(&config.to_value()).as_bytes())?;
    temporary.as_file().sync_all()?;
    temporary.persist(&target).map_err(|error| Failure::from(error.error))?;
    Ok(())
}

/// Keeps other kubectls from changing a file.
#[derive(Debug)]
pub struct Lock {
    file: PathBuf,
}

impl Lock {
    /// Creates the lock file; fails if it exists.
    pub fn new(file: &Path) -> Result<Self, Failure> {
        let mut name = file.as_os_str().to_owned();
        name.push(".lock");
        let file = PathBuf::from(name);
        if let Some(directory) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(directory)?;
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o000).open(&file) {
            Ok(_) => Ok(Self { file }),
            Err(error) => Err(Failure::new(format!("open {}: {}", file.display(), go_io_error(&error)))),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}
