//! Build script: generates the KMS v2 gRPC types and client from `proto/kms.proto` without needing protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["proto/kms.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
