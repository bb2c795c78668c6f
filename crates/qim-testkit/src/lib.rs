//! qim-testkit
