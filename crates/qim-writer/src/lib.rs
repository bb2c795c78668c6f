//! qim-writer
