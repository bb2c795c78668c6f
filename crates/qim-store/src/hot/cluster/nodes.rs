//! The nodes of a cluster, as far as they are known, and which of them are away.
//!
//! A node that a call got no answer from is *away*: further calls to it are told so at once, and go on when it answers again.
//! Only the watch asks it until then. So nobody waits for a node that is away but those that found it out, and calls to the
//! others never do.
//!
//! Invariants: the watch runs while a node is away; each node that is away has slots; the state is never locked across an
//! await.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, stream::FuturesUnordered};
use qim_core::ClientTls;
use redis::aio::ConnectionManager;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};

use super::super::connection::{ping, within};
use super::super::dialer::Dialer;
use super::slots::{Address, SlotMap};

/// How long the watch waits before it looks for the first time, and at most.
const WATCH_WAIT_MIN: Duration = Duration::from_millis(20);
const WATCH_WAIT_MAX: Duration = Duration::from_millis(500);

/// All that is known of a cluster's nodes.
pub(super) struct Nodes {
    /// Of the first node that was configured: the others have the same user, password and kind of connection.
    info: ConnectionInfo,
    /// Those that were configured: always asked, since all others may have gone.
    seeds: Vec<Address>,
    /// How long a look takes at most.
    look_max: Duration,
    state: Mutex<State>,
}

struct State {
    dialer: Dialer,
    slots: SlotMap,
    connections: HashMap<Address, ConnectionManager>,
    away: BTreeSet<Address>,
    is_watched: bool,
}

impl Nodes {
    /// No call is made. `infos` are of the nodes that were configured; not empty.
    pub(super) fn new(dialer: Dialer, infos: &[ConnectionInfo], look_max: Duration) -> RedisResult<Self> {
        let seeds = infos.iter().map(address_of).collect::<RedisResult<_>>()?;
        let state = State {
            dialer,
            slots: SlotMap::default(),
            connections: HashMap::new(),
            away: BTreeSet::new(),
            is_watched: false,
        };
        Ok(Self { info: infos[0].clone(), seeds, look_max, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that has this slot.
    pub(super) fn primary_of(self: &Arc<Self>, slot: u16) -> RedisResult<Address> {
        let primary = self.state().slots.primary_of(slot).cloned();
        primary.ok_or_else(|| self.nobody_has_it())
    }

    /// All nodes that have slots; at least one.
    pub(super) fn primaries(self: &Arc<Self>) -> RedisResult<Vec<Address>> {
        let primaries: Vec<_> = self.state().slots.primaries().into_iter().cloned().collect();
        if primaries.is_empty() { Err(self.nobody_has_it()) } else { Ok(primaries) }
    }

    fn nobody_has_it(self: &Arc<Self>) -> RedisError {
        self.doubt();
        (ErrorKind::ClusterConnectionNotFound, "no node is known to have the slot").into()
    }

    /// For a call; an error where the node is away.
    pub(super) fn connection(&self, node: &Address) -> RedisResult<ConnectionManager> {
        let mut state = self.state();
        if state.away.contains(node) {
            let what = "a node of the cluster does not answer";
            return Err((ErrorKind::ClusterConnectionNotFound, what, node.to_string()).into());
        }
        self.dialed(&mut state, node)
    }

    /// A node said which one has this slot now.
    pub(super) fn moved(&self, slot: u16, primary: Address) {
        self.state().slots.set(slot, primary);
    }

    /// How a call to this node went.
    pub(super) fn heard(self: &Arc<Self>, node: &Address, reply: &RedisResult<Value>) {
        let Err(error) = reply else { return };
        match error.kind() {
            ErrorKind::Io => {
                if self.state().away.insert(node.clone()) {
                    tracing::warn!(%node, %error, "a node of the Redis Cluster does not answer");
                }
                self.doubt();
            }
            // Other slots may have moved with this one, or another node have taken over.
            ErrorKind::Server(
                ServerErrorKind::Moved
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            ) => self.doubt(),
            ErrorKind::Server(_) => {}
            _ => self.state().hang_up(node),
        }
    }

    /// What is known may be out of date: the watch looks soon.
    fn doubt(self: &Arc<Self>) {
        let mut state = self.state();
        if !state.is_watched {
            state.is_watched = true;
            tokio::spawn(Self::watch(Arc::downgrade(self)));
        }
    }

    /// Looks until no node is away.
    async fn watch(nodes: Weak<Self>) {
        let mut wait = WATCH_WAIT_MIN;
        loop {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WATCH_WAIT_MAX);
            let Some(nodes) = nodes.upgrade() else { return };
            // Where none answers, all that is known stays as it is.
            let _ = nodes.look().await;
            let mut state = nodes.state();
            if state.away.is_empty() {
                state.is_watched = false;
                return;
            }
        }
    }

    /// Asks all nodes at once which of them has which slots, believes most of those that answer, and forgets nodes that are
    /// not named any more. An error where none answers in time.
    pub(super) async fn look(&self) -> RedisResult<()> {
        let until = Instant::now() + self.look_max;
        let asked = self.to_ask()?.into_iter().map(|(node, mut connection)| async move {
            let mut ask = redis::cmd("CLUSTER");
            ask.arg("SLOTS");
            let reply = connection.send_packed_command(&ask).await.and_then(Value::extract_error);
            (node, reply)
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut told = Vec::new();
        let silence = "no node of the cluster says which slots there are";
        let mut result = Err((ErrorKind::ClusterConnectionNotFound, silence).into());
        while let Ok(Some((node, reply))) = timeout_at(until, asked.next()).await {
            let mut state = self.state();
            match &reply {
                Err(error) if error.kind() == ErrorKind::Io => {}
                Err(error) if !matches!(error.kind(), ErrorKind::Server(_)) => state.hang_up(&node),
                _ => state.answers(&node),
            }
            match reply {
                Ok(reply) => told.extend(SlotMap::parse(&reply, &node)),
                Err(error) if told.is_empty() => result = Err(error),
                Err(_) => {}
            }
            // At once: what some say does not wait for those that are away.
            if let Some(slots) = SlotMap::of_most(&told) {
                state.believe(slots, &self.seeds);
                result = Ok(());
            }
        }
        result
    }

    /// Further connections are made with these certificates, where they can be: to each node that has slots and is not away,
    /// and to one at least. Those that there are to other nodes go on.
    pub(super) async fn renew_tls(&self, tls: &ClientTls) -> RedisResult<()> {
        let (dialer, nodes, needed) = {
            let state = self.state();
            let needed = state.slots.primaries().into_iter().filter(|node| !state.away.contains(*node));
            let needed: BTreeSet<Address> = needed.cloned().collect();
            (state.dialer.with_tls(tls), self.known(&state), needed)
        };
        let until = Instant::now() + self.look_max;
        let tried = join_all(nodes.into_iter().map(async |node| {
            let connection = self.dial(&dialer, &node)?;
            let answered = within(until, ping(connection.clone())).await;
            RedisResult::Ok((node, answered.map(|()| connection)))
        }));
        let (mut renewed, mut failed) = (Vec::new(), None);
        for tried in tried.await {
            match tried? {
                (node, Ok(connection)) => renewed.push((node, connection)),
                (node, Err(error)) if needed.contains(&node) => return Err(error),
                (_, Err(error)) => failed = Some(error),
            }
        }
        if let (true, Some(error)) = (renewed.is_empty(), failed) {
            return Err(error);
        }
        let mut state = self.state();
        state.dialer = dialer;
        state.connections.extend(renewed);
        Ok(())
    }

    /// All nodes, also those that are away.
    fn known(&self, state: &State) -> BTreeSet<Address> {
        state.slots.nodes().into_iter().chain(&self.seeds).cloned().collect()
    }

    /// Connections to all nodes, also to those that are away.
    fn to_ask(&self) -> RedisResult<Vec<(Address, ConnectionManager)>> {
        let mut state = self.state();
        self.known(&state)
            .into_iter()
            .map(|node| self.dialed(&mut state, &node).map(|connection| (node, connection)))
            .collect()
    }

    fn dialed(&self, state: &mut State, node: &Address) -> RedisResult<ConnectionManager> {
        if let Some(connection) = state.connections.get(node) {
            return Ok(connection.clone());
        }
        let connection = self.dial(&state.dialer, node)?;
        state.connections.insert(node.clone(), connection.clone());
        Ok(connection)
    }

    fn dial(&self, dialer: &Dialer, node: &Address) -> RedisResult<ConnectionManager> {
        let (host, port) = (node.host.to_string(), node.port);
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        // Not tried again by itself: whoever waits for it should hear soon, and the watch tries.
        dialer.dial(self.info.clone().set_addr(addr), 0)
    }
}

impl State {
    fn answers(&mut self, node: &Address) {
        if self.away.remove(node) {
            tracing::info!(%node, "a node of the Redis Cluster answers again");
        }
    }

    /// The connection is made anew on the next call: it was answered, and never would be made by itself.
    fn hang_up(&mut self, node: &Address) {
        self.connections.remove(node);
    }

    /// Forgets nodes that are not named any more.
    fn believe(&mut self, slots: &SlotMap, seeds: &[Address]) {
        if *slots != self.slots {
            self.slots = slots.clone();
        }
        let (nodes, primaries) = (self.slots.nodes(), self.slots.primaries());
        self.connections.retain(|node, _| nodes.contains(node) || seeds.contains(node));
        self.away.retain(|node| primaries.contains(node));
    }
}

fn address_of(info: &ConnectionInfo) -> RedisResult<Address> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Ok(Address { host: host.as_str().into(), port: *port })
        }
        _ => Err((ErrorKind::InvalidClientConfig, "a node of a cluster has a host and a port").into()),
    }
}
