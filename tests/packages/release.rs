//! `make release` says what it needs before it builds anything. `make test-release` makes two whole releases.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

#[test]
fn a_missing_tool_of_make_release_is_named_with_its_remedy() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release-programs");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/release.sh");
    symlink("/usr/bin/dirname", folder.join("dirname")).unwrap();
    // Each is there for the next ones.
    for (program, remedy) in [
        ("git", "apt-get install git"),
        ("cargo", "install rustup: https://rustup.rs"),
        ("rustup", "https://rustup.rs"),
        ("buildah", "apt-get install buildah"),
        ("jq", "apt-get install jq"),
    ] {
        let mut command = Command::new("/bin/sh");
        let ran = command.arg(&script).env("PATH", &folder).output().unwrap();
        let error = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(1), "{error}");
        let begin = format!("release: there is no {program} here: ");
        assert!(error.starts_with(&begin), "{error}");
        assert!(error.ends_with(&format!("{remedy}\n")), "{error}");
        symlink("/bin/true", folder.join(program)).unwrap();
    }
}
