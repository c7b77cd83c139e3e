//! `tidegate-bench xdp`: UDP engines and trackers on a network of their own, a veth pair between two
//! namespaces, under frames that the kernel generates. Real network interfaces hand frames over as this
//! pair does, before there are sockets, so this is where engines before the socket can be compared.
//!
//! One processor is the tracker's, the other the generator's ([`mod@generator`]). Either of them can pay for
//! receiving ([`network::Arrangement`]). Replies are counted by an XDP program at the generator's end
//! ([`mod@maps`]); some go to ordinary sockets, which check them ([`traffic::Witness`]).

mod bench;
mod counter;
mod frames;
mod generator;
mod loads;
mod maps;
mod network;
mod report;
mod sender;
mod traffic;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, value_parser};

use crate::lab::LabArgs;
use crate::lab::{Lab, on};
use crate::session::ResultArgs;

pub(crate) use report::report;

/// The engines, as they are called in records. The others are compared with the first one.
const ENGINES: [&str; 4] = ["mmsg", "shield", "xdp, driver", "xdp, generic"];

/// Compare UDP engines and trackers on a veth pair, with frames from the kernel (needs root).
#[derive(Args)]
pub(crate) struct XdpCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Throughput and CPU time per response: connects, announces, both, bad connection ids.
    Loads(XdpArgs),
}

/// Parameters of the measurement.
#[derive(Args, Clone, Debug)]
struct XdpArgs {
    /// Runs per figure.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Measured milliseconds per run.
    #[arg(long, value_name = "N", default_value_t = 1500, value_parser = value_parser!(u32).range(100..=600_000))]
    milliseconds: u32,
    /// Measure only this engine or tracker; repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Measure only this load; repeatable.
    #[arg(long, value_name = "NAME")]
    load: Vec<String>,
    /// Measure only with this one paying for receiving: V1 = the sender, V2 = the tracker.
    #[arg(long, value_name = "CASE", value_parser = report::CASES)]
    case: Option<String>,
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    output: ResultArgs,
}

impl XdpArgs {
    /// Returns true if a load is to be measured.
    fn wants(&self, name: &str) -> bool {
        self.load.is_empty() || self.load.iter().any(|one| one == name)
    }
}

impl XdpCommand {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let What::Loads(arguments) = &self.what;
        let lab = Lab::new(&arguments.lab)?;
        let [_, generator] = bench::processors(&lab)?;
        // Nothing disturbs the tracker.
        on(&[generator], || loads::run(arguments, lab))?
    }
}
