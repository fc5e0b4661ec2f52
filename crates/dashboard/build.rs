//! Lists the built assets of the user interface, so that they are embedded into the binary.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets the variable")).join("assets");
    println!("cargo::rerun-if-changed={}", dir.display());
    let mut names: Vec<String> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}; run `cargo xtask dashboard`", dir.display()))
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    let mut table = String::from("[\n");
    for name in names.iter().filter_map(|name| name.strip_suffix(".gz")) {
        let path = dir.join(format!("{name}.gz"));
        writeln!(table, "    ({name:?}, include_bytes!({path:?})),").expect("writing to a String cannot fail");
    }
    table.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets the variable"));
    write(&out.join("assets.rs"), &format!("&{table}"));
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
