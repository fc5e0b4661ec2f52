//! Generates the CRI types and services from the proto files, without protoc on the host.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["proto/service.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
