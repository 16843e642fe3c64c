//! `ccm node relabel` gives initialised nodes the zone label that a new node would get. It shows the plan, and asks the
//! user before it writes.

use super::node::{NodeCommands, NodePlans, together};
use super::objects::{PlannedObjects, about};
use super::output::{CommandFailure, Exit, Printer};
use crate::controllers::node::{self, Relabelling};
use crate::controllers::{Proposal, Report, Selection};
use crate::provider::Description;
use crate::settings::Command;
use serde::Serialize;
use serde_json::{Value, json};
use std::ffi::OsString;

pub(super) fn relabel(words: Vec<OsString>) -> Result<Exit, Exit> {
    let nodes = NodeCommands::start(Command::NodeRelabel, words)?;
    let context = &nodes.context;
    context.check_profile()?;
    context.check_answer("node relabel")?;
    let mut selection = context.or_exit(nodes.selection())?;
    let mut planned = context.or_exit(nodes.relabelling(&selection))?;
    let may_ask = !context.settings.dry_run.value && !context.settings.yes.value;
    if may_ask && planned.relabelling.may_be_written() {
        if !context.is_confirmed(&planned, "Change the zone labels of these nodes?") {
            Printer::notice("nothing was changed");
            return Ok(Exit::Done);
        }
        // The user may have taken a long time to answer the question. In this time, somebody may have created a
        // PersistentVolume that requires the present zone label of a node, and such a volume forbids the change. So
        // everything is read again, and new plans are made for the nodes whose changes the user has confirmed.
        let plans = planned.relabelling.plans.iter().filter(|plan| plan.has_writes());
        selection = Selection::Names(plans.map(|plan| plan.object.name.clone()).collect());
        planned = context.or_exit(nodes.relabelling(&selection))?;
    }
    if context.settings.dry_run.value || !planned.relabelling.may_be_written() {
        return Ok(context.would_do(&planned));
    }
    Ok(context.do_now(|| {
        let (report, plans) = planned.relabelling.apply(&context.apis, node::NAME);
        (report, together(plans, Vec::new()))
    }))
}

impl NodeCommands {
    fn relabelling(&self, selection: &Selection) -> Result<PlannedLabels, CommandFailure> {
        let apis = &self.context.apis;
        let relabelling = Relabelling::of(&apis.kube, self.nodes.evaluate(apis, selection)?);
        Ok(PlannedLabels { plans: together(relabelling.plans.clone(), Vec::new()), relabelling })
    }
}

struct PlannedLabels {
    relabelling: Relabelling,
    /// The same plans as in `relabelling`, converted to the type `NodePlans`, because the functions for the output of
    /// the commands `ccm node …` take this type.
    plans: Vec<NodePlans>,
}

impl PlannedObjects for PlannedLabels {
    const KIND: &'static str = "Node";

    fn items<'a>(&'a self, report: Option<&'a Report>) -> Vec<impl Serialize> {
        let nodes = self.plans.items(report).into_iter().map(|item| json!(item));
        let dependents = self.relabelling.dependents.iter().map(|it| {
            json!({
                "object": { "kind": "Dependent", "name": it.object }, "cloud": null, "differences": [], "changes": [],
                "findings": [{ "severity": "warning", "message": it.why }], "error": it.is_obstacle.then_some(&it.why),
            })
        });
        nodes.chain(dependents).collect::<Vec<Value>>()
    }

    fn proposals(&self) -> Vec<Proposal> {
        let obstacles = self.relabelling.dependents.iter().filter(|it| it.is_obstacle);
        let obstacles = obstacles.map(|it| Proposal {
            object: it.object.clone(),
            changes: Description::default(),
            obstacle: Some(it.why.clone()),
            warning: None,
        });
        self.plans.proposals().into_iter().chain(obstacles).collect()
    }

    fn notes(&self) -> Vec<String> {
        let others = self.relabelling.dependents.iter().filter(|it| !it.is_obstacle);
        let others = others.map(|it| about('!', &it.object, &format!("warning: {}", it.why)));
        self.plans.notes().into_iter().chain(others).collect()
    }

    fn is_unclear(&self) -> bool {
        self.plans.is_unclear()
    }
}
