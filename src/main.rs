//! The program: it passes its arguments to the library, which returns the exit code.

use dlmalloc::GlobalDlmalloc;
use std::process::ExitCode;

/// The allocator of the C library in the static binary asks the kernel for most blocks of more than some kilobytes, and
/// returns them at once. A poll of the API server has many such blocks, and this took a third of the processor time of a
/// daemon at rest.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    ccm::cli::main(std::env::args_os().collect())
}
