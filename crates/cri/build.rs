//! Makes the contract's types and services from its proto files, without a protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["proto/service.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
