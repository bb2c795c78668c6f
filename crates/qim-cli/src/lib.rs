//! qim-cli
