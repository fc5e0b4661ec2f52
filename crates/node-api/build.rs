//! Generates the types and services of the node's gRPC protocols from the proto files, without protoc on the host.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["csi", "devices", "dra", "pod_resources", "registration", "service"];
    let descriptors = protox::compile(files.map(|name| format!("proto/{name}.proto")), ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
