//! Ports, which the API calls services: removed, changed, added.

use super::{Difference, UNASKED};
use crate::hetzner::load_balancers::change::Write;
use crate::hetzner::load_balancers::listener::{Listener, PortField};
use crate::hetzner::load_balancers::ports::Port;
use crate::provider::{Field, Source, Sourced};

impl Difference<'_, '_> {
    pub(super) fn services(&mut self, ports: &[Port]) {
        let balancer = self.balancer;
        let is_wanted = |there: &Listener| {
            let mut ports = ports.iter();
            ports.any(|port| port.listener.listen_port == there.listen_port)
        };
        for there in balancer.services.iter().filter(|there| !is_wanted(there)) {
            let listen_port = there.listen_port;
            let source = Source::Rule("the Service has no such port");
            let gone = Sourced::new("absent".to_owned(), source.clone());
            self.field(
                &format!("port {listen_port}"),
                Some("present".into()),
                Some(&gone),
            );
            let line = format!("port {listen_port}: removed");
            self.change(Write::DeleteService { listen_port }, line, vec![source]);
        }
        let mut added = Vec::new();
        for port in ports {
            let number = port.listener.listen_port;
            let there = balancer.services.iter().find(|s| s.listen_port == number);
            if port.is_put_off(there) {
                self.plan.fields.push(port.put_off_field(there));
                continue;
            }
            let merged = port.merged(there);
            let (lines, sources) = self.port_fields(port, &merged, there);
            match there {
                None => added.push(merged),
                Some(_) if lines.is_empty() => {}
                Some(_) => {
                    let line = format!("port {number}: {}", lines.join(", "));
                    self.change(Write::UpdateService(merged), line, sources);
                }
            }
        }
        for listener in added {
            let line = added_line(&listener);
            let source = Source::Rule("a port of the Service");
            self.change(Write::AddService(listener), line, vec![source]);
        }
    }

    /// What differs, for people, and what asks for it.
    fn port_fields(
        &mut self,
        port: &Port,
        merged: &Listener,
        there: Option<&Listener>,
    ) -> (Vec<String>, Vec<Source>) {
        let mut lines = Vec::new();
        let mut sources = Vec::new();
        for (field, source) in fields_of(&mut self.plan.fields, port, merged, there) {
            lines.push(field);
            sources.push(source);
        }
        (lines, sources)
    }
}

/// The fields of a port; of those that differ, a line for people, and the source.
pub(in crate::hetzner::load_balancers) fn fields_of(
    fields: &mut Vec<Field>,
    port: &Port,
    merged: &Listener,
    there: Option<&Listener>,
) -> Vec<(String, Source)> {
    let mut differ = Vec::new();
    for field in PortField::ALL {
        let have = there.and_then(|there| field.of(there));
        let want = field.of(merged);
        if have.is_none() && want.is_none() {
            continue;
        }
        let source = port.sources.get(&field);
        // Found, and not a field of its protocol any more: it goes with that.
        let counts = source.is_some() && want.is_some();
        if counts && have != want {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
            let line = format!("{} {} → {}", field.name(), shown(&have), shown(&want));
            differ.push((line, source.cloned().unwrap_or(Source::Rule(UNASKED))));
        }
        fields.push(Field {
            field: format!("port {} {}", port.listener.listen_port, field.name()),
            have,
            want: if counts { want } else { None },
            source: source.cloned().unwrap_or(Source::Rule(UNASKED)),
        });
    }
    differ
}

fn added_line(listener: &Listener) -> String {
    format!(
        "port {}: added, {} to node port {}",
        listener.listen_port,
        listener.protocol.name(),
        listener.destination_port
    )
}
