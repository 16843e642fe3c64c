//! The command line of the program `sandbox`.

use std::net::IpAddr;
use std::path::PathBuf;

use lexopt::{Arg, Error, Parser, ValueExt};
use sandbox::scenario::{EFFECTS, Scenario};
use sandbox::{Builder, Half, Sandbox};

/// The parsed command line of the program `sandbox`. When a value is both on the command line and in the scenario file
/// (a YAML file that describes a sandbox), the value on the command line is used. When a value is in neither of them,
/// its default is used.
#[derive(Debug, Default)]
pub struct Flags {
    /// The values of those flags that a scenario file (a YAML file that describes a sandbox) can also set, e.g. the
    /// number of nodes.
    pub typed: Scenario,
    pub only: Option<Half>,
    pub address: Option<IpAddr>,
    pub port_hetzner: u16,
    pub port_kubernetes: u16,
    pub port_robot: u16,
    pub scenario: Option<Scenario>,
    pub env_file: Option<PathBuf>,
    pub verbose: bool,
}

pub enum Parsed {
    Run(Box<Flags>),
    Help(String),
}

/// Reads the command line, and the scenario file (a YAML file that describes a sandbox) whose path is the value of the
/// flag `--scenario`.
pub fn parse(mut parser: Parser) -> Result<Parsed, Error> {
    let mut flags = Flags::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help(help())),
            Arg::Short('v') | Arg::Long("verbose") => flags.verbose = true,
            Arg::Long(flag) => {
                let flag = flag.to_owned();
                flags.read(&flag, &mut parser).map_err(|error| match error {
                    Error::ParsingFailed { .. } => format!("--{flag}: {error}").into(),
                    other => other,
                })?;
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(Parsed::Run(Box::new(flags)))
}

fn half(name: &str) -> Result<Half, String> {
    match name {
        "hcloud" | "hetzner" => Ok(Half::Hetzner),
        "kubernetes" => Ok(Half::Kubernetes),
        _ => Err("write hcloud or kubernetes".into()),
    }
}

impl Flags {
    /// Reads the value of `flag` from the command line and stores the value.
    fn read(&mut self, flag: &str, parser: &mut Parser) -> Result<(), Error> {
        match flag {
            "nodes" => self.typed.nodes = Some(parser.value()?.parse()?),
            "robot" => self.typed.robot = Some(parser.value()?.parse()?),
            "services" => self.typed.services = Some(parser.value()?.parse()?),
            "network" => {
                let range = parser.optional_value().map(ValueExt::string);
                self.typed.network = Some(range.unwrap_or(Ok("10.0.0.0/8".into()))?);
            }
            "scale" => self.typed.scale = Some(parser.value()?.parse()?),
            "only" => self.only = Some(parser.value()?.parse_with(half)?),
            "address" => self.address = Some(parser.value()?.parse()?),
            "port-hetzner" => self.port_hetzner = parser.value()?.parse()?,
            "port-kubernetes" => self.port_kubernetes = parser.value()?.parse()?,
            "port-robot" => self.port_robot = parser.value()?.parse()?,
            "env-file" => self.env_file = Some(parser.value()?.into()),
            "scenario" => {
                let scenario = Scenario::load(&PathBuf::from(parser.value()?));
                self.scenario = Some(scenario.map_err(|error| error.to_string())?);
            }
            _ => return Err(Error::UnexpectedOption(format!("--{flag}"))),
        }
        Ok(())
    }

    pub fn builder(&self) -> Builder {
        let mut builder = Sandbox::builder()
            .port_hetzner(self.port_hetzner)
            .port_kubernetes(self.port_kubernetes)
            .port_robot(self.port_robot);
        if let Some(scenario) = &self.scenario {
            builder = scenario.configure(builder);
        }
        builder = self.typed.configure(builder);
        if let Some(half) = self.only {
            builder = builder.only(half);
        }
        if let Some(address) = self.address {
            builder = builder.address(address);
        }
        builder
    }
}

fn help() -> String {
    let effects: String =
        EFFECTS.iter().map(|(name, text)| format!("    {name:<16} {text}\n")).collect();
    format!("{HELP}{effects}")
}

const HELP: &str = "\
A Hetzner Cloud project, dedicated servers and a Kubernetes cluster, simulated on 127.0.0.1.

  sandbox [flags]

Prints the variables that a shell must export to use it, then runs until Ctrl-C or SIGTERM:

  sandbox --nodes 3 --env-file sandbox.env &
  . ./sandbox.env && kubectl get nodes

SIGHUP writes a new token of the project into the env file. The previous token stays valid,
older tokens are refused.

Flags:
  --nodes N             servers worker-1 … with a Node each (1)
  --robot N             dedicated servers metal-1 … with a Node each, and the Robot web service (0)
  --services N          Services web-1 … of type LoadBalancer (0)
  --network[=RANGE]     a Network with the servers in it (none; RANGE is 10.0.0.0/8)
  --scale FACTOR        multiplies every duration: 0.1 is ten times faster (1)
  --only HALF           hcloud (with Robot) or kubernetes; the other half is not served
  --address IP          address on which it listens, of the loopback interface (127.0.0.1)
  --port-hetzner PORT   0 means any free port (0)
  --port-kubernetes PORT
  --port-robot PORT
  --scenario FILE       reads servers, faults and more from a file, see below
  --env-file FILE       also writes the exports to FILE, which appears complete and is removed at the end
  -v, --verbose         prints each call on standard error
  -h, --help

A scenario is a YAML file; each field is optional, and flags win over it:

  nodes: 3
  services: 1
  network: 10.0.0.0/8
  scale: 0.1
  node_bytes: 12000          # pads Nodes to the size of real ones
  heartbeats: true           # kubelets report by themselves
  servers:                   # in addition to those of nodes; shown with their defaults
    - name: extra
      server_type: cx23
      location: fsn1
      ipv4: true
      ipv6: true
      network: true          # in the Network, if there is one
      labels: {}
      node: true             # has a Node
      running: true
  robot: 0
  dedicated_servers:         # in addition to those of robot, whose values are the defaults
    - name: metal-extra
      number: 321
      product: EX44
      dc: HEL1-DC2
      ip: 198.51.100.201     # or null
      ipv6_net: null
      status: in process
      cancelled: true
      operating_status: not supported
      reset_types: []
      no_node: true
      off: true
  faults:
    - effect: answer-lost
      half: hetzner          # or kubernetes, robot; if left out, any half; so with all fields below
      methods: [POST]
      writes: true           # POST, PUT, PATCH and DELETE
      path: /v1/servers/*    # * is one segment, ** at the end is any rest
      nth: 2                 # or `every: 3`, or `probability: 0.1` with `seed: 7`
      times: 1
    - {effect: slow, delay: 500ms}
    - {effect: status, half: kubernetes, status: 503}
  random_faults: {seed: 7, rate: 0.05}

Effects:
";

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(words: &[&str]) -> Result<Flags, String> {
        match parse(Parser::from_args(words)) {
            Ok(Parsed::Run(flags)) => Ok(*flags),
            Ok(Parsed::Help(_)) => Err("help".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn flags_are_read_from_the_words_of_the_command_line() {
        let words =
            "--nodes 3 --services=2 --robot=4 --network --scale 0.1 --only hcloud -v".split(' ');
        let flags = flags(&words.collect::<Vec<_>>()).unwrap();
        let typed = &flags.typed;
        assert_eq!((typed.nodes, typed.services), (Some(3), Some(2)));
        assert_eq!((typed.robot, typed.scale), (Some(4), Some(0.1)));
        assert_eq!(typed.network.as_deref(), Some("10.0.0.0/8"));
        assert_eq!(flags.only, Some(Half::Hetzner));
        assert!(flags.verbose && flags.env_file.is_none());
    }

    #[test]
    fn a_wrong_flag_is_named_in_the_error() {
        let cases = [
            (&["--node", "3"][..], "--node"),
            (&["--nodes", "many"], "--nodes: cannot parse argument \"many\": "),
            (&["--only", "x"], "--only: cannot parse argument \"x\": write hcloud"),
            (&["--nodes"], "--nodes"),
            (&["--only", "robot"], "write hcloud or kubernetes"),
            (&["--port-hetzner", "70000"], "70000"),
            (&["extra"], "extra"),
            (&["--scenario", "/nowhere.yaml"], "/nowhere.yaml"),
            (&["--help"], "help"),
        ];
        for (words, expected) in cases {
            let error = flags(words).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn the_scenario_in_the_help_is_valid() {
        let example =
            HELP.split("win over it:\n\n").nth(1).unwrap().split("\n\nEffects").next().unwrap();
        let scenario: Scenario = serde_yaml::from_str(example).unwrap();
        assert_eq!((scenario.servers.len(), scenario.faults.len()), (1, 3));
        assert_eq!(scenario.dedicated_servers.len(), 1);
        for fault in &scenario.faults {
            fault.rule().unwrap();
        }
    }
}
