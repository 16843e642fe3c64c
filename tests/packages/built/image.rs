//! The image as `manifests/image.sh` builds it with buildah. It contains the static binary when `make build` has made
//! one, and otherwise a stand-in, because the tests are about everything else in the image.

use crate::built::rendered::{base, folder, one, pod};
use crate::common::{self, Cluster, Ran, all_initialised, env};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOBODY: &str = "65532:65532";

/// A folder of this test's own, gone with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn has(program: &str, what: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        let why = format!("there is no {program} on this machine");
        sandbox::skipped::skip(what, program, &why);
    }
    there
}

/// Returns the binary that `make build` makes for this machine.
fn static_binary() -> Option<PathBuf> {
    let target = format!("target/{}-unknown-linux-musl", std::env::consts::ARCH);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(target).join("release/ccm");
    path.exists().then_some(path)
}

/// An unpacked image: its digest, its configuration, and the archive of its only layer.
struct Image {
    digest: String,
    config: Value,
    layer: PathBuf,
}

/// Builds one into a folder that is not there yet.
fn build(binary: &Path, architecture: &str, into: &Path) -> Image {
    std::fs::create_dir_all(into).unwrap();
    let store = into.join("store");
    let builder =
        format!("buildah --root {0}/root --runroot {0}/run --storage-driver vfs", store.display());
    let mut script = Command::new(folder().join("image.sh"));
    script.args([binary.as_os_str(), architecture.as_ref(), into.as_os_str()]);
    let built = script.env("BUILDER", builder).output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let mut archives = std::fs::read_dir(into).unwrap().map(|one| one.unwrap());
    let archive = archives.find(|one| one.path().extension().is_some_and(|kind| kind == "tar"));
    tar(&["-xf", archive.unwrap().path().to_str().unwrap()], into);
    let json =
        |path: PathBuf| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let blob = |digest: &Value| {
        let (_, name) = digest.as_str().unwrap().split_once(':').unwrap();
        into.join("blobs/sha256").join(name)
    };
    let digest = json(into.join("index.json"))["manifests"][0]["digest"].clone();
    let manifest = json(blob(&digest));
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1, "{manifest}");
    Image {
        config: json(blob(&manifest["config"]["digest"])),
        layer: blob(&layers[0]["digest"]),
        digest: digest.as_str().unwrap().to_owned(),
    }
}

fn tar(words: &[&str], folder: &Path) -> String {
    let mut command = Command::new("tar");
    let ran = command.args(words).arg("-C").arg(folder).output().unwrap();
    Ran::from(ran).with_code(0).stdout
}

#[test]
fn the_image_contains_the_binary_and_its_link_and_names_its_source() {
    if !has("buildah", "the image") {
        return;
    }
    let place = Place::new("image-contents");
    let binary = place.0.join("binary");
    std::fs::write(&binary, "a stand-in").unwrap();
    for (architecture, named) in [("x86_64", "amd64"), ("aarch64", "arm64")] {
        let image = build(&binary, architecture, &place.0.join(named));
        let list = tar(&["--numeric-owner", "-tvzf", image.layer.to_str().unwrap()], &place.0);
        let mut entries: Vec<String> = list
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                // The words are mode, owner, size and two for the time. The rest is the name.
                format!("{} {} {}", words[0], words[1], words[5..].join(" "))
            })
            .collect();
        entries.sort();
        assert_eq!(
            entries,
            [
                "-rwxr-xr-x 0/0 ccm",
                "drwxr-xr-x 0/0 bin/",
                "lrwxrwxrwx 0/0 bin/hcloud-cloud-controller-manager -> ../ccm",
            ]
        );
        assert_eq!(image.config["architecture"], named);
        let config = &image.config["config"];
        assert_eq!(config["User"], NOBODY);
        assert_eq!(config["Entrypoint"], serde_json::json!(["/ccm"]));
        let labels = &config["Labels"];
        let label = |name: &str| labels[format!("org.opencontainers.image.{name}")].clone();
        assert_eq!(label("version"), env!("CARGO_PKG_VERSION"));
        assert!(!label("revision").as_str().unwrap().is_empty(), "{labels}");
        assert_eq!(label("licenses"), "MIT");
    }
    // The Pod is that user too.
    let base = base();
    let context = &pod(one(&base, "Deployment"))["securityContext"];
    let user = format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
    assert_eq!(user, NOBODY);
}

/// The result does not depend on who builds, where, when, and under which umask.
#[test]
fn two_images_of_one_commit_are_equal() {
    if !has("buildah", "equal images") {
        return;
    }
    let place = Place::new("image-twice");
    let mut digests = Vec::new();
    for (name, text, mode) in
        [("a", "same", "u=rw"), ("b", "same", "a=rwx"), ("c", "other", "u=rw")]
    {
        let binary = place.0.join(format!("binary-of-{name}"));
        std::fs::write(&binary, text).unwrap();
        let touched = ["touch", "chmod"].map(|program| {
            let words = match program {
                "touch" => ["-d", if name == "a" { "2001-01-01" } else { "2020-02-02" }],
                _ => [mode, "--"],
            };
            Command::new(program).args(words).arg(&binary).status()
        });
        assert!(touched.into_iter().all(|ran| ran.unwrap().success()));
        digests.push(build(&binary, "x86_64", &place.0.join(name)).digest);
    }
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
}

/// The image is started as a container runtime would in the Deployment of the other project: as nobody, on a read-only
/// root, and by the name of that project's binary. The files exist that the runtime mounts into a Pod.
#[test]
fn the_image_runs_as_nobody_on_a_read_only_root() {
    const WHAT: &str = "the image's binary, run";
    if !has("buildah", WHAT) {
        return;
    }
    let Some(binary) = static_binary() else {
        sandbox::skipped::skip(WHAT, "", "there is no static binary yet; make build makes one");
        return;
    };
    let may_mount = Command::new("unshare").args(["--mount", "true"]).output();
    if !may_mount.is_ok_and(|ran| ran.status.success()) {
        sandbox::skipped::skip(WHAT, "", "only root may mount and change the root");
        return;
    }
    let place = Place::new("image-run");
    let image = build(&binary, std::env::consts::ARCH, &place.0.join("image"));
    let root = place.0.join("root");
    std::fs::create_dir_all(root.join("kube")).unwrap();
    tar(&["-xzf", image.layer.to_str().unwrap()], &root);
    let sandbox = common::socket_cluster(1);
    let given = env(&sandbox);
    let kubeconfig = common::variable(&given, "KUBECONFIG");
    std::fs::write(root.join("kube/config"), std::fs::read(kubeconfig).unwrap()).unwrap();
    let script = r#"mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" &&
        chroot --userspec="$1" "$0" /bin/hcloud-cloud-controller-manager --allow-untagged-cloud --once &&
        ! touch "$0/written""#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec", script])
        .arg(&root)
        .arg(image.config["config"]["User"].as_str().unwrap())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(common::with(given, &[("KUBECONFIG", "/kube/config")]));
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert!(all_initialised(&sandbox), "{said}");
    let id = sandbox.node("worker-1")["spec"]["providerID"].clone();
    assert!(id.as_str().unwrap().starts_with("hcloud://"), "{id}");
}
