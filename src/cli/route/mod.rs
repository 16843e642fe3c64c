//! `ccm route list | sync`: what the route controller sees and would do, for people.

mod json;
mod list;
mod sync;

pub(super) use list::list;
pub(super) use sync::sync;

use super::logging::Reader;
use super::output::{self, Printer};
use super::told::{self, Read};
use super::{Exit, help, usage, wire};
use crate::cache::{self, Apis};
use crate::controllers::route::{Plan, RouteController};
use crate::provider::Severity;
use crate::settings::{Command, Settings};
use std::ffi::OsString;
use std::io::IsTerminal;

/// Everything a command needs.
struct Asked {
    settings: Settings,
    apis: Apis,
    routes: RouteController,
}

fn ask(command: Command, words: Vec<OsString>) -> Result<Asked, Exit> {
    let reader = match command {
        Command::RouteSync if std::io::stderr().is_terminal() => Reader::Waiting,
        _ => Reader::Person,
    };
    let ready = match told::read(command, words, reader, || help::command(command)) {
        Read::GoOn(ready) => ready,
        Read::End(exit) => return Err(exit),
    };
    if !ready.words.is_empty() {
        let name = command.name();
        return Err(usage(&format!(
            "{name} takes no name: it is about all routes"
        )));
    }
    let routes = wire::route_settings(&ready.settings)
        .map_err(|off| Printer::failure(&format!("there are no routes: {}", off.why)))?;
    let apis = wire::world_of(ready.kube, &ready.settings, Vec::new())
        .map_err(|why| Printer::failure(&why))?;
    Ok(Asked {
        apis,
        routes: RouteController::new(routes),
        settings: ready.settings,
    })
}

impl Asked {
    fn evaluate(&self) -> Result<Plan, Exit> {
        let evaluated = self.routes.evaluate(&self.apis);
        evaluated
            .map_err(|error| self.failed(&error))
            .map(|(_, plan)| plan)
    }

    /// Who runs a command may have several kubeconfigs, and be surprised which one it was.
    fn failed(&self, error: &cache::Error) -> Exit {
        match error {
            cache::Error::Kube(_) => {
                Printer::failure(&format!("{error} ({})", self.apis.kube.origin()))
            }
            cache::Error::Cloud(_) => Printer::failure(&error.to_string()),
        }
    }
}

/// Findings that stand in nobody's way, and should be known all the same.
fn warnings(plan: &Plan) -> impl Iterator<Item = String> {
    let of_nodes = plan.nodes.iter().flat_map(|node| {
        let findings = node.findings.iter();
        findings.map(|finding| (node.name(), finding))
    });
    let network = plan.network.as_ref();
    let name = network.map_or_else(String::new, |network| network.for_people());
    let of_network = plan
        .findings
        .iter()
        .map(move |finding| (name.clone(), finding));
    let all = of_nodes.chain(of_network);
    let warnings = all.filter(|(_, finding)| finding.severity == Severity::Warning);
    warnings.map(|(object, finding)| {
        output::line(format_args!("{object}  warning: {}", finding.message))
    })
}
