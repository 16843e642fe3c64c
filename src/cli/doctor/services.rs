//! Services and their load balancers.

use super::nodes;
use super::observe::View;
use super::outcome::{Gap, Outcome, Verdict, about, counted, reported};
use crate::controllers::service::{ServicePlan, Want};
use crate::provider::Orphan;

const LEFT_TO_DO: &str = "the daemon does what is left to do: see lease whether one runs; ccm lb inspect \
                          NAMESPACE/NAME shows it, ccm lb sync does it now";

const SEE_SERVICE: &str = "each message says what to change; ccm lb inspect NAMESPACE/NAME shows the Service \
                           beside its load balancer";

/// What a Service may lack, the worst first, and the fix.
const LACKS: [(&str, &str); 3] = [
    (
        "gone, whatever the status says: the load balancer of",
        "the daemon makes a new one, with another address unless a Primary IP is asked for: see lease \
         whether one runs; ccm lb sync, with the daemon's settings, does it now",
    ),
    ("without an address:", LEFT_TO_DO),
    ("not as wanted:", LEFT_TO_DO),
];

pub(super) fn services(view: &View) -> Verdict {
    let plans = view.services.as_ref()?;
    nodes::need_project(view)?;
    let name = |plan: &ServicePlan| plan.service.full_name();
    let blocked = plans.iter();
    let blocked = blocked.filter_map(|plan| Some((name(plan), plan.cloud.obstacle.as_ref()?)));
    let warnings = plans.iter();
    let warnings = warnings.flat_map(|plan| plan.warnings().map(move |one| (name(plan), one)));
    let mut outcomes = reported(Outcome::fail, blocked, SEE_SERVICE);
    outcomes.extend(lacking(view, plans));
    outcomes.extend(reported(Outcome::warn, warnings, SEE_SERVICE));
    Ok(Outcome::of_all(outcomes).unwrap_or_else(|| {
        Outcome::ok(match plans.len() {
            0 => "there is no Service of type LoadBalancer".to_owned(),
            count => format!("{}, with nothing to be done", counted(count, "Service")),
        })
    }))
}

/// Those that a sync would do something for; what failed first.
fn lacking(view: &View, plans: &[ServicePlan]) -> Vec<Outcome> {
    let tried = |plan: &ServicePlan| {
        let tries = view.failed_tries.as_ref().ok()?;
        tries.get(&plan.service.metadata.uid)
    };
    let mut refused = Vec::new();
    let mut waiting: [Vec<String>; LACKS.len()] = Default::default();
    for plan in plans {
        let Some((lack, why)) = lacks(plan) else {
            continue;
        };
        match tried(plan) {
            Some(tried) => refused.push(format!("{why}, {}: {}", tried.ago(), tried.message)),
            None => waiting[lack].push(why),
        }
    }
    let refused = about(refused, |refused| {
        Outcome::fail(
            format!("refused at the last try: {refused}"),
            "fix what the message names; then the daemon tries again, and ccm lb sync does it at once",
        )
    });
    let mut outcomes: Vec<Outcome> = refused.into_iter().collect();
    for ((what, remedy), names) in LACKS.iter().zip(waiting) {
        outcomes.extend(about(names, |names| {
            Outcome::warn(format!("{what} {names}"), *remedy)
        }));
    }
    if let (false, Err(Gap::NotHere(why))) = (outcomes.is_empty(), &view.failed_tries) {
        outcomes.push(Outcome::warn(why.as_str(), LEFT_TO_DO));
    }
    outcomes
}

/// Which of [`LACKS`], and the Service with what stands between it and that.
fn lacks(plan: &ServicePlan) -> Option<(usize, String)> {
    let name = plan.service.full_name();
    let has_address = !plan.service.status.load_balancer.ingress.is_empty();
    let has_writes = plan.has_writes();
    match (plan.want, &plan.cloud.found) {
        _ if plan.cloud.obstacle.is_some() => None,
        (Want::Ensure, _) if plan.has_lost_its_own() => Some((0, name)),
        (Want::Ensure, found) if !has_address => {
            let why = match found {
                None => "its load balancer is not made yet",
                Some(_) if has_writes => "its load balancer is there, and not all is done",
                Some(_) => "its settings leave every address out",
            };
            Some((1, format!("{name} ({why})")))
        }
        (Want::Remove, _) if has_writes => {
            Some((2, format!("{name} (it was deleted, and not all is done)")))
        }
        (Want::Ensure, _) if has_writes => Some((
            2,
            match plan.writes() {
                1 => format!("{name} (1 change is due)"),
                count => format!("{name} ({count} changes are due)"),
            },
        )),
        _ => None,
    }
}

pub(super) fn orphans(view: &View) -> Verdict {
    let shown = |orphan: &Orphan| {
        let balancer = &orphan.balancer;
        let service = orphan.service.replacen('.', "/", 1);
        let stays = orphan.stays.as_ref().map(|why| format!(": {why}"));
        let stays = stays.unwrap_or_default();
        format!(
            "{} ({}, of Service {service}{stays})",
            balancer.name, balancer.id
        )
    };
    let groups = [
        (
            true,
            "no Service wants these, and they cost money",
            "ccm lb sync --delete-orphans lists them, asks, and deletes them",
        ),
        (
            false,
            "no Service wants these, they cost money, and ccm does not delete them",
            "only you can delete them, when they are not needed; a protected one after hcloud load-balancer \
             disable-protection NAME delete",
        ),
    ];
    let orphans = view.orphans.as_ref()?;
    let groups = groups.into_iter();
    let outcomes = groups.filter_map(|(is_removable, what, remedy)| {
        let such = orphans.iter();
        let such = such.filter(|one| one.removal.is_some() == is_removable);
        let found = |names| Outcome::warn(format!("{what}: {names}"), remedy);
        about(such.map(shown), found)
    });
    let outcome = Outcome::of_all(outcomes.collect());
    let ok = || Outcome::ok("each load balancer of this cluster has its Service");
    Ok(outcome.unwrap_or_else(ok))
}
