//! Checkpoint of a pod's allocated resources: a restarted kubelet must not treat desired resources as allocated.

use std::fs;
use std::io;
use std::path::Path;

use apimachinery::{Value, json};

use super::Allocation;
use crate::checkpoint;

const FILE: &str = "allocated.json";

/// Reads the checkpoint of a pod; `None` if it is missing or unreadable.
pub fn read(pod_dir: &Path) -> Option<Allocation> {
    let text = fs::read(pod_dir.join(FILE)).ok()?;
    match json::parse(&text) {
        Ok(Value::Object(all)) => Some(Allocation(all)),
        _ => {
            tracing::error!(dir = %pod_dir.display(), "failed to parse the resource checkpoint of a pod");
            None
        }
    }
}

/// Replaces the checkpoint atomically.
pub fn write(pod_dir: &Path, allocation: &Allocation) -> io::Result<()> {
    checkpoint::write(pod_dir, FILE, &Value::Object(allocation.0.clone()))
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::pod::Pod;

    #[test]
    fn checkpoint_round_trips_and_a_corrupt_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let pod = value!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
        let given = Allocation::of(Pod(&pod));
        assert_eq!(read(dir.path()), None);
        write(&dir.path().join("uid"), &given).unwrap();
        assert_eq!(read(&dir.path().join("uid")), Some(given));
        fs::write(dir.path().join(FILE), "[").unwrap();
        assert_eq!(read(dir.path()), None);
    }
}
