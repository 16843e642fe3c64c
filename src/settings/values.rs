//! The types of settings, and how each is written: choices, numbers, names, paths, URLs, addresses, the token.

use crate::provider::{AddressFamily, Algorithm, NetworkSelector, Profile};
pub(super) use crate::text::boolean;
use crate::text::nearest::nearest;
pub use crate::text::one_of;
use crate::text::{is_label, is_subdomain, unencrypted};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// A type whose values have one word each; words are in the order that messages list them.
pub(super) trait Choice: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// How a client command writes its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
}

impl Choice for AddressFamily {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("ipv4", AddressFamily::Ipv4),
        ("ipv6", AddressFamily::Ipv6),
        ("dualstack", AddressFamily::Dualstack),
    ];
}

impl Choice for Profile {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("ccm-from-scratch", Profile::CcmFromScratch),
        ("hcloud", Profile::Hcloud),
    ];
}

impl Choice for Algorithm {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("round_robin", Algorithm::RoundRobin),
        ("least_connections", Algorithm::LeastConnections),
    ];
}

impl Choice for LogFormat {
    const WORDS: &'static [(&'static str, Self)] =
        &[("text", LogFormat::Text), ("json", LogFormat::Json)];
}

impl Choice for Output {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("table", Output::Table),
        ("wide", Output::Wide),
        ("json", Output::Json),
        ("yaml", Output::Yaml),
    ];
}

pub(super) fn choice<C: Choice>(text: &str) -> Result<C, String> {
    match C::WORDS.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(*value),
        None => Err(format!(
            "use {}",
            one_of(&C::WORDS.iter().map(|w| w.0).collect::<Vec<_>>())
        )),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    Node,
    NodeLifecycle,
    Service,
    Route,
}

/// `--controllers`, as Kubernetes' own controller managers read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controllers {
    enabled: Vec<Controller>,
}

impl Controller {
    pub const ALL: &'static [Controller] = &[
        Controller::Node,
        Controller::NodeLifecycle,
        Controller::Service,
        Controller::Route,
    ];

    pub fn canonical_name(self) -> &'static str {
        match self {
            Controller::Node => "cloud-node-controller",
            Controller::NodeLifecycle => "cloud-node-lifecycle-controller",
            Controller::Service => "service-lb-controller",
            Controller::Route => "node-route-controller",
        }
    }

    pub fn alias(self) -> &'static str {
        match self {
            Controller::Node => "cloud-node",
            Controller::NodeLifecycle => "cloud-node-lifecycle",
            Controller::Service => "service",
            Controller::Route => "route",
        }
    }

    fn is_called(self, name: &str) -> bool {
        name == self.canonical_name() || name == self.alias()
    }
}

impl Controllers {
    pub fn contains(&self, controller: Controller) -> bool {
        self.enabled.contains(&controller)
    }

    pub(super) fn parse(text: &str) -> Result<Controllers, String> {
        let words: Vec<&str> = text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect();
        if words.is_empty() {
            return Err("name at least one controller, or * for all".to_owned());
        }
        let mut unknown = words.iter().filter(|word| !is_known(word)).peekable();
        if unknown.peek().is_some() {
            return Err(unknown
                .map(|word| no_such(word))
                .collect::<Vec<_>>()
                .join("; "));
        }
        let enabled = |controller: &Controller| is_enabled(*controller, &words);
        Ok(Controllers {
            enabled: Controller::ALL.iter().copied().filter(enabled).collect(),
        })
    }
}

/// The first word that names it decides; `*` counts only when none does.
fn is_enabled(controller: Controller, words: &[&str]) -> bool {
    for word in words {
        match word.strip_prefix('-') {
            Some(name) if controller.is_called(name) => return false,
            None if controller.is_called(word) => return true,
            _ => {}
        }
    }
    words.contains(&"*")
}

fn is_known(word: &str) -> bool {
    let name = word.strip_prefix('-').unwrap_or(word);
    word == "*"
        || Controller::ALL
            .iter()
            .any(|controller| controller.is_called(name))
}

fn no_such(word: &str) -> String {
    let name = word.strip_prefix('-').unwrap_or(word);
    let names = Controller::ALL
        .iter()
        .flat_map(|c| [c.alias(), c.canonical_name()]);
    match nearest(name, names) {
        Some(meant) => format!("no controller is called {name:?}; did you mean {meant}?"),
        None => {
            let aliases: Vec<&str> = Controller::ALL.iter().map(|c| c.alias()).collect();
            format!(
                "no controller is called {name:?}; they are {}",
                aliases.join(", ")
            )
        }
    }
}

pub(super) fn verbosity(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "use a whole number from 0".to_owned())
}

/// At least 1.
pub(super) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("use a whole number from 1".to_owned()),
        Ok(count) => Ok(count),
    }
}

/// The first part of names, and the value of a label.
pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let fits = text.len() <= 63 && text.chars().all(plain);
    match fits && ends(text.chars().next()) && ends(text.chars().last()) {
        true => Ok(text.to_owned()),
        false => Err(
            "use at most 63 letters, digits, -, _ or ., the first and the last a letter or digit"
                .to_owned(),
        ),
    }
}

/// Where pods have their addresses: ranges of IPv4 and IPv6, given together.
pub(super) fn cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    let words = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    let read = |word: &str| match word.parse::<IpNet>() {
        Ok(net) if net.prefix_len() == 0 => {
            Err("use the range of the pods alone: this one holds every address".to_owned())
        }
        Ok(net) => Ok(net.trunc()),
        Err(_) => {
            Err("use IP ranges, e.g. 10.244.0.0/16 or 10.244.0.0/16,fd00:10:244::/56".to_owned())
        }
    };
    words.map(read).collect()
}

/// A factor on every wait: with a larger one some moments would lie beyond the end of the clock.
pub(super) fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1000.0 => Ok(factor),
        _ => Err("use a number greater than 0, 1000 at most".to_owned()),
    }
}

pub(super) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// An empty flag counts as unset.
pub(super) fn name(text: &str) -> Result<Option<String>, String> {
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

pub(super) fn url(text: &str) -> Result<Option<Url>, String> {
    if text.is_empty() {
        Ok(None)
    } else {
        Url::parse(text).map(Some)
    }
}

pub(super) fn network(text: &str) -> Result<Option<NetworkSelector>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Some(NetworkSelector::Name(text.to_owned())));
    }
    match text.parse() {
        Ok(id) => Ok(Some(NetworkSelector::Id(id))),
        Err(_) => Err("too large for the ID of a Network".to_owned()),
    }
}

/// One path, as a flag gives it.
pub(super) fn path(text: &str) -> Vec<PathBuf> {
    if text.is_empty() {
        Vec::new()
    } else {
        vec![PathBuf::from(text)]
    }
}

/// Several, as `$KUBECONFIG` gives them; empty ones count for nothing.
pub(super) fn paths(text: &str) -> Vec<PathBuf> {
    std::env::split_paths(text)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// Dedicated servers are not supported yet: `true` is an error, because no node would get its server.
pub(super) fn robot(text: &str) -> Result<bool, String> {
    if boolean(text)? {
        return Err("dedicated servers are not built yet; unset it or set it to false".to_owned());
    }
    Ok(false)
}

/// Name of an object or namespace, as the API server takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectName(String);

impl ObjectName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A DNS subdomain, RFC 1123.
pub(super) fn object_name(text: &str) -> Result<ObjectName, String> {
    if is_subdomain(text) {
        return Ok(ObjectName(text.to_owned()));
    }
    Err("use lower case letters, digits, - and ., a letter or digit first and last".to_owned())
}

/// A DNS label, RFC 1123.
pub(super) fn namespace(text: &str) -> Result<ObjectName, String> {
    if is_label(text) {
        return Ok(ObjectName(text.to_owned()));
    }
    Err("use at most 63 lower case letters, digits and -, a letter or digit first and last".into())
}

/// A Deployment or a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadName {
    pub namespace: String,
    /// `deployment` or `daemonset`.
    pub kind: &'static str,
    pub name: String,
}

const KINDS: [&str; 2] = ["deployment", "daemonset"];

impl WorkloadName {
    pub(super) fn parse(text: &str) -> Result<Option<WorkloadName>, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let kind = |word: &str| KINDS.into_iter().find(|kind| *kind == word);
        match parts.as_slice() {
            [namespace, word, name] if !namespace.is_empty() && !name.is_empty() => {
                let Some(kind) = kind(word) else {
                    return Err("use deployment or daemonset between the slashes".to_owned());
                };
                Ok(Some(WorkloadName {
                    namespace: (*namespace).to_owned(),
                    kind,
                    name: (*name).to_owned(),
                }))
            }
            _ => Err(
                "use NAMESPACE/deployment/NAME, e.g. kube-system/deployment/ccm-from-scratch"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// An `http` or `https` URL without a slash at its end, to which paths can be appended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Url(String);

impl Url {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// It is reached without TLS on another machine.
    pub fn leaves_unencrypted(&self) -> bool {
        unencrypted::leaves_unencrypted(&self.0)
    }

    pub(super) fn parse(text: &str) -> Result<Url, String> {
        if text.contains(|c: char| c.is_control() || c.is_whitespace() || !c.is_ascii()) {
            return Err("a URL has no white space and only ASCII characters".to_owned());
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("write a whole URL, e.g. https://api.example.com".to_owned());
        };
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err("use http:// or https://".to_owned());
        }
        if rest.contains(['?', '#']) {
            return Err("a base URL has no query and no fragment".to_owned());
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("leave out the user name and password".to_owned());
        }
        check_authority(authority)?;
        Ok(Url(format!(
            "{scheme}://{authority}{}",
            path.trim_end_matches('/')
        )))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// What a message may repeat of something that should have been a URL: whatever may be a password
/// or a token in it is left out.
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

fn check_authority(authority: &str) -> Result<(), String> {
    let (host, port) = match authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((address, port)) => {
            if address.parse::<Ipv6Addr>().is_err() {
                return Err(format!("{address:?} is no IPv6 address"));
            }
            (
                address,
                port.strip_prefix(':').or(port.is_empty().then_some("")),
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, Some("")),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !authority.starts_with('[') && !host.chars().all(allowed) {
        return Err(format!("{host:?} is no host name"));
    }
    match port {
        Some("") if !authority.ends_with(':') => Ok(()),
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(()),
        _ => Err("the port is a number from 1 to 65535".to_owned()),
    }
}

/// An address as Go's `net.Listen` takes it, without host names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// None: every address of the machine, IPv6 and IPv4.
    pub ip: Option<IpAddr>,
    /// 0: any free one.
    pub port: u16,
}

impl ListenAddress {
    /// `:8233`, `0.0.0.0:8233`, `[::1]:8233`; an empty text means not to listen at all.
    pub(super) fn parse(text: &str) -> Result<Option<ListenAddress>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let address = match text.strip_prefix(':') {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port
                .parse()
                .ok()
                .map(|port| ListenAddress { ip: None, port }),
            Some(_) => None,
            None => text
                .parse::<SocketAddr>()
                .ok()
                .map(|address| ListenAddress {
                    ip: Some(address.ip()),
                    port: address.port(),
                }),
        };
        address.map(Some).ok_or_else(|| {
            "write :PORT or IP:PORT, e.g. :8233, 127.0.0.1:8233 or [::1]:8233".to_owned()
        })
    }
}

/// Text that no output may hold: `Debug` does not show it, and there is no `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

/// The token of the project's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub secret: Secret,
    /// Where it was read from, to be read again when it changed.
    pub file: Option<PathBuf>,
}

impl Secret {
    /// For the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(redacted)")
    }
}

impl Token {
    /// Takes any visible ASCII: what an HTTP header can carry. Only the API knows whether it is a token.
    pub(super) fn parse(text: &str, file: Option<PathBuf>) -> Result<Token, String> {
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err("holds characters that no token has, e.g. white space inside".to_owned());
        }
        Ok(Token {
            secret: Secret(text.to_owned()),
            file,
        })
    }
}

/// A token written where its file's path belongs; a message must not repeat it. Paths that long
/// have a slash or a dot.
pub(super) fn looks_like_a_token(path: &str) -> bool {
    path.len() >= 32 && path.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::Controller::{Node, NodeLifecycle, Route, Service};
    use super::*;

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
        ] {
            assert_eq!(
                Controllers::parse(text).map(|c| c.enabled),
                Ok(enabled.to_vec()),
                "{text}"
            );
        }
    }

    #[test]
    fn an_unknown_name_names_the_nearest() {
        for (text, message) in [
            (
                "cloud-nod",
                "no controller is called \"cloud-nod\"; did you mean cloud-node?",
            ),
            (
                "*,-rotue",
                "no controller is called \"rotue\"; did you mean route?",
            ),
            (
                "gardener",
                "no controller is called \"gardener\"; they are cloud-node, \
                 cloud-node-lifecycle, service, route",
            ),
            ("", "name at least one controller, or * for all"),
        ] {
            assert_eq!(Controllers::parse(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_base_url_loses_only_its_last_slashes() {
        for (text, url) in [
            (
                "https://api.hetzner.cloud/v1",
                "https://api.hetzner.cloud/v1",
            ),
            (
                "https://api.hetzner.cloud/v1//",
                "https://api.hetzner.cloud/v1",
            ),
            ("HTTP://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("https://[fd00::1]", "https://[fd00::1]"),
            (
                "https://host.example/k8s/clusters/c-1",
                "https://host.example/k8s/clusters/c-1",
            ),
        ] {
            assert_eq!(Url::parse(text), Ok(Url(url.to_owned())), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for (text, message) in [
            (
                "api.hetzner.cloud/v1",
                "write a whole URL, e.g. https://api.example.com",
            ),
            ("ftp://host", "use http:// or https://"),
            ("https://", "the host is missing"),
            ("https:///v1", "the host is missing"),
            ("https://:443", "the host is missing"),
            (
                "https://host/v1?a=b",
                "a base URL has no query and no fragment",
            ),
            (
                "https://host#top",
                "a base URL has no query and no fragment",
            ),
            (
                "https://user:password@host",
                "leave out the user name and password",
            ),
            ("https://host:", "the port is a number from 1 to 65535"),
            ("https://host:0", "the port is a number from 1 to 65535"),
            ("https://host:65536", "the port is a number from 1 to 65535"),
            ("https://[::1]443", "the port is a number from 1 to 65535"),
            ("https://[::g]", "\"::g\" is no IPv6 address"),
            ("https://ho%20st", "\"ho%20st\" is no host name"),
            (
                "https://ho st",
                "a URL has no white space and only ASCII characters",
            ),
        ] {
            assert_eq!(Url::parse(text), Err(message.to_owned()), "{text}");
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
            (":8233", None, 8233),
            (":0", None, 0),
            ("0.0.0.0:8233", Some("0.0.0.0"), 8233),
            ("127.0.0.1:0", Some("127.0.0.1"), 0),
            ("[::]:8233", Some("::"), 8233),
            ("[fd00::1]:65535", Some("fd00::1"), 65535),
        ] {
            let ip = ip.and_then(|ip| ip.parse().ok());
            let expected = ListenAddress { ip, port };
            assert_eq!(ListenAddress::parse(text), Ok(Some(expected)), "{text}");
        }
        assert_eq!(ListenAddress::parse(""), Ok(None));
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
            assert!(ListenAddress::parse(text).is_err(), "{text}");
        }
    }
}
