//! The program `tidegate-bench`: the library has its commands.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_bench::run()
}
