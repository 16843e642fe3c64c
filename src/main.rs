//! Parse, dispatch, exit code: nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    ccm::cli::main(std::env::args_os().collect())
}
