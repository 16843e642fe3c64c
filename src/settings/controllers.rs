//! Which controllers run: `--controllers` as Kubernetes' own controller managers read it.

use super::nearest::nearest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    Node,
    NodeLifecycle,
    Service,
    Route,
}

/// The answer of `--controllers` for each of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controllers {
    enabled: Vec<Controller>,
}

impl Controller {
    pub const ALL: &'static [Controller] = &[
        Controller::Node,
        Controller::NodeLifecycle,
        Controller::Service,
        Controller::Route,
    ];

    pub fn canonical_name(self) -> &'static str {
        match self {
            Controller::Node => "cloud-node-controller",
            Controller::NodeLifecycle => "cloud-node-lifecycle-controller",
            Controller::Service => "service-lb-controller",
            Controller::Route => "node-route-controller",
        }
    }

    pub fn alias(self) -> &'static str {
        match self {
            Controller::Node => "cloud-node",
            Controller::NodeLifecycle => "cloud-node-lifecycle",
            Controller::Service => "service",
            Controller::Route => "route",
        }
    }

    fn is_called(self, name: &str) -> bool {
        name == self.canonical_name() || name == self.alias()
    }
}

impl Controllers {
    pub fn contains(&self, controller: Controller) -> bool {
        self.enabled.contains(&controller)
    }

    pub(super) fn parse(text: &str) -> Result<Controllers, String> {
        let words: Vec<&str> = text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect();
        if words.is_empty() {
            return Err("name at least one controller, or * for all".to_owned());
        }
        let mut unknown = words.iter().filter(|word| !is_known(word)).peekable();
        if unknown.peek().is_some() {
            return Err(unknown
                .map(|word| no_such(word))
                .collect::<Vec<_>>()
                .join("; "));
        }
        let enabled = |controller: &Controller| is_enabled(*controller, &words);
        Ok(Controllers {
            enabled: Controller::ALL.iter().copied().filter(enabled).collect(),
        })
    }
}

/// The first word that names it decides; `*` counts only when none does.
fn is_enabled(controller: Controller, words: &[&str]) -> bool {
    for word in words {
        match word.strip_prefix('-') {
            Some(name) if controller.is_called(name) => return false,
            None if controller.is_called(word) => return true,
            _ => {}
        }
    }
    words.contains(&"*")
}

fn is_known(word: &str) -> bool {
    let name = word.strip_prefix('-').unwrap_or(word);
    word == "*"
        || Controller::ALL
            .iter()
            .any(|controller| controller.is_called(name))
}

fn no_such(word: &str) -> String {
    let name = word.strip_prefix('-').unwrap_or(word);
    let names = Controller::ALL
        .iter()
        .flat_map(|c| [c.alias(), c.canonical_name()]);
    match nearest(name, names) {
        Some(meant) => format!("no controller is called {name:?}; did you mean {meant}?"),
        None => {
            let aliases: Vec<&str> = Controller::ALL.iter().map(|c| c.alias()).collect();
            format!(
                "no controller is called {name:?}; they are {}",
                aliases.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Controller::{Node, NodeLifecycle, Route, Service};

    #[test]
    fn the_first_word_that_names_a_controller_decides() {
        for (text, enabled) in [
            ("*", &[Node, NodeLifecycle, Service, Route] as &[Controller]),
            ("cloud-node", &[Node]),
            ("cloud-node-controller,route", &[Node, Route]),
            ("*,-service", &[Node, NodeLifecycle, Route]),
            ("-service-lb-controller, *", &[Node, NodeLifecycle, Route]),
            ("-route", &[]),
            ("-service,service,*", &[Node, NodeLifecycle, Route]),
            ("service,-service", &[Service]),
        ] {
            assert_eq!(
                Controllers::parse(text).map(|c| c.enabled),
                Ok(enabled.to_vec()),
                "{text}"
            );
        }
    }

    #[test]
    fn an_unknown_name_names_the_nearest() {
        for (text, message) in [
            (
                "cloud-nod",
                "no controller is called \"cloud-nod\"; did you mean cloud-node?",
            ),
            (
                "*,-rotue",
                "no controller is called \"rotue\"; did you mean route?",
            ),
            (
                "gardener",
                "no controller is called \"gardener\"; they are cloud-node, \
                 cloud-node-lifecycle, service, route",
            ),
            ("", "name at least one controller, or * for all"),
        ] {
            assert_eq!(Controllers::parse(text), Err(message.to_owned()), "{text}");
        }
    }
}
