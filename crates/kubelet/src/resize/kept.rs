//! What a pod was given, in a file of its directory: a kubelet that starts again must not take a wish for a gift.

use std::fs;
use std::io;
use std::path::Path;

use machinery::{Value, json};

use super::Allocation;
use crate::checkpoint;

const FILE: &str = "allocated.json";

/// What was written down last for a pod; nothing if nothing was.
pub fn read(pod_dir: &Path) -> Option<Allocation> {
    let text = fs::read(pod_dir.join(FILE)).ok()?;
    match json::parse(&text) {
        Ok(Value::Object(all)) => Some(Allocation(all)),
        _ => {
            tracing::error!(dir = %pod_dir.display(), "it is not known what a pod was given");
            None
        }
    }
}

/// Writes it down, whole or not at all.
pub fn write(pod_dir: &Path, allocation: &Allocation) -> io::Result<()> {
    checkpoint::write(pod_dir, FILE, &Value::Object(allocation.0.clone()))
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;
    use crate::pod::Pod;

    #[test]
    fn what_was_given_is_read_again_and_nonsense_is_nothing() {
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
