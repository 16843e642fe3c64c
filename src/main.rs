//! The program: it passes its arguments to the library, which returns the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ccm::cli::main(std::env::args_os().collect())
}
