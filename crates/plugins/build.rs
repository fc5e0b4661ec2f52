//! Makes the protocols' types and services from their proto files, without a protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["csi", "devices", "dra", "pod_resources", "registration"].map(|name| format!("proto/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
