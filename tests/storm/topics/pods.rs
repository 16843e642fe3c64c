//! More nodes than a load balancer takes, and Services whose pods run on some of them. Pods move, end slowly, all go away
//! and come back, while EndpointSlices are refused, fail, or come in pages of which one is missing.
//!
//! What a process knows of the pods is what the API server has answered to it. So the answers are noted here, and each
//! removal of a target is compared with them.

use super::cluster::{
    NAMESPACE, PERMANENT_NODE, delete_node_and_server, eligible_servers, ids, join, list,
    server_of, targets,
};
use super::targets::{
    AUTOSCALER, CONDITIONS, delay, departs, end_bad_health, has_taint, is_healthy, set_delay,
    set_health, users,
};
use super::{Topic, Verdict, nodes};
use crate::random::Random;
use ccm::controllers::Report;
use ccm::hetzner::load_balancers::annotations::PREFIX;
use sandbox::exchange::{Request, Response};
use sandbox::faults::{Effect, Rule};
use sandbox::hetzner::{Health, Machine};
use sandbox::kubernetes::{Pod, PolicyRule};
use sandbox::{Half, Sandbox};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const PREFER: &str = "prefer-nodes-with-pods";
const TYPE: &str = "lb11";
const MINUTE: Duration = Duration::from_secs(60);

/// The greatest numbers of exchanges in a minute: of one load balancer, and of all.
const OF_BALANCER: usize = 5;
const OF_ALL: usize = 10;

/// For how long a process is paused at most while it carries out a plan.
const PAUSE_AT_MOST: Duration = Duration::from_secs(90);

/// How many rounds a process works until it must have made all exchanges. Some twenty targets can be exchanged, ten in a
/// minute, and each minute has twelve rounds.
const ROUNDS_UNTIL_REST: usize = 70;

/// The token of the second page of a list. It is the API server's word for a page that a test has split off.
const SECOND_PAGE: &str = "second-page";

pub struct Pods {
    /// How many targets a load balancer takes, and how many nodes events change.
    room: usize,
    nodes: u64,
    /// The name of each Service, and the group that shares its load balancer.
    services: Vec<(&'static str, Option<&'static str>)>,
    history: Arc<Mutex<History>>,
}

/// How the API server fails to list EndpointSlices.
#[derive(Clone, Copy)]
enum Failure {
    Internal,
    Forbidden,
    Expired,
    /// The first page is right, and the second one is missing.
    Page,
}

impl Failure {
    const ALL: [Failure; 5] =
        [Failure::Internal, Failure::Forbidden, Failure::Expired, Failure::Page, Failure::Page];
}

struct History {
    /// The name of the process that is at work.
    running: String,
    /// What each process was answered and did.
    processes: BTreeMap<String, Knowledge>,
    /// The Services for which the newest request asks, and whether it asks for a second page.
    asked: BTreeSet<String>,
    is_second: bool,
    /// How often the API server fails to list EndpointSlices, in percent, in what way, and the numbers that decide it.
    failures: u64,
    failure: Failure,
    random: Random,
    /// When each process last tried to remove a target of each load balancer.
    removals: BTreeMap<(u64, String), Instant>,
    exchanges: u64,
    urgent: u64,
}

/// What a process knows of the pods, and which targets it has exchanged.
#[derive(Default)]
struct Knowledge {
    /// The complete lists, the newest last.
    lists: Vec<PodList>,
    /// When the first of the lists failed that came after the last complete one.
    failed: Option<Instant>,
    /// The items of the first page, while the second page is awaited.
    first_page: Vec<Value>,
    /// The rest of a list that was split into two pages.
    second_page: Vec<Value>,
    /// The load balancer, the server and the time of each exchange that counts.
    exchanges: Vec<(u64, u64, Instant)>,
}

/// A complete list of EndpointSlices.
struct PodList {
    at: Instant,
    /// The names of the Services for which the process asked.
    asked: BTreeSet<String>,
    /// The Services and the nodes of their endpoints of type IPv4.
    ready: BTreeSet<(String, String)>,
    serving: BTreeSet<(String, String)>,
    /// The Services with an endpoint that serves and names no node.
    nameless: BTreeSet<String>,
}

/// What both APIs show about one load balancer, the nodes, and the pods of its Services.
struct View {
    balancer: Value,
    /// The names of the nodes that would be targets if there were room, by the ID of their servers.
    wanted: BTreeMap<u64, String>,
    there: BTreeSet<u64>,
    departing: BTreeSet<u64>,
    /// The Services with policy `Local`, when one of them prefers nodes with pods.
    local: Vec<String>,
    delay: Option<Duration>,
}

/// Why a target may be exchanged.
enum Exchange {
    /// A Service has no target with a ready pod, so that the exchange neither waits nor counts.
    Urgent,
    Counted,
}

impl Pods {
    pub fn generate(random: &mut Random) -> Pods {
        let room = *random.pick(&[2, 3, 4, 7]);
        let mut services = vec![("own", None)];
        for (name, group) in [("other", None), ("host", Some("edge")), ("member", Some("edge"))] {
            if random.percent(45) {
                services.push((name, group));
            }
        }
        // Without many nodes that are no targets, the limits of exchanges are never reached.
        let nodes = room as u64 + *random.pick(&[1, 3, 7]);
        let history = History {
            running: String::new(),
            processes: BTreeMap::new(),
            asked: BTreeSet::new(),
            is_second: false,
            failures: 0,
            failure: Failure::Internal,
            random: Random::new(0),
            removals: BTreeMap::new(),
            exchanges: 0,
            urgent: 0,
        };
        Pods { room, nodes, services, history: Arc::new(Mutex::new(history)) }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }

    /// Returns why the target must not be removed, or `None`.
    fn violation_by_removal(&self, sandbox: &Sandbox, id: u64, server: u64) -> Option<String> {
        let view = View::read(sandbox, id)?;
        // A removal of a server that is no target has no effect.
        if !view.wanted.contains_key(&server)
            || !view.there.contains(&server)
            || users(sandbox, &view.balancer).is_empty()
        {
            return None;
        }
        if let Some(why) = view.unsafe_removal(server) {
            return Some(why);
        }
        if view.is_departing(server) {
            return None;
        }
        let history = &mut *self.history();
        // A process does not know what another one has removed since the load balancer was listed. This holds for its whole
        // plan, also when it repeats a removal that was refused.
        let now = sandbox::time::now();
        let running = history.running.clone();
        history.removals.insert((id, running.clone()), now);
        let is_alone = history.removals.iter().all(|((balancer, process), at)| {
            let is_over = now.saturating_duration_since(*at) > PAUSE_AT_MOST;
            *balancer != id || *process == running || is_over
        });
        let process = history.processes.entry(running).or_default();
        // The server is still a target, so an earlier removal was refused.
        process.exchanges.retain(|(balancer, of, _)| (*balancer, *of) != (id, server));
        match self.exchange(process, &view, server, is_alone) {
            Ok(Exchange::Urgent) => history.urgent += 1,
            Ok(Exchange::Counted) => {
                history.exchanges += 1;
                process.exchanges.push((id, server, sandbox::time::now()));
            }
            Err(why) => return Some(why),
        }
        None
    }

    /// Returns why the target may be exchanged now, or why it must stay.
    fn exchange(
        &self,
        process: &Knowledge,
        view: &View,
        server: u64,
        is_alone: bool,
    ) -> Result<Exchange, String> {
        let stays = |why: String| Err(format!("server {server} is wanted, and {why}"));
        // When another process has just removed a node that the autoscaler deletes, this node is not wanted any more.
        if is_alone && view.wanted.len() <= self.room {
            return stays("all nodes fit".into());
        }
        if view.local.is_empty() {
            return stays("no Service prefers nodes with pods".into());
        }
        // A plan that was begun before the list failed may be carried out after a pause.
        let now = sandbox::time::now();
        let has_failed = process
            .failed
            .is_some_and(|failed| now.saturating_duration_since(failed) > PAUSE_AT_MOST);
        let Some(pods) = process.lists.last().filter(|_| !has_failed) else {
            return stays("the pods are not known".into());
        };
        if let Some(service) = view.local.iter().find(|service| !pods.asked.contains(*service)) {
            return stays(format!("the pods of {service} are not known"));
        }
        if let Some(service) = view.local.iter().find(|service| pods.nameless.contains(*service)) {
            return stays(format!("{service} has an endpoint without a node"));
        }
        let node = &view.wanted[&server];
        if view.has(&pods.serving, node) {
            return stays(format!("{node} has an endpoint"));
        }
        // Nodes with ready pods also come to the places that are free already.
        let free = self.room.saturating_sub(view.there.len());
        if is_alone && view.ready_outside(pods, &view.local).count() <= free {
            return stays("no node with a ready pod takes its place".into());
        }
        let is_without = |service: &String| {
            let mut there = view.there.iter().filter_map(|id| view.wanted.get(id));
            let is_ready = |node: &String| pods.ready.contains(&(service.clone(), node.clone()));
            let mut outside = view.ready_outside(pods, std::slice::from_ref(service));
            !there.any(is_ready) && outside.next().is_some()
        };
        if view.local.iter().any(is_without) {
            return Ok(Exchange::Urgent);
        }
        // Over sockets the time of `ccm` is scaled.
        if !sandbox::time::is_simulated() {
            return Ok(Exchange::Counted);
        }
        let is_recent = |at: Instant| now.saturating_duration_since(at) < MINUTE;
        let mut recent = process.lists.iter().filter(|list| is_recent(list.at));
        let is_nameless =
            |list: &PodList| view.local.iter().any(|service| list.nameless.contains(service));
        if recent.any(|list| view.has(&list.serving, node) || is_nameless(list)) {
            return stays(format!("{node} may have had an endpoint within the last minute"));
        }
        let knows = |service: &String| {
            let mut before = process.lists.iter().filter(|list| !is_recent(list.at));
            before.any(|list| list.asked.contains(service))
        };
        if let Some(service) = view.local.iter().find(|service| !knows(service)) {
            return stays(format!("the pods of {service} are known for less than a minute"));
        }
        let recent = process.exchanges.iter().filter(|(.., at)| is_recent(*at));
        let (all, own) = (
            recent.clone().count(),
            recent.filter(|(balancer, ..)| view.balancer["id"] == *balancer).count(),
        );
        if own >= OF_BALANCER || all >= OF_ALL {
            return stays(format!("{own} targets, {all} of all, were exchanged within a minute"));
        }
        Ok(Exchange::Counted)
    }

    /// Checks that at rest each load balancer has the best targets that it can have.
    fn check_rest(&self, sandbox: &Sandbox) -> Result<(), String> {
        let pods = PodList::of_cluster(sandbox);
        for balancer in sandbox.cloud().load_balancers(sandbox.project()) {
            let Some(view) = View::read(sandbox, balancer["id"].as_u64().unwrap_or_default())
            else {
                continue;
            };
            if users(sandbox, &view.balancer).is_empty() {
                continue;
            }
            let name = &balancer["name"];
            if let Some(id) = view.there.iter().find(|id| !view.wanted.contains_key(id)) {
                return Err(format!("{name}: server {id} is a target"));
            }
            let mut outside = view.wanted.keys().filter(|id| !view.there.contains(id));
            let left = outside.find(|id| !view.is_departing(**id));
            if let Some(id) = left.filter(|_| view.there.len() < self.room) {
                return Err(format!("{name}: server {id} is no target, and there is room"));
            }
            if view.local.iter().any(|service| pods.nameless.contains(service)) {
                continue;
            }
            let is_empty = |id: &&u64| {
                view.wanted.get(*id).is_some_and(|node| !view.has(&pods.serving, node))
                    && view.unsafe_removal(**id).is_none()
            };
            let ready = view.ready_outside(&pods, &view.local).next();
            if let Some((ready, empty)) = ready.zip(view.there.iter().find(is_empty)) {
                return Err(format!(
                    "{name}: {ready} has a ready pod and is no target, server {empty} has none and is one"
                ));
            }
        }
        Ok(())
    }

    /// Lets the pods of a Service run on other nodes. Returns a line for the story's log.
    fn move_pods(&self, sandbox: &Sandbox, random: &mut Random, service: &str) -> String {
        let nodes = sandbox.cluster().list("nodes", None);
        let names = |is_such: &mut dyn FnMut(u64) -> bool| -> Vec<String> {
            let such = nodes.iter().filter(|node| server_of(node).is_some_and(&mut *is_such));
            such.filter_map(|node| Some(node["metadata"]["name"].as_str()?.to_owned())).collect()
        };
        let balancers = sandbox.cloud().load_balancers(sandbox.project());
        let of_service = balancers.iter().find(|balancer| {
            users(sandbox, balancer).iter().any(|user| user["metadata"]["name"] == service)
        });
        let there = of_service.map(targets).unwrap_or_default();
        let share = *random.pick(&[15, 40, 80]);
        let mut chosen = match random.below(8) {
            0 => Vec::new(),
            1..4 => names(&mut |id| !there.contains(&id)),
            4 => names(&mut |id| there.contains(&id)),
            _ => names(&mut |_| random.percent(share)),
        };
        if random.percent(30) {
            chosen.truncate(1);
        }
        let state =
            *random.pick(&[Pod::Ready, Pod::Ready, Pod::Ready, Pod::Terminating, Pod::NotReady]);
        let mut pods: Vec<(&str, Pod)> =
            chosen.iter().map(|name| (name.as_str(), Pod::Ready)).collect();
        for pod in &mut pods {
            if random.percent(30) {
                pod.1 = state;
            }
        }
        if random.percent(6) {
            pods.push(("", Pod::Ready));
        }
        if random.percent(10) {
            sandbox.cluster().set_ipv6_endpoints("default", service, &pods);
            return format!("{service} has pods with IPv6: {pods:?}");
        }
        sandbox.cluster().set_endpoints("default", service, &pods);
        format!("{service} has pods: {pods:?}")
    }
}

impl History {
    /// Notes the answer to a list of EndpointSlices for the process that is at work. Returns what the process is
    /// answered.
    fn answer(&mut self, response: Response) -> Response {
        let fails = self.random.percent(self.failures);
        let is_split = fails || self.random.percent(20);
        let process = self.processes.entry(self.running.clone()).or_default();
        let answer = match self.failure {
            Failure::Page if fails && !self.is_second => {
                process.answer(&self.asked, None, response, true)
            }
            _ if fails => self.failure.response(),
            _ => {
                let second = self.is_second.then(|| std::mem::take(&mut process.second_page));
                process.answer(&self.asked, second, response, is_split)
            }
        };
        if answer.status != 200 {
            process.failed.get_or_insert(sandbox::time::now());
        }
        answer
    }
}

impl Failure {
    fn response(self) -> Response {
        let (code, reason, message) = match self {
            Failure::Internal | Failure::Page => {
                (500, "InternalError", "etcdserver: request timed out")
            }
            Failure::Forbidden => (403, "Forbidden", "endpointslices is forbidden"),
            Failure::Expired => (410, "Expired", "the resource version is too old"),
        };
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code,
        });
        Response::json(code, &body)
    }
}

impl Knowledge {
    /// Notes an answer of the API server to this process. `second` is the second page when the process asks for it.
    /// Returns the answer, of which only the first page is left when it is split.
    fn answer(
        &mut self,
        asked: &BTreeSet<String>,
        second: Option<Vec<Value>>,
        response: Response,
        is_split: bool,
    ) -> Response {
        if let Some(rest) = second {
            let body = page(&rest, "");
            let all: Vec<Value> = self.first_page.drain(..).chain(rest).collect();
            self.note(PodList::new(&all, asked));
            return Response::json(200, &body);
        }
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        if response.status != 200 {
            return response;
        }
        let items = list(&body["items"]);
        if !is_split || items.len() < 2 {
            self.note(PodList::new(items, asked));
            return response;
        }
        let (first, rest) = items.split_at(items.len() / 2);
        (self.first_page, self.second_page) = (first.to_vec(), rest.to_vec());
        Response::json(200, &page(first, SECOND_PAGE))
    }

    fn note(&mut self, list: PodList) {
        self.failed = None;
        self.lists.push(list);
    }
}

fn page(items: &[Value], token: &str) -> Value {
    json!({
        "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
        "metadata": { "resourceVersion": "1", "continue": token }, "items": items,
    })
}

impl PodList {
    fn new(slices: &[Value], asked: &BTreeSet<String>) -> PodList {
        let mut pods = PodList {
            at: sandbox::time::now(),
            asked: asked.clone(),
            ready: BTreeSet::new(),
            serving: BTreeSet::new(),
            nameless: BTreeSet::new(),
        };
        for slice in slices.iter().filter(|slice| slice["addressType"] == "IPv4") {
            let service = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str();
            let service = service.unwrap_or_default();
            for endpoint in list(&slice["endpoints"]) {
                let is = |condition: &str| endpoint["conditions"][condition] == true;
                if !is("ready") && !is("serving") {
                    continue;
                }
                let Some(node) = endpoint["nodeName"].as_str() else {
                    pods.nameless.insert(service.to_owned());
                    continue;
                };
                let place = (service.to_owned(), node.to_owned());
                if is("ready") {
                    pods.ready.insert(place.clone());
                }
                pods.serving.insert(place);
            }
        }
        pods
    }

    fn of_cluster(sandbox: &Sandbox) -> PodList {
        PodList::new(&sandbox.cluster().list("endpointslices", NAMESPACE), &BTreeSet::new())
    }
}

impl View {
    fn read(sandbox: &Sandbox, id: u64) -> Option<View> {
        let all = sandbox.cloud().load_balancers(sandbox.project());
        let balancer = all.into_iter().find(|balancer| balancer["id"] == id)?;
        let nodes = sandbox.cluster().list("nodes", None);
        let existing = ids(&sandbox.cloud().servers(sandbox.project()));
        let there = targets(&balancer);
        let eligible = eligible_servers(&nodes, &existing);
        // A node that the autoscaler is about to delete does not become a target.
        let is_wanted = |node: &Value, id: u64| {
            eligible.contains(&id) && (there.contains(&id) || !has_taint(node))
        };
        let wanted = nodes.iter().filter_map(|node| {
            let id = server_of(node).filter(|id| is_wanted(node, *id))?;
            Some((id, node["metadata"]["name"].as_str()?.to_owned()))
        });
        let departing = nodes.iter().filter(|node| departs(node)).filter_map(server_of);
        let (wanted, departing) = (wanted.collect(), departing.collect());
        let mut local = users(sandbox, &balancer);
        local.retain(|service| service["spec"]["externalTrafficPolicy"] == "Local");
        let key = format!("{PREFIX}{PREFER}");
        if !local.iter().any(|service| service["metadata"]["annotations"][&key] == "true") {
            local.clear();
        }
        let local = local.iter().filter_map(|service| service["metadata"]["name"].as_str());
        Some(View {
            local: local.map(str::to_owned).collect(),
            delay: delay(sandbox, &balancer),
            wanted,
            there,
            departing,
            balancer,
        })
    }

    /// Whether the node of this server will stop soon, and a Service asks to leave such nodes out.
    fn is_departing(&self, server: u64) -> bool {
        self.delay.is_some() && self.departing.contains(&server)
    }

    /// Whether the node has such a pod of a Service on the load balancer.
    fn has(&self, pods: &BTreeSet<(String, String)>, node: &str) -> bool {
        self.local.iter().any(|service| pods.contains(&(service.clone(), node.to_owned())))
    }

    /// Returns the nodes that are no targets, do not depart, and have a ready pod of these Services.
    fn ready_outside<'a>(
        &'a self,
        pods: &'a PodList,
        services: &'a [String],
    ) -> impl Iterator<Item = &'a String> {
        let outside = self
            .wanted
            .iter()
            .filter(|(id, _)| !self.there.contains(id) && !self.is_departing(**id));
        let has = |node: &String| {
            services.iter().any(|service| pods.ready.contains(&(service.clone(), node.clone())))
        };
        outside.map(|(_, node)| node).filter(move |node| has(node))
    }

    /// Returns why too few healthy targets would stay without this target, or `None`.
    fn unsafe_removal(&self, server: u64) -> Option<String> {
        for port in list(&self.balancer["services"]) {
            let port = &port["listen_port"];
            let healthy =
                list(&self.balancer["targets"]).iter().filter(|target| is_healthy(target, port));
            let healthy: BTreeSet<u64> =
                healthy.filter_map(|target| target["server"]["id"].as_u64()).collect();
            let leaving =
                healthy.iter().filter(|id| **id == server || self.is_departing(**id)).count();
            let staying = healthy.len() - leaving;
            if healthy.contains(&server) && (staying == 0 || staying < leaving) {
                return Some(format!(
                    "server {server}, port {port}: {staying} healthy targets stay, {leaving} leave"
                ));
            }
        }
        None
    }
}

impl Topic for Pods {
    fn set_up(&self, sandbox: &Sandbox) {
        let rule = json!({ "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"] });
        sandbox.cluster().grant("ccm", vec![PolicyRule::deserialize(rule).unwrap()]);
        sandbox.cloud().set_target_limit(TYPE, self.room);
        join(sandbox, PERMANENT_NODE);
        (0..self.nodes).for_each(|n| join(sandbox, &format!("p-{n}")));
        for (n, (name, group)) in self.services.iter().enumerate() {
            let mut annotations = BTreeMap::from([
                (format!("{PREFIX}{PREFER}"), "true"),
                (format!("{PREFIX}type"), TYPE),
            ]);
            if let Some(group) = group {
                annotations.insert(format!("{PREFIX}share"), group);
            }
            let port = 80 + n as u64;
            sandbox.cluster().create(
                "services",
                NAMESPACE,
                json!({
                    "metadata": { "name": name, "namespace": "default", "annotations": annotations },
                    "spec": {
                        "type": "LoadBalancer", "externalTrafficPolicy": "Local",
                        "ports": [{ "name": "web", "port": port }],
                    },
                }),
            );
        }
    }

    fn starts_converged(&self) -> bool {
        true
    }

    fn may_have_wrong_token(&self) -> bool {
        false
    }

    fn more_rounds(&self, random: &mut Random) -> u64 {
        *random.pick(&[0, 0, 20, 40])
    }

    fn may_die_late(&self) -> bool {
        true
    }

    fn process_starts(&self, process: &str) {
        self.process_works(process);
    }

    fn process_works(&self, process: &str) {
        process.clone_into(&mut self.history().running);
    }

    fn phase_starts(&self, sandbox: &Sandbox) {
        let history = Arc::clone(&self.history);
        let note = Effect::changed(move |response| history.lock().unwrap().answer(response));
        let rule = Rule::new(note).half(Half::Kubernetes).method("GET").path(SLICES);
        sandbox.faults().add(rule);
    }

    fn inject_faults(&self, _: &Sandbox, random: &mut Random) {
        let mut history = self.history();
        history.failures = *random.pick(&[0, 0, 10, 50]);
        history.failure = *random.pick(&Failure::ALL);
        history.random = Random::new(random.next());
    }

    fn before_read(&self, _: &Sandbox, request: &Request) {
        if request.path == SLICES {
            let selector = request.query("labelSelector").unwrap_or_default();
            let names =
                selector.split_once('(').map_or("", |(_, names)| names.trim_end_matches(')'));
            let mut history = self.history();
            history.asked = names.split(',').map(str::to_owned).collect();
            history.is_second = request.query("continue").is_some();
        }
    }

    fn apply_event(&self, sandbox: &Sandbox, random: &mut Random, _: bool) -> String {
        let cluster = sandbox.cluster();
        let name = format!("p-{}", random.below(self.nodes));
        let service = random.pick(&self.services).0;
        match random.below(24) {
            _ if cluster.get("nodes", None, &name).is_none() => {
                join(sandbox, &name);
                format!("{name} joins")
            }
            0..10 => self.move_pods(sandbox, random, service),
            10..12 => {
                cluster.set_cordoned(&name, true);
                format!("{name} is cordoned")
            }
            12 => {
                cluster.set_cordoned(&name, false);
                format!("{name} is uncordoned")
            }
            13..15 => {
                let kind = random.pick(&CONDITIONS);
                cluster.set_condition(&name, kind, "True");
                format!("{name} has {kind}")
            }
            15 => {
                CONDITIONS.iter().for_each(|kind| cluster.set_condition(&name, kind, "False"));
                format!("{name} does not depart")
            }
            16 => {
                cluster.set_taint(&name, AUTOSCALER, "1", "NoSchedule");
                cluster.set_cordoned(&name, true);
                format!("the autoscaler will delete {name}")
            }
            17 => {
                cluster.remove_taint(&name, AUTOSCALER);
                format!("the autoscaler keeps {name}")
            }
            18 => {
                delete_node_and_server(sandbox, &name);
                format!("{name} is deleted with its server")
            }
            19 => {
                let delay = *random.pick(&["0s", "60s", "", ""]);
                set_delay(sandbox, service, |_| delay.to_owned());
                format!("{service} has the delay {delay:?}")
            }
            20 => {
                let value = *random.pick(&["true", "true", "false"]);
                cluster.edit("services", NAMESPACE, service, |service| {
                    service["metadata"]["annotations"][format!("{PREFIX}{PREFER}")] = json!(value);
                });
                format!("{service} has {PREFER}={value}")
            }
            21 => set_health(sandbox, random, &name),
            22 => {
                let health = Health::unhealthy("layer4_timeout");
                for balancer in sandbox.cloud().load_balancers(sandbox.project()) {
                    for server in targets(&balancer) {
                        let id = balancer["id"].as_u64().unwrap_or_default();
                        let health = random.percent(60).then(|| health.clone());
                        sandbox.cloud().set_health(id, Machine::Server(server), None, health);
                    }
                }
                "some targets are unhealthy".into()
            }
            _ => {
                let every: Vec<String> = self
                    .services
                    .iter()
                    .map(|(name, _)| self.move_pods(sandbox, random, name))
                    .collect();
                every.join("; ")
            }
        }
    }

    /// No delay lasts, and the API server lists EndpointSlices again, so that everything converges.
    fn repair(&self, sandbox: &Sandbox) {
        self.history().failures = 0;
        for (name, _) in &self.services {
            set_delay(sandbox, name, |delay| if delay.is_empty() { "" } else { "0s" }.to_owned());
        }
        end_bad_health(sandbox);
    }

    /// A process exchanges targets only after a minute, so it works until all exchanges are made.
    fn extra_check(
        &self,
        sandbox: &Sandbox,
        round: &mut dyn FnMut() -> Vec<Report>,
    ) -> Result<(), String> {
        let mut outcome = Ok(());
        for _ in 0..ROUNDS_UNTIL_REST {
            round();
            outcome = self.check_rest(sandbox);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn check_write(&self, sandbox: &Sandbox, half: Half, request: &Request) -> Verdict {
        if half == Half::Kubernetes && request.path.contains("/services/") {
            return Verdict::Allowed;
        }
        if half != Half::Hetzner || !request.path.starts_with("/v1/load_balancers") {
            return nodes::check_write(sandbox, half, request, &Vec::new());
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let id = request.path.split('/').nth(3).and_then(|id| id.parse().ok()).unwrap_or_default();
        let server = body["server"]["id"].as_u64();
        let violation = match (request.path.rsplit('/').next(), server) {
            (Some("remove_target"), Some(server)) => self.violation_by_removal(sandbox, id, server),
            _ => None,
        };
        Verdict::from_violation(violation)
    }

    fn check_end_state(&self, sandbox: &Sandbox) -> Result<(), String> {
        if sandbox::time::is_simulated() {
            self.check_rest(sandbox)?;
        }
        nodes::check_nodes(sandbox)
    }

    fn counts(&self, _: &Sandbox) -> BTreeMap<&'static str, u64> {
        let history = self.history();
        [
            ("targets exchanged for nodes with pods", history.exchanges),
            ("exchanged at once", history.urgent),
        ]
        .into()
    }
}
