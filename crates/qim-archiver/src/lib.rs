//! qim-archiver
