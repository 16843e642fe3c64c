//! `ccm route list | sync`: what the route controller sees and would do, for people.

mod json;
mod list;
mod sync;

pub(super) use list::list;
pub(super) use sync::sync;

use super::output::{self, Printer};
use super::startup;
use super::{Exit, usage, wire};
use crate::cache::Apis;
use crate::controllers::route::{Plan, RouteController};
use crate::provider::Severity;
use crate::settings::{Command, Settings};
use std::ffi::OsString;
use std::time::Duration;

/// Everything a command needs.
struct Context {
    settings: Settings,
    apis: Apis,
    routes: RouteController,
}

fn ask(command: Command, words: Vec<OsString>) -> Result<Context, Exit> {
    let mut started = startup::start(command, words)?;
    if !started.words.is_empty() {
        let name = command.name();
        return Err(usage(&format!(
            "{name} takes no name: it is about all routes"
        )));
    }
    let routes = wire::route_settings(&started.settings)
        .map_err(|off| Printer::failure(&format!("there are no routes: {}", off.why)))?;
    let apis = started.apis(Vec::new())?;
    Ok(Context {
        apis,
        routes: RouteController::new(routes),
        settings: started.settings,
    })
}

impl Context {
    fn evaluate(&self) -> Result<Plan, Exit> {
        let evaluated = self.routes.evaluate(&self.apis, Duration::ZERO);
        evaluated.map_err(|error| startup::failed(&self.apis, &error))
    }
}

/// Warnings: they do not block the sync.
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
