//! ccm-from-scratch: a cloud-controller-manager for Kubernetes on Hetzner Cloud, and the tool to inspect it.
//!
//! # The map
//!
//! | module | its job | must not know |
//! |---|---|---|
//! | [`cli`] | commands: what a user types and reads; builds everything from settings | how anything is decided |
//! | [`daemon`] | threads, ticks, the Lease, signals, health | what a controller does |
//! | [`controllers`] | observe → plan → apply; they call a provider only through its contract | which provider is used |
//! | [`cache`] | what both APIs answered, and when | what to do about it |
//! | [`provider`] | the contract: traits and plain types, no I/O | who calls it, and how it is implemented |
//! | [`hetzner`] | implements the contract for Hetzner Cloud | controllers, Kubernetes |
//! | [`kube`] | the Kubernetes API: configuration, client, the few types we use | providers |
//! | [`http`] | one blocking JSON client for both APIs; redacts secrets | the objects of either API |
//! | [`metrics`] | the metrics of `/metrics` | what is counted |
//! | [`settings`] | one table of flags and variables | what they are used for |
//! | [`text`] | how values are written (durations, booleans, label selectors), the nearest known word for a misspelt one, and what a line of output may hold | what a value is for |
//!
//! `src/help` has no Rust: its pages are what `ccm help TOPIC` prints, `src/help/commands` what `--help` prints,
//! `src/help/completions` the scripts for shells; all are embedded by [`cli`].
//! Recipes ("add an annotation", "add a setting", …) are in `src/README.md`.
//!
//! A test reads the `crate::` paths and checks the arrows between modules (`ARROWS` in `tests/plan/architecture.rs`):
//!
//! - `main → cli → {daemon, controllers, cache, hetzner, kube, http, settings, text}`
//! - `daemon → controllers → cache → {provider, kube}`; `daemon` also reads and writes the Lease with `kube`
//! - `controllers → text`
//! - `hetzner`, `kube` and `settings → {provider, http, text}`
//! - `http → {provider, text}`
//! - `provider → text`
//!
//! All modules but `text` and `metrics` may use `provider`, because the gate that every write passes, the heartbeat of
//! a thread, and the clock are parts of the contract. Modules that count something use `metrics`. Code that needs the
//! time, a wait or randomness asks `provider::clock`, and code that reads a variable or prints asks
//! `provider::process`. In most tests a simulation (`tests/common/machine.rs`) answers, and not the real machine.
//!
//! Where to look when it is not obvious:
//!
//! | what | where |
//! |---|---|
//! | what happens after a panic in a thread | `cli/mod.rs` |
//! | width and colour of a terminal, and which lines are redrawn | `cli/terminal.rs` |
//! | how help is wrapped to the terminal's width | `cli/topics.rs` |
//! | how the process notes what it waits for, and how this is shown | `provider/waits.rs`, `cli/logging.rs` |
//! | the words for a change in a plan, and after it is made | `provider/description.rs` |
//! | the name of a setting's variable, as messages print it | `provider/variables.rs` |
//! | how secrets are redacted | `http/secret.rs` |
//! | what may delete a load balancer, and what stops it | `hetzner/load_balancers`: `ownership/judge.rs` has the tables, `leave.rs` and `snapshot.rs` ask for the deletion, `change.rs` (`rebase`) reads again just before the deletion; `controllers/service/orphans.rs` deletes load balancers without a Service |
//! | which value applies when a Service does not set an annotation: the value of its Namespace, or else of a setting | `hetzner/load_balancers/ownership/defaults.rs`; `kube/namespaces.rs` reads the Namespaces |
//! | what happens when the value of a Namespace or a setting is not known, e.g. because the Namespaces can't be read | `hetzner/load_balancers/checks.rs` (`report_unknown`, `keep_unattached`) |
//! | who owns a port, a target or a setting of a load balancer | `hetzner/load_balancers/ownership/group.rs` |
//! | what is wrong with an annotation's value | `hetzner/load_balancers/annotations/values.rs` and `text`; `annotations/parser.rs` adds the name of the annotation |
//! | how a finding becomes a log line, an event and a metric | `controllers/report.rs`; `kube/recorder.rs` decides whether it is reported again |
//! | exit codes | `cli/output.rs`; `cli/objects.rs` chooses one |
//! | which zone label a node gets, and which labels `ccm node relabel` changes | `hetzner/profile.rs`; `controllers/node/zone.rs` and `relabel.rs`; `kube/placement.rs` reads what depends on a label |
//! | which rules a node must fulfil to be taken out of service | `controllers/lifecycle/out_of_service.rs`; `observe.rs` (`read_for_taint`) reads the server once more |
//! | how old the lists of servers and Services may be on which a plan is based | servers: `needs` in `controllers/node/plan.rs`, answered by `cache/servers.rs`; Services: `controllers/service/agenda.rs`; `lifecycle/observe.rs`, `route/sync.rs` |
//! | when a Service is planned, and why | `controllers/service/agenda.rs` |
//! | when a controller compares all its objects, when it tries failed objects again, and how old the data for a plan may be | `controllers/schedule.rs`, `controllers/backoff.rs` |
//! | how a node is written | `controllers/node_writes.rs`, for all controllers |
//! | how many objects changed or failed | `Report` in `controllers/controller.rs`: every count follows from what came of each object |
//! | how a controller gets its interval from the settings | `cli/wire.rs` |
//! | how fast the program's clock runs in a test with real sockets | `provider/clock.rs` |
//! | how a test runs the daemon without a process of its own | `cli/simulated.rs`; `daemon/stop.rs` (`repeat`) for the threads of the daemon |
//! | how several nodes are written at the same time | `controllers/parallel.rs` |
//! | what happens after a conflict (409) | `kube::retry_on_conflict`; a node is planned again in `controllers/node_writes.rs`, a Service in `controllers/service/sync.rs` |
//!
//! # The shape of a controller
//!
//! In a controller, `observe` reads, `plan` decides and is pure, and `apply` (or `sync`, with the executor) writes. The
//! daemon's tick, `run --once`, `sync`, `--dry-run` and `inspect` call the same functions. State is in the two APIs
//! only: a process that is killed between any two writes and started again reaches the same end.
//!
//! # Glossary
//!
//! | term | meaning |
//! |---|---|
//! | *adopted*, *released* | An adopted load balancer existed before and now belongs to a Service. A released one stays in the cloud and belongs to no Service any more. |
//! | *execution* | The ordered changes of one object that are being made. |
//! | *external* | A load balancer that another owner made, and on which Services have ports. |
//! | *finding* | Something that a plan reports about an object. A finding becomes a log line, an event and a metric. |
//! | *gate* | The check before each write: whether the daemon still holds the Lease, whether the process must end, and whether this is a dry run. |
//! | *group* | The Services that share one load balancer. |
//! | *kept* | A load balancer that stays without a Service, because its Service asked for that. |
//! | *left alone* | A Service that is not ours, by its class or labels. Nothing of the Service or of its load balancer is changed. |
//! | *offered node* | A node that may become a target. |
//! | *orphan* | A load balancer of this cluster whose Service does not exist. |
//! | *pass* | The work on all selected objects from one read of both APIs to the last write. A tick makes one pass, and so does a command. |
//! | *profile* | `ccm-from-scratch` or `hcloud`: which program's provider IDs and labels are written. |
//! | *sync* | A pass that carries out its plans. A dry run only shows them. |
//! | *tick* | One run of a controller. Ticks follow each other at the controller's interval. |

pub mod cache;
pub mod cli;
pub mod controllers;
pub mod daemon;
pub mod hetzner;
pub mod http;
pub mod kube;
pub mod metrics;
pub mod provider;
pub mod settings;
pub mod text;
