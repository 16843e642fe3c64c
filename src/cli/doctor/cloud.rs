//! The token, the project's API, and the private Network.

use super::check::{Outcome, counted};
use super::view::View;
use crate::cli::wire::TOKEN_CHARACTERS;
use crate::provider::{Attached, Permission};

/// Below this share of the limit the daemon puts refreshes off.
const RESERVE_SHARE: u64 = 10;

/// What the network and whole seconds make of equal clocks is less.
const WARN_SKEW_S: u64 = 5;
/// Tokens and certificates are refused for less than this, sooner or later.
const FAIL_SKEW_S: u64 = 60;

pub(super) fn token(view: &View) -> Outcome {
    let token = match &view.token {
        Ok(token) => token,
        Err(gap) => {
            let remedy = "make one in the Hetzner Console (Security → API tokens, Read & Write) \
                          and set HCLOUD_TOKEN, or HCLOUD_TOKEN_FILE to its file";
            return Outcome::of_gap(gap, remedy);
        }
    };
    let found = format!("{} characters, from {}", token.characters, token.source);
    match token.characters {
        TOKEN_CHARACTERS => Outcome::ok(found),
        _ => Outcome::warn(
            format!("{found}; tokens of the Cloud API have {TOKEN_CHARACTERS}"),
            "copy it anew, whole and without anything else",
        ),
    }
}

pub(super) fn api(view: &View) -> Outcome {
    match &view.servers {
        Ok(count) => Outcome::ok(format!(
            "{} accepts the token; its project has {}",
            view.endpoint,
            counted(*count, "server")
        )),
        Err(gap) => Outcome::of_gap(
            gap,
            "a refused token: copy it anew or make another one; no answer: check \
             HCLOUD_ENDPOINT, proxies, firewall and DNS from where ccm runs",
        ),
    }
}

pub(super) fn permission(view: &View) -> Outcome {
    if view.servers.is_err() {
        return Outcome::skipped("not checked: see api");
    }
    match &view.checkup.permission {
        Permission::ReadWrite => Outcome::ok(
            "the token may write: the test request was answered with not found, and not refused",
        ),
        Permission::ReadOnly => Outcome::fail(
            "the token may only read: no load balancer can be made or changed",
            "make a token with Read & Write in the Hetzner Console (Security → API tokens)",
        ),
        Permission::Unknown(why) => {
            Outcome::skipped(format!("whether the token may write is unknown: {why}"))
        }
    }
}

pub(super) fn rate_limit(view: &View) -> Outcome {
    let remedy = "see who else uses the project's API up (all its tokens share this: autoscaler, \
                  CSI driver, Terraform), or wait: it is refilled evenly, 3600 an hour";
    match view.checkup.rate_limit {
        None if view.servers.is_err() => Outcome::skipped("not checked: see api"),
        None => Outcome::skipped("the API did not say how many calls are left"),
        Some((limit, 0)) => Outcome::fail(
            format!("none of {limit} calls an hour are left: whatever is asked is refused"),
            remedy,
        ),
        Some((limit, remaining)) if remaining < limit / RESERVE_SHARE => Outcome::warn(
            format!("{remaining} of {limit} calls an hour are left: refreshes wait"),
            remedy,
        ),
        Some((limit, remaining)) => {
            Outcome::ok(format!("{remaining} of {limit} calls an hour are left"))
        }
    }
}

pub(super) fn clock(view: &View) -> Outcome {
    let Some(ahead_s) = view.checkup.clock_ahead_s else {
        return Outcome::skipped(match view.servers {
            Ok(_) => "the API did not say what time it is",
            Err(_) => "not checked: see api",
        });
    };
    let skew_s = ahead_s.unsigned_abs();
    let is = if ahead_s > 0 { "behind" } else { "ahead of" };
    let found = format!(
        "this machine's clock is {skew_s} s {is} the API's; tokens, certificates and the ages \
         of Leases are judged by it"
    );
    let remedy = "let it follow a time server: timedatectl set-ntp true";
    match skew_s {
        FAIL_SKEW_S.. => Outcome::fail(found, remedy),
        WARN_SKEW_S.. => Outcome::warn(found, remedy),
        _ => Outcome::ok("this machine's clock agrees with the API's"),
    }
}

pub(super) fn network(view: &View) -> Outcome {
    match (&view.servers, &view.checkup.network) {
        (Err(_), _) => Outcome::skipped("not checked: see api"),
        (Ok(_), None) => Outcome::skipped("HCLOUD_NETWORK is not set: no private Network is used"),
        (Ok(_), Some(Ok(network))) => Outcome::ok(format!("{network} is there")),
        (Ok(_), Some(Err(error))) => Outcome::fail(
            error.message.as_str(),
            "set HCLOUD_NETWORK to the ID or the name of one of the project's Networks; digits \
             are always an ID",
        ),
    }
}

pub(super) fn attached(view: &View) -> Outcome {
    let network = match &view.checkup.network {
        Some(Ok(network)) => network,
        Some(Err(_)) => return Outcome::skipped("not checked: see network"),
        None if view.servers.is_err() => return Outcome::skipped("not checked: see api"),
        None => return Outcome::skipped("HCLOUD_NETWORK is not set"),
    };
    if !view.attached_check {
        return Outcome::skipped("HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true turns this check off");
    }
    match &view.checkup.attached {
        Attached::Yes => Outcome::ok(format!("this machine is attached to {network}")),
        Attached::Unknown(why) => Outcome::skipped(format!(
            "the metadata service can't be asked, as outside of Hetzner Cloud: {why}"
        )),
        Attached::No(there) => {
            let found = format!(
                "this machine is not attached to {network}, but to {there}: ccm run would end here"
            );
            let remedy = "attach it, correct HCLOUD_NETWORK, or set \
                          HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true if it need not be";
            match view.is_in_pod {
                true => Outcome::fail(found, remedy),
                // The daemon may run on another one.
                false => Outcome::warn(found, remedy),
            }
        }
    }
}
