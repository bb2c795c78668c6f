//! What stands between the network and the service: how many connections there may be, how long a silent one is kept, and
//! how much memory requests may take, so that no client can take it from the others.

mod connection;
mod limits;
mod malformed;
mod memory;
mod metered;

pub(crate) use connection::{Connection, incoming};
pub(crate) use limits::{Limits, PING_TIMEOUT, STREAM_WINDOW};
pub(crate) use malformed::malformed;
pub(crate) use memory::{Account, Charge, account_of};
pub(crate) use metered::Metered;
