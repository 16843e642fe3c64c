//! Overlays change what they are for, and nothing else.

use crate::built::rendered::{
    base, flags, kustomized, one, pod, read, understood, variables, with_component,
};
use ccm::provider::ZoneLabel;
use ccm::settings::Profile;
use serde_json::{Value, json};

/// The base's Deployment with this container.
fn but_for(change: impl FnOnce(&mut Value)) -> Vec<Value> {
    with_pod(base(), |pod| change(&mut pod["containers"][0]))
}

/// Returns the objects with a changed Pod of the Deployment or CronJob.
fn with_pod(mut objects: Vec<Value>, change: impl FnOnce(&mut Value)) -> Vec<Value> {
    let paths = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
    let mut pods = objects.iter_mut();
    let pod = pods.find_map(|object| {
        let path = paths.iter().find(|path| object.pointer(path).is_some())?;
        object.pointer_mut(path)
    });
    change(pod.unwrap());
    objects
}

fn assert_same(built: &[Value], expected: &[Value]) {
    for object in expected {
        assert!(built.contains(object), "changed or missing: {object:#}");
    }
    assert_eq!(built.len(), expected.len());
}

#[test]
fn the_hcloud_overlay_is_the_base_in_the_other_profile() {
    let Some(built) = kustomized("hcloud") else {
        return;
    };
    let expected = but_for(|container| {
        container["args"] = json!(["run", "--cloud-provider=hcloud"]);
    });
    assert_same(&built, &expected);
    let parsed = understood(&pod(one(&built, "Deployment"))["containers"][0]);
    assert_eq!(parsed.settings.cloud_provider.value, Profile::Hcloud);
}

#[test]
fn the_example_for_karpenter_is_the_hcloud_overlay_with_the_location_as_zone_label() {
    let Some(built) = kustomized("../examples/karpenter") else {
        return;
    };
    let expected = but_for(|container| {
        container["args"] = json!(["run", "--cloud-provider=hcloud"]);
        let variable = json!({"name": "HCLOUD_INSTANCES_ZONE_LABEL", "value": "location"});
        container["env"].as_array_mut().unwrap().push(variable);
    });
    assert_same(&built, &expected);
    let parsed = understood(&pod(one(&built, "Deployment"))["containers"][0]);
    assert_eq!(parsed.settings.zone_label.value, Some(ZoneLabel::Location));
}

#[test]
fn the_right_to_read_secrets_has_no_namespace_of_its_own_and_is_of_the_daemons_account() {
    let Some(built) = kustomized("../tls-secrets") else {
        return;
    };
    let role = one(&built, "Role");
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    assert_eq!(role["rules"], rules);
    let binding = one(&built, "RoleBinding");
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    let base = base();
    let account = &one(&base, "ServiceAccount")["metadata"];
    let subject = &binding["subjects"][0];
    assert_eq!(subject["name"], account["name"]);
    assert_eq!(subject["namespace"], "kube-system");
    let namespaces = built.iter().map(|one| &one["metadata"]["namespace"]);
    assert!(namespaces.into_iter().all(Value::is_null));
}

#[test]
fn the_private_network_overlay_requires_the_network_and_uses_it() {
    let Some(built) = kustomized("private-network") else {
        return;
    };
    let container = &pod(one(&built, "Deployment"))["containers"][0];
    let parsed = understood(container);
    assert!(parsed.settings.network.value.is_some());
    assert_eq!(
        parsed.settings.load_balancers.network.use_private_ip.map(|set| set.value),
        Some(true)
    );
    assert_eq!(flags(container), ["--cluster-cidr=10.244.0.0/16"]);
    let network = container["env"].as_array().unwrap().iter();
    let network: Vec<&Value> = network.filter(|one| one["name"] == "HCLOUD_NETWORK").collect();
    assert_eq!(network.len(), 1);
    let key = &network[0]["valueFrom"]["secretKeyRef"];
    let wanted = &json!({"name": "hcloud", "key": "network", "optional": false});
    assert_eq!(key, wanted);
    assert_eq!(variables(container).len(), 5);
    let expected = but_for(|own| {
        for field in ["args", "env"] {
            own[field] = container[field].clone();
        }
    });
    assert_same(&built, &expected);
}

#[test]
fn the_cron_overlay_runs_the_deployment_s_pod_once_within_its_limit() {
    let Some(built) = kustomized("cron") else {
        return;
    };
    let expected: Vec<Value> =
        base().into_iter().filter(|object| object["kind"] != "Deployment").collect();
    let (cron, others): (Vec<Value>, Vec<Value>) =
        built.into_iter().partition(|object| object["kind"] == "CronJob");
    assert_same(&others, &expected);
    let spec = &cron[0]["spec"];
    assert_eq!(spec["concurrencyPolicy"], "Forbid");
    let job = &spec["jobTemplate"]["spec"];
    // A pass ends before the next one is due.
    assert_eq!(spec["schedule"], "*/5 * * * *");
    assert!(job["activeDeadlineSeconds"].as_u64().unwrap() < 5 * 60);
    assert_eq!(job["backoffLimit"], 0);
    let template = &job["template"];
    let container = &template["spec"]["containers"][0];
    let parsed = understood(container);
    assert!(parsed.settings.once.value);
    assert!(parsed.notices.is_empty(), "{:?}", parsed.notices);

    // In all other respects the Pod is the Deployment's.
    let base = base();
    let deployment = one(&base, "Deployment");
    let mut expected = pod(deployment).clone();
    expected["restartPolicy"] = json!("Never");
    let own = &mut expected["containers"][0];
    own["args"] = json!(["run", "--once"]);
    for field in ["ports", "livenessProbe", "readinessProbe"] {
        own.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(template["spec"], expected);
    let wanted = &deployment["spec"]["template"]["metadata"];
    assert_eq!(template["metadata"], *wanted);
}

#[test]
fn components_change_one_thing_of_daemon_and_cron_job() {
    for resource in ["base", "overlays/cron"] {
        let objects = match resource {
            "base" => Some(base()),
            _ => kustomized("cron"),
        };
        let (Some(objects), Some(any_node), Some(pod_network)) = (
            objects,
            with_component(resource, "any-node"),
            with_component(resource, "pod-network"),
        ) else {
            return;
        };
        let without = |field: &'static str| {
            with_pod(objects.clone(), |pod| {
                assert!(pod.as_object_mut().unwrap().remove(field).is_some());
            })
        };
        assert_same(&any_node, &without("affinity"));
        let mut expected = without("hostNetwork");
        expected.extend(read("components/pod-network/network-policy.yaml"));
        assert_same(&pod_network, &expected);
    }
}

#[test]
fn a_right_of_a_component_is_a_role_beside_that_of_the_base() {
    for name in ["endpointslices", "kubelet-certificates"] {
        is_beside_the_base(name);
    }
}

fn is_beside_the_base(name: &str) {
    let right = read(&format!("components/{name}/role.yaml"));
    for resource in ["base", "overlays/cron"] {
        let objects = match resource {
            "base" => Some(base()),
            _ => kustomized("cron"),
        };
        let (Some(mut expected), Some(built)) = (objects, with_component(resource, name)) else {
            return;
        };
        expected.extend(right.clone());
        assert_same(&built, &expected);
    }
    // A person also applies the component alone, after ccm was installed.
    let alone = kustomized(&format!("../components/{name}"));
    assert_same(&alone.unwrap(), &right);
}

#[test]
fn the_component_lets_the_daemons_account_list_endpoint_slices_and_do_nothing_else() {
    let right = read("components/endpointslices/role.yaml");
    let role = one(&right, "ClusterRole");
    let rules = json!([{
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["list"],
    }]);
    assert_eq!(role["rules"], rules);
    let binding = one(&right, "ClusterRoleBinding");
    let base = base();
    let of_base = one(&base, "ClusterRoleBinding");
    assert_eq!(binding["subjects"], of_base["subjects"]);
    assert_eq!(binding["roleRef"]["kind"], "ClusterRole");
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    // A name of the base's own would replace the base's role where the component is applied alone.
    assert_ne!(role["metadata"]["name"], one(&base, "ClusterRole")["metadata"]["name"]);
    assert_ne!(binding["metadata"]["name"], of_base["metadata"]["name"]);
}

/// The component also sets the variable, without which ccm would not use the right.
#[test]
fn the_component_for_defaults_of_namespaces_gives_a_right_and_sets_the_variable() {
    let right = read("components/namespace-defaults/role.yaml");
    let rules = json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}]);
    assert_eq!(one(&right, "ClusterRole")["rules"], rules);
    let variable = json!({"name": "HCLOUD_LOAD_BALANCERS_NAMESPACE_DEFAULTS", "value": "true"});
    for (resource, kind) in [("base", "Deployment"), ("overlays/cron", "CronJob")] {
        let Some(built) = with_component(resource, "namespace-defaults") else {
            return;
        };
        assert!(right.iter().all(|object| built.contains(object)), "{resource}");
        let workload = one(&built, kind).to_string();
        assert!(workload.contains(&variable.to_string()), "{resource}: {workload}");
    }
    // A person also applies the component alone, after ccm was installed.
    assert_same(&kustomized("../components/namespace-defaults").unwrap(), &right);
}

#[test]
fn the_network_policy_is_about_the_deployments_pods_and_its_port() {
    let policy = read("components/pod-network/network-policy.yaml").remove(0);
    let base = base();
    let deployment = one(&base, "Deployment");
    let selector = &deployment["spec"]["selector"];
    assert_eq!(&policy["spec"]["podSelector"], selector);
    let port = &pod(deployment)["containers"][0]["ports"][0]["name"];
    let ingress = json!([{"ports": [{"protocol": "TCP", "port": port}]}]);
    assert_eq!(policy["spec"]["ingress"], ingress);
}

#[test]
fn the_loopback_overlay_probes_the_address_on_which_the_daemon_listens() {
    let Some(built) = with_component("base", "loopback-metrics") else {
        return;
    };
    let parsed = understood(&pod(one(&built, "Deployment"))["containers"][0]);
    let address = parsed.settings.metrics_address.value.unwrap();
    assert!(address.ip().is_loopback());
    let expected = but_for(|container| {
        container["args"] = json!(["run", format!("--metrics-address={address}")]);
        for probe in ["livenessProbe", "readinessProbe"] {
            container[probe]["httpGet"]["host"] = json!(address.ip().to_string());
        }
    });
    assert_same(&built, &expected);
}
