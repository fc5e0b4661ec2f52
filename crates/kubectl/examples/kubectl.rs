//! kubectl alone, without the rest of the binary: builds in seconds.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl::main(std::env::args_os().skip(1).collect())
}
