//! Command line of the simulation: `sim [--start SEED] [--seeds COUNT]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut start = 0_u64;
    let mut seeds = 1000_u64;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let number = arguments.next().and_then(|number| number.parse().ok());
        match (name.as_str(), number) {
            ("--start", Some(number)) => start = number,
            ("--seeds", Some(number)) => seeds = number,
            _ => {
                eprintln!("usage: sim [--start SEED] [--seeds COUNT]");
                return ExitCode::from(2);
            }
        }
    }
    let mut total = sim::Report::default();
    for seed in start..start + seeds {
        match sim::run(seed, sim::Options::default()) {
            Ok(report) => {
                total.events += report.events;
                total.known += report.known;
                total.unknown += report.unknown;
                total.crashes += report.crashes;
                total.snapshots += report.snapshots;
                total.joined += report.joined;
                total.left += report.left;
                total.full += report.full;
            }
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    let sim::Report { events, known, unknown, crashes, snapshots, joined, left, full, .. } = total;
    println!(
        "{seeds} seeds held: {events} events, {known} operations, {unknown} in doubt, {crashes} crashes, \
         {snapshots} snapshots, {joined} members joined, {left} left, {full} times a disk was full"
    );
    ExitCode::SUCCESS
}
