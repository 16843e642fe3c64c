//! `make demo`, which README begins with.

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_demo_runs_to_its_end() {
    let folder = Path::new(env!("CARGO_BIN_EXE_ccm")).parent().unwrap();
    if !folder.join("sandbox").exists() {
        return sandbox::skipped::skip(
            "the demo",
            "",
            "there is no sandbox binary: cargo build --workspace",
        );
    }
    let output = Command::new("tests/demo.sh")
        .env("CCM_DEMO_BINARIES", folder)
        // Nobody reads the output, so ccm's waits are a fifth.
        .env("CCM_TEST_TIME_SCALE", "0.2")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    for step in ["10.244.2.0/24", "(exit 0)"] {
        assert!(text.contains(step), "{step}: {text}");
    }
}
