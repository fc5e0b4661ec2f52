//! Makes the protocol's types and services from its proto files, without a protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["proto/rpc.proto", "proto/lock.proto", "proto/election.proto"];
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
