//! A Redis Cluster: a command goes to the node that has its slot, and follows the slot where it moves.
//!
//! The cluster client of redis 1.8 reads the map of slots anew when a node fails, waits for that node meanwhile, and keeps
//! calls to all others waiting. So only its connections to single nodes are used here.

mod nodes;
mod redirect;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use qim_core::ClientTls;
use redis::{Arg, Cmd, ConnectionInfo, Pipeline, RedisResult, Value};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use super::connection::within;
use super::dialer::Dialer;
use nodes::Nodes;
use redirect::Next;
use slots::{Address, slot_of};

/// How often a command is sent at most.
const TRIES_MAX: u32 = 6;
/// The least and the most that is waited before it is sent once more; less than a second, all waits together.
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_millis(200);

/// The connections to a cluster. Made on the first call. Cheap to clone.
#[derive(Clone)]
pub(super) struct Cluster {
    nodes: Arc<Nodes>,
    /// Set once any node said which slots there are.
    is_known: Arc<OnceCell<()>>,
}

impl Cluster {
    /// `infos`: any nodes of it, at least one. `timeout` bounds each call.
    pub(super) fn new(dialer: Dialer, infos: &[ConnectionInfo], timeout: Duration) -> RedisResult<Self> {
        let nodes = Arc::new(Nodes::new(dialer, infos, timeout / 2)?);
        Ok(Self { nodes, is_known: Arc::default() })
    }

    /// The reply to a command whose keys are all in one slot.
    pub(super) async fn request(&self, command: &Cmd, deadline: Instant) -> RedisResult<Value> {
        self.get_to_know(deadline).await?;
        let slot = slot_of(first_key(command));
        let mut wait = WAIT_MIN;
        let mut tries = 0;
        let mut ask = None;
        loop {
            tries += 1;
            let (node, is_asking) = match ask.take() {
                Some(node) => (node, true),
                None => (self.nodes.primary_of(slot)?, false),
            };
            let error = match self.send(&node, is_asking, command, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(error) if tries == TRIES_MAX => return Err(error),
                Err(error) => error,
            };
            match Next::after(&error, &node) {
                Next::Give => return Err(error),
                // Who found it out waits: most often only a connection broke.
                Next::Away if tries == 1 => return Err(error),
                Next::Moved(slot, primary) => self.nodes.moved(slot, primary),
                Next::Ask(node) => ask = Some(node),
                // What is left has to be enough for an answer.
                Next::Wait | Next::Away if Instant::now() + wait * 2 >= deadline => return Err(error),
                Next::Wait | Next::Away => {
                    sleep(wait).await;
                    wait = (wait * 2).min(WAIT_MAX);
                }
            }
        }
    }

    /// The replies to a command without a key, of each node that has slots. An error where one of them fails.
    pub(super) async fn request_each(&self, command: &Cmd, deadline: Instant) -> RedisResult<Vec<Value>> {
        self.get_to_know(deadline).await?;
        let primaries = self.nodes.primaries()?;
        try_join_all(primaries.iter().map(|node| self.send(node, false, command, deadline))).await
    }

    /// Goes on with these certificates where a connection to any node can be made with them, else as before.
    pub(super) async fn renew_tls(&self, tls: &ClientTls, deadline: Instant) -> RedisResult<()> {
        within(deadline, self.nodes.renew_tls(tls)).await
    }

    async fn get_to_know(&self, deadline: Instant) -> RedisResult<()> {
        if self.is_known.initialized() {
            return Ok(());
        }
        within(deadline, self.is_known.get_or_try_init(|| self.nodes.look())).await.copied()
    }

    /// `is_asking`: it has not got the slot yet, and another node says that it has the keys.
    async fn send(
        &self,
        node: &Address,
        is_asking: bool,
        command: &Cmd,
        deadline: Instant,
    ) -> RedisResult<Value> {
        let mut connection = self.nodes.connection(node)?;
        let reply = within(deadline, async {
            if !is_asking {
                return connection.send_packed_command(command).await?.extract_error();
            }
            let mut both = Pipeline::with_capacity(2);
            both.add_command(redis::cmd("ASKING")).add_command(command.clone());
            let replies = connection.send_packed_commands(&both, 0, 2).await?;
            Value::Array(replies).extract_error()
        })
        .await;
        self.nodes.heard(node, &reply);
        reply.map(|reply| match reply {
            Value::Array(mut replies) if is_asking => replies.pop().unwrap_or(Value::Nil),
            reply => reply,
        })
    }
}

/// By which a command goes to a node.
fn first_key(command: &Cmd) -> &[u8] {
    let argument = |place| match command.args_iter().nth(place) {
        Some(Arg::Simple(argument)) => argument,
        _ => panic!("a command for one node of a cluster has a key"),
    };
    argument(match argument(0) {
        b"EVALSHA" | b"EVAL" => 3,
        b"MEMORY" => 2,
        _ => 1,
    })
}
