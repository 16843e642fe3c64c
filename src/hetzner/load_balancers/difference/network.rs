//! The ways in and out: the private Network, and the public interface.

use super::Difference;
use crate::hetzner::load_balancers::change::Write;
use crate::hetzner::load_balancers::desired::{Attach, Desired};
use crate::hetzner::load_balancers::{annotations, subnets};
use crate::provider::{Finding, Reason, Source, Sourced};
use std::net::Ipv4Addr;

impl Difference<'_, '_> {
    /// True: it is detached, which drops the targets that are reached by their private IP.
    pub(super) fn network(&mut self, wanted: Option<&Attach>) -> bool {
        // Without HCLOUD_NETWORK nothing is ever detached.
        let Some(wanted) = wanted else {
            return false;
        };
        let by_setting = Source::Environment("HCLOUD_NETWORK".to_owned());
        let attached = &self.balancer.private_net;
        let own = attached.iter().find(|net| net.network == wanted.network);
        let networks: Vec<String> = attached.iter().map(|net| net.network.to_string()).collect();
        let have = (!networks.is_empty()).then(|| networks.join(", "));
        let want = Sourced::new(wanted.network.to_string(), by_setting.clone());
        self.field("private Network", have, Some(&want));
        let ip = own.and_then(|net| net.ip);
        let shown = wanted.ip.as_ref();
        let shown = shown.map(|ip| Sourced::new(ip.value.to_string(), ip.source.clone()));
        self.field("private IPv4", ip.map(|ip| ip.to_string()), shown.as_ref());

        let other_ip = wanted
            .ip
            .as_ref()
            .filter(|w| own.is_some() && Some(w.value) != ip);
        if own.is_none() || other_ip.is_some() {
            let zone = Some(self.balancer.location.network_zone.as_str());
            subnets::check(self.reading, wanted, self.state, self.names.offered, zone);
        }
        let stays = |network: u64| network == wanted.network && other_ip.is_none();
        let mut detached = false;
        for net in attached.iter().filter(|net| !stays(net.network)) {
            let network = net.network;
            let source = other_ip.map_or(&by_setting, |ip| &ip.source).clone();
            let line = format!("private Network {network}: detached");
            self.change(Write::Detach { network }, line, vec![source]);
            detached = true;
        }
        if own.is_some() && !detached {
            self.tell_other_subnet(wanted, ip);
            return false;
        }
        let ip = wanted.ip.as_ref();
        let ip_range = wanted.range.as_ref();
        let sources = [
            Some(by_setting),
            ip.map(|ip| ip.source.clone()),
            ip_range.map(|range| range.source.clone()),
        ];
        let write = Write::Attach {
            network: wanted.network,
            ip: ip.map(|ip| ip.value),
            ip_range: ip_range.map(|range| range.value),
        };
        let at = ip.map(|ip| format!(" at {}", ip.value)).unwrap_or_default();
        let line = format!("private Network {}: attached{at}", wanted.network);
        self.change(write, line, sources.into_iter().flatten().collect());
        detached
    }

    fn tell_other_subnet(&mut self, wanted: &Attach, ip: Option<Ipv4Addr>) {
        let range = wanted.range.as_ref();
        let (Some(range), Some(ip)) = (range, ip) else {
            return;
        };
        if !range.value.contains(&ip) {
            let why = format!(
                "{}: {} counts only when the load balancer is attached; it is at {ip}: set {} to move it",
                range.source,
                range.value,
                annotations::PRIVATE_IPV4.key()
            );
            self.reading
                .finding(Finding::warning(Reason::AnnotationWithoutEffect, why));
        }
    }

    /// Off is wanted, and a target is reached by it that can't be reached otherwise.
    pub(super) fn public_interface_stays(&mut self, desired: &Desired) {
        if desired.public.as_ref().is_some_and(|public| !public.value) {
            self.field("public interface", Some("on".to_owned()), None);
        }
    }

    /// On early, off late: the API refuses that while targets use public addresses.
    pub(super) fn public_interface(&mut self, desired: &Desired, on: bool) {
        let has = self.balancer.public_net.enabled;
        let shown = |on: bool| if on { "on" } else { "off" }.to_owned();
        let Some(wanted) = &desired.public else {
            if on {
                self.field("public interface", Some(shown(has)), None);
            }
            return;
        };
        if wanted.value != on {
            return;
        }
        let want = Sourced::new(shown(on), wanted.source.clone());
        self.field("public interface", Some(shown(has)), Some(&want));
        if has != on {
            let write = match on {
                true => Write::EnablePublicInterface,
                false => Write::DisablePublicInterface,
            };
            let line = format!("public interface: {}", shown(on));
            self.change(write, line, vec![want.source]);
        }
    }
}
