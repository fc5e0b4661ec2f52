//! Built-in images: this binary and the shared libraries that it needs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use image_store::{BUILTIN, Builtin, Config, Name};

/// Path of the binary in the images.
const PROGRAM: &str = "/knarr";

/// Returns `knarr.local/hello`, `knarr.local/pause`, and `knarr.local/knarr` for components that run in pods.
pub(crate) fn images() -> anyhow::Result<Vec<Builtin>> {
    let libraries = sys::loaded_objects();
    let mut files = vec![(PathBuf::from("/proc/self/exe"), PathBuf::from(PROGRAM))];
    files.extend(libraries.iter().map(|path| (path.clone(), path.clone())));
    // The host's loader may search directories of an ld.so.conf that the image does not contain.
    let dirs: BTreeSet<&Path> = libraries.iter().filter_map(|path| path.parent()).collect();
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let mut env = Vec::new();
    if !dirs.is_empty() {
        env.push(format!("LD_LIBRARY_PATH={}", dirs.join(":")));
    }
    let image = |command: &str| {
        let config = Config {
            entrypoint: vec![PROGRAM.to_owned(), command.to_owned()],
            env: env.clone(),
            user: "65535:65535".to_owned(),
            working_dir: "/".to_owned(),
            ..Config::default()
        };
        Ok(Builtin { name: Name::parse(&format!("{BUILTIN}/{command}"))?, files: files.clone(), config })
    };
    let mut images = ["hello", "pause"].into_iter().map(image).collect::<anyhow::Result<Vec<_>>>()?;
    // This image runs as root: components read key files that belong to root.
    let config = Config { entrypoint: vec![PROGRAM.to_owned()], env, working_dir: "/".to_owned(), ..Config::default() };
    images.push(Builtin { name: Name::parse(&format!("{BUILTIN}/knarr"))?, files, config });
    Ok(images)
}
