//! qim-daemon
