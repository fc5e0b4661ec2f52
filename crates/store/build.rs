//! Generates the gRPC types and services from the proto files, without an installed protoc, and a table of all methods.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["proto/rpc.proto", "proto/lock.proto", "proto/election.proto"];
    let descriptors = protox::compile(files, ["proto"])?;
    let mut methods = Vec::new();
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                let kind = match (method.client_streaming(), method.server_streaming()) {
                    (false, false) => "unary",
                    (false, true) => "server_stream",
                    (true, false) => "client_stream",
                    (true, true) => "bidi_stream",
                };
                methods.push((format!("{}.{}", file.package(), service.name()), method.name().to_owned(), kind));
            }
        }
    }
    // Sorted by path, for binary search.
    methods.sort_by_key(|(service, method, _)| format!("/{service}/{method}"));
    let mut table = "&[\n".to_owned();
    for (service, name, kind) in methods {
        let path = format!("/{service}/{name}");
        writeln!(table, "    Method {{ path: {path:?}, service: {service:?}, name: {name:?}, kind: {kind:?} }},")?;
    }
    table.push_str("]\n");
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("methods.rs"), table)?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
