//! The completions, in the shells themselves.

use crate::common::{self, Cluster, Env, ccm, env};
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::Command;

/// What is typed, and what may follow. A star means that there may be other completions.
#[rustfmt::skip] // A case is a line.
const CASES: &[(&str, &str)] = &[
    ("ccm no", "node"),
    ("ccm node ", "inspect list relabel sync"),
    ("ccm node in", "inspect"),
    ("ccm help lb ", "adopt inspect list release replace sync"),
    ("ccm help tr", "troubleshooting"),
    ("ccm completions ", "bash fish zsh"),
    ("ccm completions f", "fish"),
    ("ccm explain http-cookie", "http-cookie-lifetime http-cookie-name"),
    ("ccm co", "completions config"),
    ("ccm node list --det", ""),
    ("ccm node sync --det", "--detailed-exitcode"),
    ("ccm lb sync --dry", "--dry-run"),
    ("ccm lb list --names", "--namespace"),
    ("ccm node list --names", ""),
    ("ccm run --controll", "--controllers"),
    ("ccm --once --controll", "--controllers"),
    ("ccm config --controll", "--controllers"),
    ("ccm config --outp", "--output"),
    ("ccm run --outp", ""),
    ("ccm --context x no", "node"),
    ("ccm --context x node ", "inspect list relabel sync"),
    ("ccm --context x node in", "inspect"),
    ("ccm node --context x in", "inspect"),
    ("ccm --context x node sync --det", "--detailed-exitcode"),
    ("ccm node list --output ", "json name table wide yaml"),
    ("ccm node list -o y", "yaml"),
    ("ccm node list --output=j", "json"),
    ("ccm run --cloud-provider=h", "hcloud"),
    ("ccm run --once --cloud-provider ", "ccm-from-scratch hcloud"),
    ("ccm run --leader-elect=f", "false"),
    ("ccm run --test-time", ""),
    ("ccm lb list -n ", ""),
    ("ccm lint -f mani", "manifest.yaml"),
    ("ccm lint --filename=mani", "manifest.yaml"),
    ("ccm lint mani", "manifest.yaml"),
    ("ccm lint --fil", "--filename"),
    ("ccm node list --kubeconfig mani", "manifest.yaml"),
    ("ccm --context a", "admin@prod arn:aws:eks:one"),
    ("ccm --context=admin@", "admin@prod"),
    ("ccm node list --context arn:aws:", "arn:aws:eks:one"),
    ("ccm --context ", "admin@prod arn:aws:eks:one"),
    ("ccm --context=x", ""),
];

/// Names of contexts that every shell takes as they are.
const HONEST: [&str; 2] = ["admin@prod", "arn:aws:eks:one"];

/// Names that a shell would expand, split or run. A name that is run creates the file `ran`.
const HOSTILE: [&str; 11] = [
    "$(>ran)", "x$(>ran)", "`>ran`", "x;>ran", "x y", "it's", "say\"x", "x*", "~root", "${HOME}",
    "x\n>ran",
];

/// What is typed in a cluster with hostile names, and what may follow.
const CASES_OF_CLUSTER: &[(&str, &str)] = &[
    ("ccm node inspect ", "worker-1"),
    ("ccm node inspect nodes/", "nodes/worker-1"),
    ("ccm node inspect x", ""),
    ("ccm node relabel ", "worker-1"),
    ("ccm lb inspect ", "default/web web"),
    ("ccm lb inspect x", ""),
    ("ccm lb list -n ", "default"),
];

fn kubeconfig() -> String {
    let names = HONEST.iter().chain(&HOSTILE);
    let contexts: Vec<Value> = names.map(|name| json!({ "name": name, "context": {} })).collect();
    json!({ "contexts": contexts }).to_string()
}

fn script(shell: &str) -> String {
    let ran = ccm(&Vec::new(), &["completions", shell]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
    ran.stdout
}

/// Runs a shell that can read the script, and returns every line that it prints. Without an environment only the
/// kubeconfig of [`kubeconfig`] exists. Fails when a name was run.
fn runs(shell: &str, flag: &str, lines: &str, env: &Env) -> Option<Vec<String>> {
    let folder = format!("ccm-{shell}-{}-{}", std::process::id(), env.len());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("script");
    std::fs::write(&path, script(shell)).unwrap();
    std::fs::write(folder.join("manifest.yaml"), "").unwrap();
    std::fs::write(folder.join("config"), kubeconfig()).unwrap();
    let text = lines.replace("SCRIPT", &path.display().to_string());
    let ran = Command::new(shell)
        .args([flag, &text])
        .env("HOME", &folder)
        .env("KUBECONFIG", folder.join("config"))
        .current_dir(&folder)
        .envs(env.iter().cloned())
        .env("PATH", path_with_ccm())
        .output();
    let Ok(output) = ran else {
        let why = format!("there is no {shell}");
        sandbox::skipped::skip("completions", shell, &why);
        return None;
    };
    let has_run = folder.join("ran").exists();
    assert!(!has_run, "{shell} ran a name: {output:?}");
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complaints, "", "{shell}: {text}");
    let printed = String::from_utf8(output.stdout).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    Some(printed.lines().map(str::to_owned).collect())
}

/// The scripts run the program that is completed.
fn path_with_ccm() -> OsString {
    let own = common::binary().parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&path))).unwrap()
}

/// A line `@N` begins what was offered for the case of that number.
fn check(shell: &str, cases: &[(&str, &str)], printed: &[String]) {
    let mut offered = vec![BTreeSet::new(); cases.len()];
    let mut case = 0;
    for line in printed {
        match line.strip_prefix('@') {
            Some(number) => case = number.parse().unwrap(),
            None => offered[case].extend(line.split(' ').filter(|word| !word.is_empty())),
        }
    }
    for ((typed, expected), offered) in cases.iter().zip(offered) {
        let expected: BTreeSet<&str> = expected.split(' ').filter(|w| !w.is_empty()).collect();
        assert_eq!(offered, expected, "{shell}: {typed}");
    }
}

/// Types each case in a shell, and checks the completions. Returns false when the shell is not installed.
fn completes(shell: &str, cases: &[(&str, &str)], env: &Env) -> bool {
    let printed = match shell {
        "bash" => in_bash(cases, env),
        "zsh" => in_zsh(cases, env),
        _ => in_fish(cases, env),
    };
    if let Some(printed) = &printed {
        check(shell, cases, printed);
    }
    printed.is_some()
}

fn in_bash(cases: &[(&str, &str)], env: &Env) -> Option<Vec<String>> {
    let mut text =
        "set -eu; source SCRIPT; set +eu; COMP_WORDBREAKS=$' \\t\\n\"\\'@><=;|&(:'\n".to_owned();
    for (number, (typed, _)) in cases.iter().enumerate() {
        let length = typed.len();
        text += &format!("COMPREPLY=(); COMP_LINE='{typed}'; COMP_POINT={length}; _ccm ccm\n");
        // An answer begins after the last word break of readline, which adds the part before it again.
        let value = typed.rsplit([' ', '=']).next().unwrap();
        let kept = value.rfind(['@', ':']).map_or("", |at| &value[..=at]);
        text += &format!("echo @{number}; echo \"${{COMPREPLY[@]/#/{kept}}}\"\n");
    }
    text += "complete -p ccm";
    let mut printed = runs("bash", "-c", &text, env)?;
    assert_eq!(printed.pop().as_deref(), Some("complete -F _ccm ccm"));
    Some(printed)
}

/// Outside of its line editor zsh has neither the words nor `compadd`. The test replaces them, and drops what does not
/// begin with the typed text, as zsh does.
fn in_zsh(cases: &[(&str, &str)], env: &Env) -> Option<Vec<String>> {
    let mut text = "compdef() {}; _files() { print -r -- $PREFIX*(N) }\n\
        compset() { PREFIX=${PREFIX#*=} }\n\
        compadd() { shift; for word in \"$@\"; do [[ $word == \"$PREFIX\"* ]] && print -r -- $word; done; true }\n\
        source SCRIPT\n"
        .to_owned();
    for (number, (typed, _)) in cases.iter().enumerate() {
        let words: Vec<String> = typed.split(' ').map(|word| format!("'{word}'")).collect();
        let (list, count) = (words.join(" "), words.len());
        text +=
            &format!("print @{number}; words=({list}); CURRENT={count}; PREFIX=$words[-1]; _ccm\n");
    }
    runs("zsh", "-fc", &text, env)
}

fn in_fish(cases: &[(&str, &str)], env: &Env) -> Option<Vec<String>> {
    let mut text = "source SCRIPT\n".to_owned();
    for (number, (typed, _)) in cases.iter().enumerate() {
        text += &format!("echo @{number}; complete -C '{typed}' | string replace -r '\\t.*' ''\n");
    }
    let printed = runs("fish", "-c", &text, env)?;
    // A value after = comes with its flag there.
    let value = |line: &String| match line.split_once('=') {
        Some((_, value)) => value.to_owned(),
        None => line.clone(),
    };
    Some(printed.iter().map(value).collect())
}

#[test]
fn bash_completes_commands_flags_and_names() {
    assert!(completes("bash", CASES, &Env::new()), "bash is everywhere");
}

#[test]
fn zsh_completes_commands_flags_and_names() {
    completes("zsh", CASES, &Env::new());
}

#[test]
fn fish_completes_commands_flags_and_names() {
    completes("fish", CASES, &Env::new());
}

/// The cluster has names that no API server would accept, because a kubeconfig may name any server.
#[test]
fn names_that_a_shell_would_run_are_not_offered() {
    let sandbox = Sandbox::builder().nodes(1).heartbeats(false).start();
    sandbox.create("web", &[], &[80]);
    for (number, hostile) in HOSTILE.iter().enumerate() {
        let name = format!("hostile-{number}");
        let rename = |object: &mut Value| object["metadata"]["name"] = json!(hostile);
        sandbox.create(&name, &[], &[80]);
        sandbox.edit(&name, rename);
        sandbox.register(&name, None, "");
        sandbox.edit_node(&name, rename);
    }
    let elsewhere = |object: &mut Value| object["metadata"]["namespace"] = json!("x$(>ran)");
    sandbox.create("elsewhere", &[], &[80]);
    sandbox.edit("elsewhere", elsewhere);
    for shell in ["bash", "zsh", "fish"] {
        completes(shell, CASES_OF_CLUSTER, &env(&sandbox));
    }
}

#[test]
fn an_unknown_shell_is_refused_with_the_known_ones() {
    let one = "completions takes one word: bash, zsh or fish\n";
    for (words, told) in [
        ("completions", one),
        ("completions bash zsh", one),
        ("completions zhs", "unknown shell \"zhs\"; did you mean zsh?\nSee ccm help.\n"),
        ("completions tcsh", "unknown shell \"tcsh\"; "),
    ] {
        let ran = ccm(&Vec::new(), &words.split(' ').collect::<Vec<_>>());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{words}");
        let told = format!("ccm: {told}");
        assert!(ran.stderr.starts_with(&told), "{words}: {}", ran.stderr);
    }
}
