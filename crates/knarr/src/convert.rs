//! `knarr convert`: reads objects in any encoding and writes them in the requested one.

use std::io::{self, Read};
use std::path::PathBuf;

use anyhow::Context as _;
use api::codec::{self, Encoding};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::output;

const ENCODINGS: [(&str, Encoding); 3] =
    [("json", Encoding::Json), ("yaml", Encoding::Yaml), ("protobuf", Encoding::Protobuf)];

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    let file = Arg::new("filename").short('f').long("filename").value_name("FILE").action(ArgAction::Append);
    let output = Arg::new("output").short('o').long("output").value_name("ENCODING").required(true);
    command
        .arg(
            file.value_parser(value_parser!(PathBuf))
                .help("Files to read; `-` is standard input, which is also the default"),
        )
        .arg(output.value_parser(PossibleValuesParser::new(ENCODINGS.map(|(name, _)| name))).help("Output format"))
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let requested = matches.get_one::<String>("output").expect("clap requires it");
    let (_, encoding) = ENCODINGS.into_iter().find(|(name, _)| name == requested).expect("clap knows only these");
    let files: Vec<PathBuf> =
        matches.get_many("filename").map_or_else(|| vec!["-".into()], |files| files.cloned().collect());
    let mut objects = Vec::new();
    for file in files {
        let bytes = read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        objects.extend(codec::decode(&bytes).with_context(|| file.display().to_string())?);
    }
    let written = codec::encode(&objects, encoding)?;
    for warning in &written.warnings {
        output::error_line(format_args!("warning: {warning}"));
    }
    output::bytes(&written.bytes);
    Ok(())
}

fn read(file: &PathBuf) -> io::Result<Vec<u8>> {
    if file.as_os_str() != "-" {
        return std::fs::read(file);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}
