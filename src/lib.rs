//! ccm-from-scratch: a cloud-controller-manager for Kubernetes on Hetzner Cloud, and the tool to look inside.
//!
//! # The map
//!
//! | room | its job | must not know |
//! |---|---|---|
//! | [`cli`] | what a person types and reads; wires the provider in | how anything is decided |
//! | [`daemon`] | threads, ticks, the Lease, signals, health | any controller's business |
//! | [`controllers`] | observe → plan → apply, on the contract | which provider is plugged in |
//! | [`world`] | what both APIs say, with its age | what to do about it |
//! | [`cloud`] | the contract: traits and plain types, no I/O | anything else of ours |
//! | [`hetzner`] | the contract for Hetzner Cloud | controllers, Kubernetes |
//! | [`kube`] | the Kubernetes API: configuration, client, the few types we use | clouds |
//! | [`http`] | one blocking JSON client for both APIs | either API's objects |
//! | [`metrics`] | what is counted, for `/metrics` | what it is counted for |
//! | [`settings`] | one table of flags and variables | what they are used for |
//! | [`text`] | how values are written: durations, booleans, label selectors, near misses; and what a line of output may hold | what a value is for |
//!
//! `src/help` has no code: its pages are what `ccm help TOPIC` prints, embedded by [`cli`].
//! Recipes ("add an annotation", "add a setting", …) are in `src/README.md`.
//!
//! Arrows point one way, and a test reads the `use` lines and keeps them:
//! `main → cli → {daemon, controllers, hetzner, kube, settings, text}`,
//! `daemon → controllers → world → {cloud, kube}`, `controllers → text`, `hetzner → {cloud, http, text}`, `kube → {http, text}`, `settings → text`;
//! `daemon` reads and writes the Lease with `kube` itself.
//! Everybody may use `metrics` and `cloud`, which use nobody: the gate that every write passes, the pulse
//! that shows a thread at work and the two clocks are part of the contract, so `http` takes them from there.
//!
//! # The shape of a controller
//!
//! `observe` reads, `plan` decides and is pure, `apply` makes one change with one write. The
//! daemon's tick, `run --once`, `sync`, `--dry-run` and `inspect` are the same three
//! functions. State lives in the two APIs and nowhere else: killed between any two writes
//! and started again, the end is the same.

pub mod cli;
pub mod cloud;
pub mod controllers;
pub mod daemon;
pub mod hetzner;
pub mod http;
pub mod kube;
pub mod metrics;
pub mod settings;
pub mod text;
pub mod world;
