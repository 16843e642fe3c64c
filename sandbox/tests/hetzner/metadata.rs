//! The metadata service, which tells a server about itself.

use sandbox::exchange::{Handler, Request};
use sandbox::hetzner::ServerSpec;

use crate::api::Api;

#[test]
fn a_server_learns_about_itself() {
    let api = Api::new();
    let network = api.cloud.create_network(api.project, "net: 1", "10.0.0.0/16");
    let id = api.cloud.create_server(
        api.project,
        ServerSpec {
            name: "worker-1".into(),
            location: "hel1".into(),
            networks: vec![(network, None)],
            ..ServerSpec::default()
        },
    );
    assert_eq!(ask(&api, "").0, 404, "outside of the cloud");

    api.cloud.set_metadata_server(Some(id));
    let cases = [
        ("/hostname", "worker-1"),
        ("/instance-id", &id.to_string()),
        ("/region", "eu-central"),
        ("/availability-zone", "hel1-dc2"),
        ("/public-ipv4", "203.0.113.1"),
    ];
    for (path, expected) in cases {
        assert_eq!(ask(&api, path), (200, expected.into()), "{path}");
    }
    assert!(ask(&api, "").1.contains("\nhostname: worker-1\n"));
    assert_eq!(ask(&api, "/nothing").0, 404);

    let networks: serde_yaml::Value =
        serde_yaml::from_str(&ask(&api, "/private-networks").1).expect("YAML");
    let texts = [
        ("ip", "10.0.0.2"),
        ("network_name", "net: 1"),
        ("network", "10.0.0.0/16"),
        ("subnet", "10.0.0.0/24"),
        ("gateway", "10.0.0.1"),
    ];
    for (field, expected) in texts {
        assert_eq!(networks[0][field].as_str(), Some(expected), "{field}");
    }
    assert_eq!(networks[0]["network_id"].as_u64(), Some(network));
    assert!(networks[0]["alias_ips"].is_sequence());

    api.cloud.delete_server(id);
    assert_eq!(ask(&api, "/hostname").0, 404);
}

#[test]
fn the_private_networks_of_a_server_without_networks_are_empty() {
    let api = Api::new();
    let id = api.cloud.create_server(api.project, ServerSpec::default());
    api.cloud.set_metadata_server(Some(id));
    assert_eq!(ask(&api, "/private-networks"), (200, "[]\n".into()));
}

fn ask(api: &Api, path: &str) -> (u16, String) {
    let path = format!("/hetzner/v1/metadata{path}");
    let response = api.cloud.handle(&Request { method: "GET".into(), path, ..Request::default() });
    (response.status, String::from_utf8(response.body).unwrap_or_default())
}
