//! The name that the program was called by: under that of hcloud-cloud-controller-manager it is that one, so that a
//! Deployment whose `command:` names it works with only the image changed.

use std::ffi::OsString;
use std::path::Path;

/// The image has a link of this name in `/bin`.
const DROP_IN: &str = "hcloud-cloud-controller-manager";

/// The words without the program's name, and with the profile that this name asks for. It stands before all flags,
/// so that one that is typed wins.
pub(super) fn words(mut all: Vec<OsString>) -> Vec<OsString> {
    if all.is_empty() {
        return all;
    }
    let program = all.remove(0);
    let is_drop_in = Path::new(&program).file_name() == Some(DROP_IN.as_ref());
    if let Some(at) = first_flag(&all).filter(|_| is_drop_in) {
        all.insert(at, "--cloud-provider=hcloud".into());
    }
    all
}

/// Where the flags of the command begin; none for what takes no profile.
fn first_flag(words: &[OsString]) -> Option<usize> {
    let first = words.first().and_then(|word| word.to_str());
    match first.unwrap_or_default() {
        "-h" | "--help" | "--version" | "help" | "version" | "completions" => None,
        // `node list`: the second word too is the command's; without it there is nothing to run.
        "node" | "lb" | "route" => (words.len() > 1).then_some(2),
        flag if flag.is_empty() || flag.starts_with('-') => Some(0),
        _ => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_chooses_the_profile() {
        for (typed, meant) in [
            ("/ccm run", "run"),
            ("ccm", ""),
            ("/bin/hcloud-cloud-controller-manager", "+"),
            (
                "/bin/hcloud-cloud-controller-manager --leader-elect=false -v 4",
                "+ --leader-elect=false -v 4",
            ),
            // pflag's rule: the last one counts.
            (
                "hcloud-cloud-controller-manager --cloud-provider=hcloud",
                "+ --cloud-provider=hcloud",
            ),
            ("hcloud-cloud-controller-manager run --once", "run + --once"),
            (
                "hcloud-cloud-controller-manager node sync a --dry-run",
                "node sync + a --dry-run",
            ),
            ("hcloud-cloud-controller-manager node", "node"),
            ("hcloud-cloud-controller-manager doctor", "doctor +"),
            ("hcloud-cloud-controller-manager --help", "--help"),
            ("hcloud-cloud-controller-manager --version", "--version"),
            (
                "hcloud-cloud-controller-manager help node list",
                "help node list",
            ),
            ("/opt/hcloud-cloud-controller-manager/ccm run", "run"),
        ] {
            let all = typed.split(' ').map(OsString::from).collect();
            let meant = meant.replace('+', "--cloud-provider=hcloud");
            let words = words(all).join(" ".as_ref());
            assert_eq!(words.to_str(), Some(meant.as_str()), "{typed}");
        }
    }
}
