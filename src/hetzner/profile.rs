//! The two profiles, `ccm-from-scratch` and `hcloud`, one of which `--cloud-provider` selects. The profile decides
//! which provider IDs are understood, and what is written to nodes. With `hcloud`, nodes get what
//! hcloud-cloud-controller-manager would write.

use crate::provider::variables::{
    HCLOUD_INSTANCES_ZONE_LABEL, HCLOUD_INSTANCES_ZONE_LABEL_ENABLED,
};
use crate::provider::{
    Instance, InstanceId, Profile, ProviderId, Source, Sourced, TopologyLabel, ZoneLabel,
    ZoneSettings, ZoneValues,
};
use std::collections::BTreeMap;

/// The scheme of the provider IDs of dedicated servers, e.g. `hrobot://42`. It is the same for both values of
/// `--cloud-provider`, `ccm-from-scratch` and `hcloud`.
const DEDICATED: &str = "hrobot";

impl Profile {
    pub(super) fn other(self) -> Profile {
        if self == Profile::Hcloud { Profile::CcmFromScratch } else { Profile::Hcloud }
    }

    /// Returns the provider ID of a server. For a cloud server, the scheme is the name of the profile (the value of
    /// `--cloud-provider`), e.g. `hcloud://42`. For a dedicated server, it is always `hrobot`.
    pub(super) fn provider_id(self, id: InstanceId) -> String {
        match id {
            InstanceId::Cloud(number) => format!("{}://{number}", self.name()),
            InstanceId::Dedicated(number) => format!("{DEDICATED}://{number}"),
        }
    }

    pub(super) fn parse_provider_id(self, text: &str) -> ProviderId {
        let Some((scheme, rest)) = text.split_once("://") else {
            return ProviderId::Foreign;
        };
        match (scheme, rest.strip_prefix("bm-")) {
            (DEDICATED, _) => read_id(rest, InstanceId::Dedicated),
            // An old fork of hcloud-cloud-controller-manager wrote such provider IDs for dedicated servers, e.g.
            // `hcloud://bm-42`. The number must not be taken for the ID of a cloud server.
            ("hcloud", Some(number)) => read_id(number, InstanceId::Dedicated),
            _ if scheme == self.name() => read_id(rest, InstanceId::Cloud),
            _ => ProviderId::Foreign,
        }
    }

    /// Returns the values of the labels for instance type, zone and region. Each comes with its source, e.g. a field of
    /// the server, for display.
    pub(super) fn topology(
        self,
        instance: &Instance,
        settings: ZoneSettings,
    ) -> Vec<(TopologyLabel, Sourced<String>)> {
        let (type_field, region_field) = match self {
            _ if instance.id.dedicated().is_some() => ("product", "dc"),
            Profile::CcmFromScratch => ("server_type.name", "location.network_zone"),
            Profile::Hcloud => ("server_type.name", "location.name"),
        };
        let region = match self {
            Profile::CcmFromScratch => instance.network_zone.to_string(),
            Profile::Hcloud => instance.location.to_string(),
        };
        let by_type = Source::server(type_field);
        let instance_type = Sourced::new(instance.instance_type.to_string(), by_type);
        let mut labels = vec![(TopologyLabel::InstanceType, instance_type)];
        if let Sourced { value: Some(zone), source } = self.zone(instance, settings).wanted {
            labels.push((TopologyLabel::Zone, Sourced::new(zone, source)));
        }
        let source = Source::server_because(region_field, format_args!("profile {}", self.name()));
        labels.push((TopologyLabel::Region, Sourced::new(region, source)));
        labels
    }

    /// Returns the zone label of a new node on this server.
    pub(super) fn zone(self, instance: &Instance, settings: ZoneSettings) -> ZoneValues {
        let location = instance.location.to_string();
        let (datacenter, field) = match instance.id {
            InstanceId::Cloud(_) => (legacy_datacenter(&location), "location.name"),
            InstanceId::Dedicated(_) => (instance.data_center.to_string(), "dc"),
        };
        let by_profile = match self {
            Profile::CcmFromScratch => ZoneLabel::Location,
            Profile::Hcloud => ZoneLabel::Datacenter,
        };
        let value = match settings.label.unwrap_or(by_profile) {
            ZoneLabel::Datacenter => datacenter.clone(),
            ZoneLabel::Location => location.clone(),
        };
        let source = match settings.label {
            _ if !settings.is_enabled => {
                Source::Environment(HCLOUD_INSTANCES_ZONE_LABEL_ENABLED.to_string())
            }
            Some(_) => Source::server_because(field, HCLOUD_INSTANCES_ZONE_LABEL),
            None => Source::server_because(field, format_args!("profile {}", self.name())),
        };
        ZoneValues {
            wanted: Sourced::new(settings.is_enabled.then_some(value), source),
            possible: [datacenter, location],
            is_chosen: settings.label.is_some(),
        }
    }

    pub(super) fn extra_labels(self, id: InstanceId) -> BTreeMap<String, Sourced<String>> {
        let provided_by = if id.dedicated().is_some() { "robot" } else { "cloud" };
        match self {
            Profile::CcmFromScratch => BTreeMap::new(),
            Profile::Hcloud => BTreeMap::from([(
                "instance.hetzner.cloud/provided-by".to_owned(),
                Sourced::new(provided_by.to_owned(), Source::Rule("profile hcloud")),
            )]),
        }
    }
}

fn read_id(text: &str, id: fn(u64) -> InstanceId) -> ProviderId {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && number > 0 => ProviderId::Ours(id(number)),
        _ => ProviderId::Unknown(format!("{text:?} is not a server's number")),
    }
}

/// Returns the name of the location's data center, which the API reported until July 2026. In profile `hcloud`, which
/// behaves like hcloud-cloud-controller-manager, nodes still get this name as their zone.
fn legacy_datacenter(location: &str) -> String {
    match location {
        "nbg1" => "nbg1-dc3",
        "hel1" => "hel1-dc2",
        "fsn1" => "fsn1-dc14",
        "ash" => "ash-dc1",
        "hil" => "hil-dc1",
        "sin" => "sin-dc1",
        other => other,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_are_ours_foreign_or_unknown() {
        use Profile::{CcmFromScratch, Hcloud};
        let ours = |id| ProviderId::Ours(InstanceId::Cloud(id));
        let dedicated = |id| Some(ProviderId::Ours(InstanceId::Dedicated(id)));
        let cases = [
            (CcmFromScratch, "ccm-from-scratch://42", Some(ours(42))),
            (CcmFromScratch, "ccm-from-scratch://", None),
            (CcmFromScratch, "ccm-from-scratch://+42", None),
            (CcmFromScratch, "ccm-from-scratch://0", None),
            (CcmFromScratch, "ccm-from-scratch://42/x", None),
            (CcmFromScratch, "ccm-from-scratch://99999999999999999999", None),
            (CcmFromScratch, "hcloud://42", Some(ProviderId::Foreign)),
            (CcmFromScratch, "42", Some(ProviderId::Foreign)),
            (CcmFromScratch, "k3s://worker-1", Some(ProviderId::Foreign)),
            (Hcloud, "hcloud://42", Some(ours(42))),
            (Hcloud, "hcloud://bm-42", dedicated(42)),
            (Hcloud, "hcloud://bm-", None),
            (Hcloud, "hcloud://bm-0", None),
            (Hcloud, "hrobot://42", dedicated(42)),
            (Hcloud, "hrobot://", None),
            (Hcloud, "hrobot://bm-42", None),
            (CcmFromScratch, "hrobot://42", dedicated(42)),
            (CcmFromScratch, "hrobot://x", None),
            (CcmFromScratch, "hcloud://bm-42", dedicated(42)),
            (CcmFromScratch, "hcloud://bm-x", None),
            (CcmFromScratch, "ccm-from-scratch://bm-42", None),
            (Hcloud, "hcloud://x", None),
            (Hcloud, "ccm-from-scratch://42", Some(ProviderId::Foreign)),
            (Hcloud, "hcloud:/42", Some(ProviderId::Foreign)),
        ];
        for (profile, text, expected) in cases {
            let read = profile.parse_provider_id(text);
            match expected {
                Some(expected) => assert_eq!(read, expected, "{text}"),
                None => assert!(matches!(read, ProviderId::Unknown(_)), "{text}: {read:?}"),
            }
        }
    }

    fn labels(profile: Profile, instance: &Instance, settings: ZoneSettings) -> String {
        let labels = profile.topology(instance, settings).into_iter();
        let labels = labels.map(|(label, sourced)| format!("{label:?}={}", sourced.value));
        labels.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn zone_and_region_by_profile() {
        let labels = |profile: Profile, location: &str, is_enabled| {
            let instance = Instance {
                instance_type: "cx22".into(),
                location: location.into(),
                network_zone: "eu-central".into(),
                ..Instance::default()
            };
            labels(profile, &instance, ZoneSettings { is_enabled, label: None })
        };
        let cases = [
            (
                Profile::CcmFromScratch,
                "fsn1",
                true,
                "InstanceType=cx22 Zone=fsn1 Region=eu-central",
            ),
            (Profile::CcmFromScratch, "fsn1", false, "InstanceType=cx22 Region=eu-central"),
            (Profile::Hcloud, "nbg1", true, "InstanceType=cx22 Zone=nbg1-dc3 Region=nbg1"),
            (Profile::Hcloud, "hel1", true, "InstanceType=cx22 Zone=hel1-dc2 Region=hel1"),
            (Profile::Hcloud, "fsn1", true, "InstanceType=cx22 Zone=fsn1-dc14 Region=fsn1"),
            (Profile::Hcloud, "ash", true, "InstanceType=cx22 Zone=ash-dc1 Region=ash"),
            (Profile::Hcloud, "hil", true, "InstanceType=cx22 Zone=hil-dc1 Region=hil"),
            (Profile::Hcloud, "sin", true, "InstanceType=cx22 Zone=sin-dc1 Region=sin"),
            (Profile::Hcloud, "new1", true, "InstanceType=cx22 Zone=new1 Region=new1"),
            (Profile::Hcloud, "fsn1", false, "InstanceType=cx22 Region=fsn1"),
        ];
        for (profile, location, zone_label, expected) in cases {
            assert_eq!(labels(profile, location, zone_label), expected);
        }
    }

    #[test]
    fn the_zone_is_the_setting_s_choice_in_both_profiles() {
        use ZoneLabel::{Datacenter, Location};
        let of_cloud = Instance {
            instance_type: "cx22".into(),
            location: "nbg1".into(),
            network_zone: "eu-central".into(),
            ..Instance::default()
        };
        let dedicated = Instance {
            id: InstanceId::Dedicated(321),
            location: "fsn1".into(),
            data_center: "fsn1-dc16".into(),
            ..of_cloud.clone()
        };
        for (instance, label, is_enabled, zone, source) in [
            (&of_cloud, Datacenter, true, "Zone=nbg1-dc3 ", "server location.name"),
            (&of_cloud, Location, true, "Zone=nbg1 ", "server location.name"),
            (&of_cloud, Location, false, "", "environment HCLOUD_INSTANCES_ZONE_LABEL_ENABLED"),
            (&dedicated, Datacenter, true, "Zone=fsn1-dc16 ", "server dc"),
            (&dedicated, Location, true, "Zone=fsn1 ", "server dc"),
            (&dedicated, Datacenter, false, "", "environment HCLOUD_INSTANCES_ZONE_LABEL_ENABLED"),
        ] {
            for profile in [Profile::CcmFromScratch, Profile::Hcloud] {
                let settings = ZoneSettings { is_enabled, label: Some(label) };
                let all = labels(profile, instance, settings);
                let region = match profile {
                    Profile::CcmFromScratch => "eu-central",
                    Profile::Hcloud => &*instance.location,
                };
                assert_eq!(all, format!("InstanceType=cx22 {zone}Region={region}"), "{label:?}");
                let shown = profile.zone(instance, settings).wanted.source.to_string();
                let because = if is_enabled { "; HCLOUD_INSTANCES_ZONE_LABEL" } else { "" };
                assert_eq!(shown, format!("{source}{because}"), "{label:?}");
            }
        }
    }
}
