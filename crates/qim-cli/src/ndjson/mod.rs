//! Files of messages, one JSON object a line.

mod line;
mod reader;

pub(crate) use line::{Date, Entry};
pub(crate) use reader::{Input, ParsedLine, Source};
