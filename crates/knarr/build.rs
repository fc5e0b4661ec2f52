//! How the binary is linked as it is released.

fn main() {
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
