//! The effect of each value of the chart, and the values that are refused.

use crate::built::chart::{helm, rendered, settings};
use crate::built::rendered::{flags, folder, one, pod, understood, variables};
use serde_json::{Value, json};

/// Values, where they are found in the Deployment, and what is there.
#[rustfmt::skip] // A case is a line.
const CASES: &[(&str, &str, &str)] = &[
    ("replicaCount=2", "/spec/replicas", "2"),
    ("image.repository=registry.example.com/ccm,image.tag=v1", "/spec/template/spec/containers/0/image", r#""registry.example.com/ccm:v1""#),
    ("image.pullPolicy=Always", "/spec/template/spec/containers/0/imagePullPolicy", r#""Always""#),
    ("image.pullSecrets[0].name=registry", "/spec/template/spec/imagePullSecrets", r#"[{"name":"registry"}]"#),
    ("resources.limits.memory=1Gi", "/spec/template/spec/containers/0/resources/limits/memory", r#""1Gi""#),
    ("nodeSelector.zone=a", "/spec/template/spec/nodeSelector", r#"{"zone":"a"}"#),
    ("controlPlaneOnly=false", "/spec/template/spec/affinity", "null"),
    ("controlPlaneOnly=false,affinity.podAffinity.a=b", "/spec/template/spec/affinity", r#"{"podAffinity":{"a":"b"}}"#),
    ("affinity.podAffinity.a=b", "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/operator", r#""Exists""#),
    ("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].a=b", "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms", r#"[{"a":"b"}]"#),
    ("priorityClassName=mine", "/spec/template/spec/priorityClassName", r#""mine""#),
    ("additionalTolerations[0].key=x", "/spec/template/spec/tolerations/5", r#"{"key":"x"}"#),
    ("podLabels.team=a", "/spec/template/metadata/labels/team", r#""a""#),
    ("podAnnotations.team=a", "/spec/template/metadata/annotations", r#"{"team":"a"}"#),
    ("selectorLabels.app=ccm", "/spec/selector/matchLabels/app", r#""ccm""#),
    ("selectorLabels.app=ccm", "/spec/template/metadata/labels/app", r#""ccm""#),
    ("hostNetwork=false", "/spec/template/spec/hostNetwork", "null"),
    ("dnsPolicy=ClusterFirst", "/spec/template/spec/dnsPolicy", r#""ClusterFirst""#),
    ("dnsConfig.nameservers[0]=192.0.2.1", "/spec/template/spec/dnsConfig/nameservers/0", r#""192.0.2.1""#),
    ("strategy.type=Recreate,strategy.rollingUpdate=null", "/spec/strategy", r#"{"type":"Recreate"}"#),
    ("podSecurityContext.runAsUser=1000", "/spec/template/spec/securityContext/runAsUser", "1000"),
    ("podSecurityContext=null", "/spec/template/spec/securityContext", "null"),
    ("securityContext.readOnlyRootFilesystem=false", "/spec/template/spec/containers/0/securityContext/readOnlyRootFilesystem", "false"),
    ("securityContext=null", "/spec/template/spec/containers/0/securityContext", "null"),
    ("extraVolumes[0].name=v", "/spec/template/spec/volumes/1", r#"{"name":"v"}"#),
    // The Pod needs no Secret hcloud then.
    ("env.HCLOUD_TOKEN_FILE.value=/etc/mine/token", "/spec/template/spec/volumes/0/secret/optional", "true"),
    ("env.HCLOUD_INSTANCES_ZONE_LABEL.value=location", "/spec/template/spec/containers/0/env/0", r#"{"name":"HCLOUD_INSTANCES_ZONE_LABEL","value":"location"}"#),
    ("extraVolumeMounts[0].name=v,extraVolumeMounts[0].mountPath=/v", "/spec/template/spec/containers/0/volumeMounts/1", r#"{"mountPath":"/v","name":"v"}"#),
    // Without a group for files, this user is one of all the others.
    ("podSecurityContext=null", "/spec/template/spec/volumes/0/secret/defaultMode", "292"),
    ("podSecurityContext.fsGroup=null", "/spec/template/spec/volumes/0/secret/defaultMode", "292"),
    ("", "/spec/template/spec/volumes/0/secret/optional", "null"),
    // The token is elsewhere, and so may be the Secret.
    ("env.HCLOUD_TOKEN.value=t", "/spec/template/spec/volumes/0/secret/optional", "true"),
    ("env.HCLOUD_TOKEN.value=t,env.ROBOT_USER.value=u,env.ROBOT_PASSWORD.value=p", "/spec/template/spec/volumes", "null"),
    ("env.HCLOUD_TOKEN.value=t,env.ROBOT_USER.value=u,env.ROBOT_PASSWORD.value=p", "/spec/template/spec/containers/0/volumeMounts", "null"),
    ("nameOverride=other", "/metadata/name", r#""other""#),
    ("nameOverride=other", "/spec/template/spec/serviceAccountName", r#""other""#),
    ("args.metrics-address=:9000", "/spec/template/spec/containers/0/ports/0/containerPort", "9000"),
    ("args.metrics-address=127.0.0.1:9000", "/spec/template/spec/containers/0/livenessProbe/httpGet/host", r#""127.0.0.1""#),
    ("env.HCLOUD_METRICS_ADDRESS.value=:9001", "/spec/template/spec/containers/0/ports/0/containerPort", "9001"),
];

#[test]
fn each_value_of_the_chart_has_its_effect() {
    for (set, pointer, expected) in CASES {
        let Some(built) = rendered(&settings(set)) else {
            return;
        };
        let deployment = one(&built, "Deployment");
        let found = deployment.pointer(pointer).cloned().unwrap_or_default();
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(found, expected, "{set}");
    }
}

/// The values, the flags that follow, and the variables with their values. `from` means from a Secret, and `file` means
/// a file of it.
#[rustfmt::skip] // A case is a line.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("", "--cloud-provider=ccm-from-scratch", "HCLOUD_TOKEN_FILE=file ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    ("args.cloud-provider=hcloud", "--cloud-provider=hcloud", "HCLOUD_TOKEN_FILE=file ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    ("args.cloud-provider=null args.leader-elect=false args.v=4", "--leader-elect=false --v=4", "HCLOUD_TOKEN_FILE=file ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    // An empty value is the bare flag.
    ("args.leader-elect=", "--cloud-provider=ccm-from-scratch --leader-elect", "HCLOUD_TOKEN_FILE=file ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    ("networking.enabled=true", "--cloud-provider=ccm-from-scratch --cluster-cidr=10.244.0.0/16", "HCLOUD_NETWORK=from HCLOUD_TOKEN_FILE=file ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    ("networking.enabled=true networking.clusterCIDR=10.0.0.0/8 networking.network.valueFrom=null networking.network.value=net", "--cloud-provider=ccm-from-scratch --cluster-cidr=10.0.0.0/8", "HCLOUD_NETWORK=net HCLOUD_TOKEN_FILE=file ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    ("monitoring.enabled=false", "--cloud-provider=ccm-from-scratch", "HCLOUD_METRICS_ENABLED=false HCLOUD_TOKEN_FILE=file ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    ("env.HCLOUD_TOKEN_FILE.value=/t", "--cloud-provider=ccm-from-scratch", "HCLOUD_TOKEN_FILE=/t ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    // A variable replaces its file.
    ("env.HCLOUD_TOKEN.value=t", "--cloud-provider=ccm-from-scratch", "HCLOUD_TOKEN=t ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    ("robot.enabled=true", "--cloud-provider=ccm-from-scratch", "HCLOUD_TOKEN_FILE=file ROBOT_ENABLED=true ROBOT_PASSWORD_FILE=file ROBOT_USER_FILE=file"),
    ("robot.enabled=true env.ROBOT_USER.value=u env.ROBOT_PASSWORD.value=p env.ROBOT_CACHE_TIMEOUT.value=10m", "--cloud-provider=ccm-from-scratch", "HCLOUD_TOKEN_FILE=file ROBOT_CACHE_TIMEOUT=10m ROBOT_ENABLED=true ROBOT_PASSWORD=p ROBOT_USER=u"),
];

#[test]
fn arguments_and_variables_are_what_ccm_understands() {
    for (set, expected_flags, expected_variables) in COMMANDS {
        let Some(built) = rendered(&settings(set)) else {
            return;
        };
        let container = &pod(one(&built, "Deployment"))["containers"][0];
        assert_eq!(flags(container).join(" "), *expected_flags, "{set}");
        let shown: Vec<String> = variables(container)
            .into_iter()
            .map(|(name, value)| match value.strip_prefix("/etc/hcloud/") {
                Some(_) => format!("{name}=file"),
                None => format!("{name}={value}"),
            })
            .collect();
        assert_eq!(shown.join(" "), *expected_variables, "{set}");
        understood(container);
    }
}

#[test]
fn the_default_values_of_the_go_ones_chart_render_with_our_image() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/packages/built/hccm-values.yaml");
    let set = "image.repository=ccm image.tag=v1 networking.enabled=true robot.enabled=true";
    let set = settings(set);
    let Some(built) = rendered(&[&["-f", file], &set[..]].concat()) else {
        return;
    };
    let pod = pod(one(&built, "Deployment"));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "ccm:v1");
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let labels = &one(&built, "Deployment")["spec"]["selector"]["matchLabels"];
    assert_eq!(labels["app.kubernetes.io/name"], "ccm-from-scratch");
    assert_eq!(variables(container)["ROBOT_ENABLED"], "true");
    // The container has the other project's variables, and so no files.
    assert!(variables(container).keys().all(|name| !name.ends_with("_FILE")));
    assert_eq!(pod["volumes"], Value::Null);
    for (variable, key) in [("ROBOT_USER", "robot-user"), ("ROBOT_PASSWORD", "robot-password")] {
        let all = container["env"].as_array().unwrap();
        let one = all.iter().find(|one| one["name"] == variable).unwrap();
        let from = json!({"name": "hcloud", "key": key, "optional": true});
        assert_eq!(one["valueFrom"]["secretKeyRef"], from, "{variable}");
    }
    understood(container);
}

#[test]
fn a_daemonset_is_the_deployments_pod_on_each_node() {
    let (Some(deployment), Some(daemonset)) =
        (rendered(&[]), rendered(&settings("kind=DaemonSet")))
    else {
        return;
    };
    let daemonset = one(&daemonset, "DaemonSet");
    assert_eq!(pod(daemonset), pod(one(&deployment, "Deployment")));
    for of_deployments in ["replicas", "strategy"] {
        assert_eq!(daemonset["spec"][of_deployments], Value::Null);
    }
}

#[test]
fn optional_objects_are_rendered_when_they_are_requested() {
    let set = "monitoring.podMonitor.enabled=true monitoring.podMonitor.labels.release=prometheus \
               rbac.create=false tlsSecretNamespaces={web} preferNodesWithPods=true serviceAccount.annotations.owner=me";
    let Some(built) = rendered(&settings(set)) else {
        return;
    };
    let kinds: Vec<&str> = built.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ServiceAccount", "Deployment", "PodMonitor"]);
    let monitor = one(&built, "PodMonitor");
    let deployment = one(&built, "Deployment");
    let expected = &deployment["spec"]["selector"];
    assert_eq!(monitor["spec"]["selector"], *expected, "{monitor}");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    let endpoints = &monitor["spec"]["podMetricsEndpoints"];
    let port = &pod(deployment)["containers"][0]["ports"][0]["name"];
    assert_eq!(endpoints, &json!([{"port": port}]));
    let account = one(&built, "ServiceAccount");
    assert_eq!(account["metadata"]["annotations"], json!({"owner": "me"}));
}

/// Values and what the complaint names.
#[rustfmt::skip] // A case is a line or two.
const REFUSED: &[(&str, &str)] = &[
    ("replicacount=2", "replicacount"),
    ("kind=CronJob", "kind"),
    ("networking.enabled=maybe", "enabled"),
    ("networking.clustercidr=10.0.0.0/8", "clustercidr"),
    ("env.HCLOUD_NETWORK.value=a", "networking.enabled"),
    ("env.HCLOUD_METRICS_ENABLED.value=a", "monitoring.enabled"),
    ("env.ROBOT_ENABLED.value=a", "robot.enabled"),
    ("env.A=b", "env"),
    ("image.repository=", "image.repository: it is required"),
    ("image.repository=null", "image.repository: it is required"),
    ("image.repository=docker.io/hetznercloud/hcloud-cloud-controller-manager",
        "image.repository: docker.io/hetznercloud/hcloud-cloud-controller-manager is"),
    ("networkPolicy.enabled=true", "set hostNetwork to false"),
    ("hostNetwork=false args.metrics-address=127.0.0.1:8300",
        "in the network of Pods, probes can't reach 127.0.0.1; write :8300"),
    ("controlPlaneOnly=maybe", "controlPlaneOnly"),
    ("robot.on=true", "robot"),
    ("preferNodesWithPods=maybe", "preferNodesWithPods"),
    ("kubeletCertificates.enabled=maybe", "kubeletCertificates"),
    ("kubeletCertificates=true", "kubeletCertificates"),
    ("monitoring.podMonitor.enabled=true", "install the Prometheus Operator first"),
    ("args.cluster-cidr=a", "networking.clusterCIDR"),
    ("args.--v=4", "--v"),
    ("args.metrics-address=", "metrics-address"),
    ("monitoring.podMonitor.spec.selector.a=b", "spec"),
];

#[test]
fn a_value_without_effect_or_with_two_is_refused() {
    let chart = folder().join("chart");
    for (set, named) in REFUSED {
        let template = [
            "template",
            chart.to_str().unwrap(),
            "--kube-version=1.30.0",
            "--set=image.repository=ccm",
        ];
        let Some(ran) = helm(&[&template[..], &settings(set)].concat()) else {
            return;
        };
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success(), "{set} is accepted");
        assert!(!said.contains("walk.go"), "{set}: {said}");
        assert!(said.contains(named), "{set}: {said}");
    }
}
