//! The types of settings and their parsers, e.g. for choices, numbers, names, URLs and addresses.

use crate::provider::{
    ANNOTATION_DOMAIN, LabelPrefixes, NetworkSelector, TopologyLabel, is_kubernetes_label,
};
use crate::text::duration::duration;
use crate::text::{base_url, is_label, is_label_key, is_label_value, is_subdomain};
use crate::text::{named, nearest, quoted};
use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Whether the output for users is coloured. `Auto` colours it only when it goes to a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// The format in which a command prints its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    #[default]
    Table,
    Wide,
    /// Prints only the names of the objects.
    Name,
    Json,
    Yaml,
}

named! {
    /// A controller that the daemon can run. The text beside each controller is its short name in `--controllers`, e.g.
    /// `cloud-node` for `cloud-node-controller`.
    Controller {
        Node = "cloud-node",
        NodeLifecycle = "cloud-node-lifecycle",
        Service = "service",
        Route = "route",
        NodeCsrApproval = "node-csr-approval",
    }
}

impl Controller {
    /// Returns the controller's alias and its canonical name.
    fn names(self) -> [&'static str; 2] {
        let canonical = match self {
            Controller::Node => "cloud-node-controller",
            Controller::NodeLifecycle => "cloud-node-lifecycle-controller",
            Controller::Service => "service-lb-controller",
            Controller::Route => "node-route-controller",
            Controller::NodeCsrApproval => "node-csr-approval",
        };
        [self.name(), canonical]
    }

    /// Whether the value `*` of the setting `--controllers` runs this controller. The controller that approves
    /// certificates needs more rights than the daemon's usual role gives, so it runs only when the setting names it.
    fn is_default(self) -> bool {
        self != Controller::NodeCsrApproval
    }
}

/// Parses the value of `--controllers`, as Kubernetes' own controller managers do. The first word that names a
/// controller decides: `NAME` runs the controller, and `-NAME` does not. `*` runs all controllers that are not named,
/// except a controller that only runs when it is named, e.g. `node-csr-approval`.
pub(super) fn controllers(text: &str) -> Result<Vec<Controller>, String> {
    let words = items(text);
    if words.is_empty() {
        return Err("name at least one controller, or * for all".to_owned());
    }
    let is_named = |word: &&&str, controller: &Controller| controller.names().contains(&bare(word));
    let is_known = |word: &&&str| {
        **word == "*" || Controller::ALL.iter().any(|controller| is_named(word, controller))
    };
    let unknown = words.iter().filter(|word| !is_known(word));
    let unknown: Vec<String> = unknown.map(|word| no_such(bare(word))).collect();
    if !unknown.is_empty() {
        return Err(unknown.join("; "));
    }
    let is_enabled = |controller: &&Controller| {
        let first = words.iter().find(|word| is_named(word, controller));
        let all = words.iter().find(|word| **word == "*" && controller.is_default());
        first.or(all).is_some_and(|word| !word.starts_with('-'))
    };
    Ok(Controller::ALL.iter().filter(is_enabled).copied().collect())
}

/// Returns the name of a controller without the dash that turns the controller off, as in `-route`.
fn bare(word: &str) -> &str {
    word.strip_prefix('-').unwrap_or(word)
}

fn no_such(name: &str) -> String {
    let all = Controller::ALL.iter();
    let aliases: Vec<&str> = all.clone().map(|controller| controller.name()).collect();
    let why = format!("no controller is called {name:?}");
    match nearest(name, all.flat_map(|controller| controller.names())) {
        Some(meant) => format!("{why}; did you mean {meant}?"),
        None => format!("{why}; the controllers are {}", aliases.join(", ")),
    }
}

/// Splits a list at its commas into items.
fn items(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Parses all items of a list. `None` when any item can't be parsed.
fn parsed<T: FromStr>(text: &str) -> Option<Vec<T>> {
    items(text).into_iter().map(|item| item.parse().ok()).collect()
}

/// The shortest time of `--node-out-of-service-after`. A reboot takes less time than this.
const OUT_OF_SERVICE_AFTER_LEAST: Duration = Duration::from_secs(300);

/// Parses the time that a server must be off before its node gets the taint `out-of-service`. The text `0` means that
/// no node gets the taint.
pub(super) fn out_of_service_after(text: &str) -> Result<Option<Duration>, String> {
    match duration(text)? {
        Duration::ZERO => Ok(None),
        after if after < OUT_OF_SERVICE_AFTER_LEAST => Err("use 0 (never), or at least 5m".into()),
        after => Ok(Some(after)),
    }
}

pub(super) fn verbosity(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "use a whole number, 0 or larger".to_owned())
}

/// Parses the name of the cluster, which begins the names of load balancers and is also the value of a label.
pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    let is_name = |text: &str| !text.is_empty() && is_label_value(text);
    let form =
        "use at most 63 letters, digits, -, _ or ., and begin and end with a letter or digit";
    text_if(is_name, text, form)
}

/// Parses the address ranges of the cluster's pods. The list can have IPv4 and IPv6 ranges.
pub(super) fn cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    let read = |word: &str| match word.parse::<IpNet>() {
        Ok(net) if net.prefix_len() == 0 => {
            Err("this range contains every address; use only the range of the pods".to_owned())
        }
        Ok(net) => Ok(net.trunc()),
        Err(_) => {
            Err("use IP ranges, e.g. 10.244.0.0/16 or 10.244.0.0/16,fd00:10:244::/56".to_owned())
        }
    };
    items(text).into_iter().map(read).collect()
}

/// Parses a list of IPv4 ranges. An empty list is an error, because it would allow no address at all, which nobody
/// wants.
pub(super) fn ipv4_ranges(text: &str) -> Result<Vec<Ipv4Net>, String> {
    let ranges = parsed(text).filter(|ranges: &Vec<Ipv4Net>| !ranges.is_empty());
    let form = "use IPv4 ranges, e.g. 10.0.1.0/24 or 10.0.1.0/24,10.0.2.8/29";
    Ok(ranges.ok_or(form)?.iter().map(Ipv4Net::trunc).collect())
}

/// Parses a list of IPv4 and IPv6 ranges. An empty text means that the setting is unset. A text of only commas is an
/// error, because it would set no limit although the setting is set.
pub(super) fn ip_ranges(text: &str) -> Result<Vec<IpNet>, String> {
    let is_right = |ranges: &Vec<IpNet>| !ranges.is_empty() || text.trim().is_empty();
    let form = "use IP ranges, e.g. 10.0.0.0/16 or 100.64.0.0/10,fd7a::/48";
    Ok(parsed(text).filter(is_right).ok_or(form)?.iter().map(IpNet::trunc).collect())
}

/// Parses the factor by which every wait of a test is multiplied. The factor is limited to 1000, because the end of a
/// longer wait could be later than the last moment that the clock can represent.
pub(super) fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1000.0 => Ok(factor),
        _ => Err("use a number greater than 0 and at most 1000".to_owned()),
    }
}

pub(super) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Returns the text when `has_form` accepts it. Otherwise the result is the error `form`, which describes the texts
/// that are accepted.
fn text_if(has_form: fn(&str) -> bool, text: &str, form: &str) -> Result<String, String> {
    has_form(text).then(|| text.to_owned()).ok_or_else(|| form.to_owned())
}

/// Parses a text that can be the `spec.loadBalancerClass` of a Service. For this field the API server has the same rule
/// as for the key of a label.
pub(super) fn class(text: &str) -> Result<String, String> {
    let form = "no Service can have this class; use at most 63 letters, digits, -, _ or ., and begin and end with a \
                letter or digit; before them may come a domain in lower case and a slash, e.g. example.com/hetzner";
    text_if(is_label_key, text, form)
}

/// Returns a parser that calls `parse`, except for an empty text. An empty text counts as an unset setting, and the
/// result is `None`.
pub(super) fn unless_empty<T>(
    parse: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| match text {
        "" => Ok(None),
        text => parse(text).map(Some),
    }
}

pub(super) fn network(text: &str) -> Result<NetworkSelector, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(NetworkSelector::Name(text.to_owned()));
    }
    let id = text.parse().map(NetworkSelector::Id);
    id.map_err(|_| "too large for the ID of a Network".to_owned())
}

/// The domains of Kubernetes whose labels can be copied from servers to nodes. In `HCLOUD_INSTANCES_LABEL_PREFIXES`,
/// each such label must be listed by its whole key `DOMAIN/NAME`. The item `DOMAIN/`, which stands for all labels of a
/// domain, is refused for these domains. Labels of other domains of Kubernetes are always refused.
const TAKEN_BY_NAME: [&str; 2] = ["topology.kubernetes.io", "node-role.kubernetes.io"];

/// Parses the list of the labels of servers that become labels of nodes. An item is `DOMAIN/` for all labels of a
/// domain, or `DOMAIN/NAME` for one label.
pub(super) fn label_prefixes(text: &str) -> Result<LabelPrefixes, String> {
    let read = |item: &str| {
        let wrong = |why: &str| Err(format!("{} {why}", quoted(item)));
        let Some((domain, name)) = item.split_once('/') else {
            return wrong(
                "lacks a slash; write a domain with a slash at its end, e.g. node.example.com/",
            );
        };
        let is_domain = name.is_empty() && is_subdomain(domain);
        if !is_domain && !is_label_key(item) {
            return wrong("is neither a domain with a slash at its end nor the key of a label");
        }
        let is_reserved = is_kubernetes_label(item) || domain.ends_with(ANNOTATION_DOMAIN);
        if is_reserved && (name.is_empty() || !TAKEN_BY_NAME.contains(&domain)) {
            return wrong(
                "is refused, because ccm copies no labels of kubernetes.io, k8s.io and hetzner.cloud from servers to \
                 nodes, except labels of topology.kubernetes.io and node-role.kubernetes.io that are listed with their \
                 whole key",
            );
        }
        if TopologyLabel::ALL.iter().any(|label| label.stable_key() == item) {
            return wrong(
                "is refused, because ccm sets this label from the location of the server",
            );
        }
        Ok(item.to_owned())
    };
    let prefixes = items(text).into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(LabelPrefixes(prefixes))
}

/// Parses how long a list of dedicated servers is cached. As in hcloud-cloud-controller-manager, 0 means the default of
/// 5 minutes.
pub(super) fn robot_cache_timeout(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Ok(Duration::from_secs(300)),
        timeout => Ok(timeout),
    }
}

/// The longest time for which no calls are made to the Robot web service after it has answered that its rate limit is
/// used up. After an hour all its rate limits are fully available again.
const LONGEST_ROBOT_WAIT: Duration = Duration::from_secs(3600);

/// Parses the length of the pause after the Robot web service has reported its rate limit. No call is made during the
/// pause. As in hcloud-cloud-controller-manager, 0 means that the setting is unset.
pub(super) fn robot_wait_time(text: &str) -> Result<Option<Duration>, String> {
    let wait = duration(text)?.min(LONGEST_ROBOT_WAIT);
    Ok(Some(wait).filter(|wait| !wait.is_zero()))
}

/// Parses the name of an object in Kubernetes, which must be a DNS subdomain by RFC 1123.
pub(super) fn object_name(text: &str) -> Result<String, String> {
    let form = "use lower case letters, digits, - and ., and begin and end with a letter or digit";
    text_if(is_subdomain, text, form)
}

/// Parses the name of a namespace, which must be a DNS label by RFC 1123.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let form =
        "use at most 63 lower case letters, digits and -, and begin and end with a letter or digit";
    text_if(is_label, text, form)
}

/// The namespace and name of a Deployment or DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadName {
    pub namespace: String,
    /// The kind of the workload: `deployment` or `daemonset`.
    pub kind: &'static str,
    pub name: String,
}

impl WorkloadName {
    /// Parses a workload, e.g. `kube-system/deployment/ccm-from-scratch`. The text `none` stands for no workload, and
    /// gives `None`.
    pub(super) fn parse(text: &str) -> Result<Option<WorkloadName>, String> {
        if text == "none" {
            return Ok(None);
        }
        let parts: Vec<&str> = text.split('/').collect();
        let (namespace, kind, name) = match parts[..] {
            ["", ..] | [_, _, ""] => return Err(SETTINGS_FROM_FORM.to_owned()),
            [namespace, "deployment", name] => (namespace, "deployment", name),
            [namespace, "daemonset", name] => (namespace, "daemonset", name),
            [_, _, _] => return Err("use deployment or daemonset between the slashes".to_owned()),
            _ => return Err(SETTINGS_FROM_FORM.to_owned()),
        };
        Ok(Some(WorkloadName { namespace: namespace.to_owned(), kind, name: name.to_owned() }))
    }
}

const SETTINGS_FROM_FORM: &str =
    "use NAMESPACE/deployment/NAME, e.g. kube-system/deployment/ccm-from-scratch, or none";

impl fmt::Display for WorkloadName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

pub(super) fn url(text: &str) -> Result<String, String> {
    base_url(text).map_err(str::to_owned)
}

/// Returns the text without everything in it that could be a password or token, so that a message can repeat it. The
/// text should be a URL, but can be anything.
pub(super) fn without_credentials(text: &str) -> String {
    let (text, query) = match text.split_once(['?', '#']) {
        Some((before, _)) => (before, "?…"),
        None => (text, ""),
    };
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}{query}"),
        (None, Some((_, host))) => format!("…@{host}{query}"),
        (_, None) => format!("{text}{query}"),
    }
}

/// Parses an address on which to listen, like Go's `net.Listen` but without host names, e.g. `:8233`, `0.0.0.0:8233` or
/// `[::1]:8233`. Without an IP, or with the IP `[::]`, the result means every address of the machine.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let is_port = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let address = match text.strip_prefix(':').filter(is_port) {
        Some(port) => {
            port.parse().ok().map(|port: u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        }
        None => text.parse().ok(),
    };
    let forms = "write :PORT or IP:PORT, e.g. :8233, 127.0.0.1:8233 or [::1]:8233";
    address.ok_or_else(|| forms.to_owned())
}

/// Whether the text looks like a token, although it should be the path of a file with a token: it has 32 or more
/// characters, all of them letters and digits. A message must not repeat such a text. A real path of this length
/// usually contains a slash or a dot.
pub(super) fn looks_like_a_token(path: &str) -> bool {
    path.len() >= 32 && path.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Controller::{Node, NodeCsrApproval, NodeLifecycle, Route, Service};
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn the_first_word_that_names_a_controller_decides() {
        for (text, enabled) in [
            ("*", &[Node, NodeLifecycle, Service, Route] as &[Controller]),
            ("cloud-node", &[Node]),
            ("cloud-node-controller,route", &[Node, Route]),
            ("*,-service", &[Node, NodeLifecycle, Route]),
            ("-service-lb-controller, *", &[Node, NodeLifecycle, Route]),
            ("-route", &[]),
            ("-service,service,*", &[Node, NodeLifecycle, Route]),
            ("service,-service", &[Service]),
            ("*,node-csr-approval", &[Node, NodeLifecycle, Service, Route, NodeCsrApproval]),
            ("node-csr-approval", &[NodeCsrApproval]),
        ] {
            assert_eq!(controllers(text), Ok(enabled.to_vec()), "{text}");
        }
    }

    #[test]
    fn an_unknown_name_names_the_nearest() {
        for (text, message) in [
            ("cloud-nod", "no controller is called \"cloud-nod\"; did you mean cloud-node?"),
            ("*,-rotue", "no controller is called \"rotue\"; did you mean route?"),
            (
                "gardener",
                "no controller is called \"gardener\"; the controllers are cloud-node, \
                 cloud-node-lifecycle, service, route, node-csr-approval",
            ),
            ("", "name at least one controller, or * for all"),
        ] {
            assert_eq!(controllers(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_base_url_loses_only_its_last_slashes() {
        for (text, url) in [
            ("https://api.hetzner.cloud/v1", "https://api.hetzner.cloud/v1"),
            ("https://api.hetzner.cloud/v1//", "https://api.hetzner.cloud/v1"),
            ("HTTP://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("https://[fd00::1]", "https://[fd00::1]"),
            ("https://host.example/k8s/clusters/c-1", "https://host.example/k8s/clusters/c-1"),
        ] {
            assert_eq!(base_url(text), Ok(url.to_owned()), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for (text, message) in [
            ("api.hetzner.cloud/v1", "write a complete URL, e.g. https://api.example.com"),
            ("ftp://host", "use http:// or https://"),
            ("https://", "the host is missing"),
            ("https:///v1", "the host is missing"),
            ("https://:443", "the host is missing"),
            (
                "https://host/v1?a=b",
                "a base URL must have no query (from ? on) and no fragment (from # on)",
            ),
            (
                "https://host#top",
                "a base URL must have no query (from ? on) and no fragment (from # on)",
            ),
            ("https://user:password@host", "leave out the user name and password"),
            ("https://host:0", "the port must be a number from 1 to 65535"),
            ("https://host:65536", "the port must be a number from 1 to 65535"),
            ("https://[::1]443", "the port must be a number from 1 to 65535"),
            ("https://[::g]", "the text in [ ] is not an IPv6 address"),
            ("https://ho%20st", "the host has characters that are not allowed in a host name"),
            ("https://ho st", "a URL must have only ASCII characters and no white space"),
        ] {
            assert_eq!(base_url(text), Err(message), "{text}");
        }
    }

    #[test]
    fn a_message_repeats_no_credentials() {
        for (text, shown) in [
            ("https://host/v1", "https://host/v1"),
            ("https://user:password@host/v1", "https://…@host/v1"),
            ("https://user:p@ss/w@rd@host", "https://…@host"),
            ("user:password@host", "…@host"),
            ("https://host?token=secret", "https://host?…"),
        ] {
            assert_eq!(without_credentials(text), shown, "{text}");
        }
    }

    #[test]
    fn go_s_forms_are_read() {
        for (text, ip, port) in [
            (":8233", "::", 8233),
            (":0", "::", 0),
            ("0.0.0.0:8233", "0.0.0.0", 8233),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("[::]:8233", "::", 8233),
            ("[fd00::1]:65535", "fd00::1", 65535),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            let expected = SocketAddr::from((ip, port));
            assert_eq!(listen_address(text), Ok(expected), "{text}");
        }
        assert_eq!(unless_empty(listen_address)(""), Ok(None));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "8233",
            ":",
            ":+1",
            ":-1",
            ":65536",
            ":http",
            "127.0.0.1",
            "127.0.0.1:",
            "::1:8233",
            "[::1]",
            "localhost:8233",
            " :8233",
            "http://127.0.0.1:8233",
        ] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }
}
