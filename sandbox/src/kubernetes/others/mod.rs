//! Answers to requests that only clients other than ccm send: kubectl, client libraries, Helm.
//!
//! | file | who needs it |
//! |---|---|
//! | `discovery` | kubectl and client libraries, before they ask for anything else: groups and resources |
//! | `openapi` | kubectl, for `apply`, `explain` and the validation of manifests |
//! | `table`, `age` | `kubectl get` and `kubectl get -o wide` |
//! | `protobuf` | the few commands of kubectl that send no JSON |
//! | `json_patch` | `kubectl patch --type=json` |
//!
//! ccm sends and reads JSON, knows the names of its resources, and patches by merge patches.

mod age;
pub mod discovery;
pub mod json_patch;
pub mod openapi;
pub mod protobuf;
pub mod table;
