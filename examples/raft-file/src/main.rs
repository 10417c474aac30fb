//! Three nodes replicate one file. They are killed with SIGKILL, cut off and started again, while
//! clients write to it and read it. At the end each client must have been told the truth, and the
//! three files must be equal, byte for byte.
//!
//! ```text
//! cargo run -p raft-file -- [--kills N] [--seed N] [--folder PATH] [--no-partition]
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `node.rs` | a node: log, replicated file, openraft, server |
//! | `network.rs` | what nodes send each other, with snapshots as changes |
//! | `wire.rs` | the frames |
//! | `cluster.rs` | the processes, and the network between them |
//! | `clients.rs` | the clients, and the history of what they were told |
//!
//! As root the nodes get network namespaces and a bridge, which the end of this process removes. If
//! it is killed, they stay: `ip netns list` has those named `atomic-mmap-raft-...`. Its nodes end.
//!
//! The checker of histories is the lab's: it looks for one order of all operations that explains
//! each answer. An exchange runs a function of the replicated file, which counts its calls. The
//! count shows a command that was applied twice.

mod clients;
mod cluster;
mod network;
mod node;
mod wire;

use atomic_mmap::AtomicMappedFile;
use clients::{Client, EXCHANGE, Round, len_for};
use cluster::{Cluster, NODES};
use lab::histories::check;
use lab::histories::history::Operation;
use openraft_atomic_mmap::file::Command;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use wire::{Request, Response};

/// Number of client threads.
const CLIENTS: usize = 3;
/// Operations of each client in a round.
const OPERATIONS: usize = 12;
/// One round out of this number cuts a node off in place of a kill.
const BETWEEN_PARTITIONS: u64 = 8;
/// Time for the nodes to become equal at the end.
const CATCH_UP: Duration = Duration::from_secs(60);

struct Arguments {
    kills: u64,
    seed: u64,
    folder: Option<PathBuf>,
    has_partition: bool,
}

fn arguments(words: &[String]) -> Result<Arguments, Box<dyn Error>> {
    let mut found = Arguments { kills: 20, seed: 1, folder: None, has_partition: true };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--kills" => found.kills = value()?.parse()?,
            "--seed" => found.seed = value()?.parse()?,
            "--folder" => found.folder = Some(value()?.into()),
            "--no-partition" => found.has_partition = false,
            _ => return Err(format!("{word}: see the first lines of main.rs").into()),
        }
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [what, id, folder, address] = &words[..]
        && what == "node"
    {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build()?;
        return runtime.block_on(node::run(id.parse()?, Path::new(folder), address));
    }
    let arguments = arguments(&words)?;
    let scratch = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let report = run(&arguments, scratch.path());
    if report.is_err() {
        println!("the files stay in {}", scratch.keep().display());
    }
    println!("{}", report?);
    Ok(())
}

fn run(arguments: &Arguments, folder: &Path) -> Result<String, Box<dyn Error>> {
    let mut cluster = Cluster::start(folder, arguments.has_partition)?;
    if !cluster.can_cut_off() {
        println!("no node is cut off: there are no network namespaces here, or none are wanted");
    }
    let (addresses, begun) = (cluster.addresses().clone(), Instant::now());
    let mut client = Client::new(&addresses);
    begin(&mut client, &cluster)?;
    let rounds = arguments.kills;
    client.insist(&Request::Run(Command::SetLen(len_for(rounds))))?;
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    let (mut histories, mut partitions) = (Vec::new(), 0);
    for number in 0..rounds {
        let round = Round::new(number);
        let is_partition = cluster.can_cut_off() && number % BETWEEN_PARTITIONS == 5;
        partitions += u64::from(is_partition);
        run_round(&round, &mut cluster, (&addresses, is_partition), &mut random)?;
        round.read_all(CLIENTS, &mut client)?;
        histories.push(round);
        none_has_ended(&mut cluster)?;
    }
    let mut all = Vec::new();
    for (number, round) in histories.into_iter().enumerate() {
        // Writes that were acknowledged long ago are there still.
        round.read_all(CLIENTS, &mut client)?;
        let history = round.history();
        check::check(&history).map_err(|why| format!("round {number}: {why}"))?;
        all.extend(history.operations);
    }
    let (operations, told) = (all.len(), all.iter().filter(|it| it.ret.is_some()));
    let acknowledged = told.filter(|it| !it.writes.is_empty()).count();
    check_exchanges(&all, clients::count_exchanges(&mut client)?)?;
    become_equal(&mut client, &mut cluster)?;
    Ok(format!(
        "raft-file: {} kills, {partitions} partitions, {operations} operations, {acknowledged} \
         acknowledged writes: 0 lost, every answer explained, {NODES} equal files; snapshots: {} as \
         changes, {} as a whole ({} s)",
        rounds - partitions,
        cluster.logged(network::CHANGES)?,
        cluster.logged(network::WHOLE)?,
        begun.elapsed().as_secs()
    ))
}

/// Fails if an acknowledged exchange was not applied, or one was applied twice.
fn check_exchanges(all: &[Operation], count: u64) -> Result<(), Box<dyn Error>> {
    let asked = all.iter().filter(|it| it.what == EXCHANGE);
    let acknowledged = asked.clone().filter(|it| it.ret.is_some()).count();
    let asked = asked.count();
    match (acknowledged as u64..=asked as u64).contains(&count) {
        true => Ok(()),
        false => Err(format!("{count} exchanges, of {acknowledged} to {asked}").into()),
    }
}

/// Makes a cluster of the nodes, once the first one listens.
fn begin(client: &mut Client<'_>, cluster: &Cluster) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    loop {
        match client.ask_node(1, &Request::Begin(cluster.nodes())) {
            Ok(Response::Done) => return Ok(()),
            Ok(Response::Failed(why)) => return Err(why.into()),
            _ if begun.elapsed() > CATCH_UP => return Err("node 1 does not answer".into()),
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Clients work, and a node is killed or cut off meanwhile. It is back before the round ends.
fn run_round(
    round: &Round,
    cluster: &mut Cluster,
    (addresses, is_partition): (&std::collections::BTreeMap<u64, String>, bool),
    random: &mut fastrand::Rng,
) -> Result<(), Box<dyn Error>> {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|thread| {
                let mut random = random.fork();
                scope.spawn(move || {
                    let mut client = Client::new(addresses);
                    (0..OPERATIONS)
                        .try_for_each(|_| round.operate(thread, &mut client, &mut random))
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(random.u64(1..60)));
        let victim = random.u64(1..=NODES);
        if is_partition {
            cluster.cut_off(victim, true)?;
            thread::sleep(Duration::from_millis(random.u64(300..1500)));
            cluster.cut_off(victim, false)?;
        } else {
            cluster.kill(victim)?;
            thread::sleep(Duration::from_millis(random.u64(0..300)));
            cluster.start_node(victim)?;
        }
        for worker in workers {
            worker.join().map_err(|_| "a client panicked")??;
        }
        Ok(())
    })
}

fn none_has_ended(cluster: &mut Cluster) -> Result<(), Box<dyn Error>> {
    match &cluster.ended()?[..] {
        [] => Ok(()),
        ended => Err(format!("nodes {ended:?} have ended by themselves").into()),
    }
}

/// Waits until all nodes have applied as much, kills them, and compares their files.
fn become_equal(client: &mut Client<'_>, cluster: &mut Cluster) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    loop {
        let applied = (1..=NODES).map(|id| match client.ask_node(id, &Request::Applied) {
            Ok(Response::Applied(index)) => Some(index),
            _ => None,
        });
        let applied: Vec<_> = applied.collect();
        if applied.iter().all(|index| index.is_some() && *index == applied[0]) {
            break;
        }
        if begun.elapsed() > CATCH_UP {
            return Err(format!("the nodes have applied {applied:?} entries").into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    let mut files = Vec::new();
    for id in 1..=NODES {
        cluster.kill(id)?;
        let file = AtomicMappedFile::open(cluster.folder_of(id).join("state.dat"))?;
        files.push(file.read_vec()?);
    }
    match files.windows(2).all(|two| two[0] == two[1]) {
        true => Ok(()),
        false => Err("the files of the nodes differ".into()),
    }
}
