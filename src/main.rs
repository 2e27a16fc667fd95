//! The binary: install what the whole process shares, run the command line, exit.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // First of all: two libraries bring a provider of their own, and rustls picks none by itself.
    // Only a second installation fails, and there is none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    countersign::cli::main().into()
}
