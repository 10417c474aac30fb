//! Three nodes as processes: started, killed, started again, and cut off from each other.
//!
//! Where this process may make network namespaces, each node lives in one of its own, on a bridge.
//! Then a node is cut off by taking its link down. Elsewhere all nodes live on the loopback
//! interface, and none is cut off.

use crate::wire::Node;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const NODES: u64 = 3;

pub struct Cluster {
    folder: PathBuf,
    addresses: BTreeMap<u64, String>,
    children: BTreeMap<u64, Child>,
    spaces: Option<Spaces>,
}

impl Cluster {
    /// Makes the folders of the nodes, and starts all of them.
    pub fn start(folder: &Path, wants_spaces: bool) -> io::Result<Cluster> {
        let spaces = if wants_spaces { Spaces::new().ok() } else { None };
        let mut addresses = BTreeMap::new();
        // All ports are taken at once, so that they differ.
        let mut taken = Vec::new();
        for id in 1..=NODES {
            let address = match &spaces {
                Some(spaces) => spaces.address(id),
                None => {
                    let listener = TcpListener::bind("127.0.0.1:0")?;
                    let address = listener.local_addr()?.to_string();
                    taken.push(listener);
                    address
                }
            };
            addresses.insert(id, address);
            std::fs::create_dir(folder.join(id.to_string()))?;
        }
        drop(taken);
        let folder = folder.to_owned();
        let mut cluster = Cluster { folder, addresses, children: BTreeMap::new(), spaces };
        for id in 1..=NODES {
            cluster.start_node(id)?;
        }
        Ok(cluster)
    }

    pub fn nodes(&self) -> BTreeMap<u64, Node> {
        self.addresses.iter().map(|(id, address)| (*id, Node::new(address))).collect()
    }

    pub fn addresses(&self) -> &BTreeMap<u64, String> {
        &self.addresses
    }

    pub fn folder_of(&self, id: u64) -> PathBuf {
        self.folder.join(id.to_string())
    }

    fn log_of(&self, id: u64) -> PathBuf {
        self.folder.join(format!("{id}.log"))
    }

    /// Returns the number of lines in the logs of all nodes that begin with these words.
    pub fn logged(&self, words: &str) -> io::Result<usize> {
        let mut count = 0;
        for id in 1..=NODES {
            let log = std::fs::read_to_string(self.log_of(id))?;
            count += log.lines().filter(|line| line.starts_with(words)).count();
        }
        Ok(count)
    }

    pub fn start_node(&mut self, id: u64) -> io::Result<()> {
        let program = std::env::current_exe()?;
        let mut command = match &self.spaces {
            Some(spaces) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &spaces.name(id)]).arg(program);
                command
            }
            None => Command::new(program),
        };
        let id_text = id.to_string();
        command.args(["node", &id_text]).arg(self.folder_of(id)).arg(&self.addresses[&id]);
        let log = std::fs::File::options().create(true).append(true).open(self.log_of(id))?;
        // The node ends with this process: then its standard input ends.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        self.children.insert(id, command.spawn()?);
        Ok(())
    }

    /// Kills a node with SIGKILL, in whatever it is doing. Fails if it has ended by itself.
    pub fn kill(&mut self, id: u64) -> io::Result<()> {
        if let Some(mut child) = self.children.remove(&id) {
            if let Some(status) = child.try_wait()? {
                let log = std::fs::read_to_string(self.log_of(id))?;
                return Err(io::Error::other(format!("node {id} has ended, {status}: {log}")));
            }
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Returns the nodes that have ended by themselves.
    pub fn ended(&mut self) -> io::Result<Vec<u64>> {
        let mut ended = Vec::new();
        for (id, child) in &mut self.children {
            if child.try_wait()?.is_some() {
                ended.push(*id);
            }
        }
        Ok(ended)
    }

    pub fn can_cut_off(&self) -> bool {
        self.spaces.is_some()
    }

    /// Cuts a node off from all others, or connects it again.
    pub fn cut_off(&self, id: u64, is_off: bool) -> io::Result<()> {
        let Some(spaces) = &self.spaces else { return Ok(()) };
        ip(&["link", "set", &spaces.link(id), if is_off { "down" } else { "up" }])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for id in 1..=NODES {
            self.kill(id).ok();
        }
    }
}

/// A network namespace for each node, and a bridge between them.
struct Spaces {
    number: u32,
}

impl Spaces {
    fn new() -> io::Result<Spaces> {
        let spaces = Spaces { number: std::process::id() % 60_000 };
        let bridge = spaces.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}/24", spaces.host(254)), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for id in 1..=NODES {
            let (name, link) = (spaces.name(id), spaces.link(id));
            ip(&["netns", "add", &name])?;
            ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
            ip(&["link", "set", &link, "master", &bridge, "up"])?;
            let address = format!("{}/24", spaces.host(id));
            ip(&["-n", &name, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
        }
        Ok(spaces)
    }

    fn bridge(&self) -> String {
        format!("ato{}", self.number)
    }

    fn link(&self, id: u64) -> String {
        format!("ato{}-{id}", self.number)
    }

    fn name(&self, id: u64) -> String {
        format!("atomic-mmap-raft-{}-{id}", self.number)
    }

    fn host(&self, id: u64) -> String {
        format!("10.{}.{}.{id}", 64 + self.number / 256 % 128, self.number % 256)
    }

    fn address(&self, id: u64) -> String {
        format!("{}:7000", self.host(id))
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for id in 1..=NODES {
            ip(&["netns", "delete", &self.name(id)]).ok();
        }
        ip(&["link", "delete", &self.bridge()]).ok();
    }
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let done = Command::new("ip").args(arguments).stdin(Stdio::null()).output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned())),
    }
}
