//! How the binary is linked as it is released, and the licences that it contains in compressed form.

use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Written by `cargo xtask licenses`.
const LICENSES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../THIRD_PARTY_LICENSES");

fn main() {
    compress_licenses();
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|found| found == value);
    // Generic code that comes out the same for different types is kept once: a fifth of the binary. It needs LLD, which is
    // what this toolchain links with on this target.
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        // And addresses that the loader must correct are kept as a bit each, which glibc knows from 2.36 on.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

fn compress_licenses() {
    println!("cargo::rerun-if-changed={LICENSES}");
    let text = std::fs::read(LICENSES).expect("THIRD_PARTY_LICENSES is part of the tree");
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&text).expect("memory takes everything");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where")).join("licenses.deflate");
    std::fs::write(out, encoder.finish().expect("memory takes everything"))
        .expect("the build directory can be written");
}
