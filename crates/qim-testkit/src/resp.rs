//! Just enough of the Redis protocol to ask a server how it is, without depending on the client under test.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// What Redis answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and the like, and bulk strings.
    Text(String),
    /// `-ERR …`.
    Error(String),
    /// A number.
    Int(i64),
    /// No such thing.
    Nil,
    /// Several.
    Array(Vec<Reply>),
}

impl Reply {
    /// The number; a test that gets anything else is wrong.
    pub fn integer(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("not a number: {other:?}"),
        }
    }

    /// All texts in it, in their order.
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::Array(replies) => replies.iter().flat_map(Self::texts).collect(),
            Self::Error(_) | Self::Int(_) | Self::Nil => Vec::new(),
        }
    }
}

/// Sends one command on a connection of its own, and waits for its answer.
pub(crate) fn command(addr: SocketAddr, arguments: &[&str]) -> io::Result<Reply> {
    command_within(addr, arguments, REPLY_TIMEOUT)
}

/// The same, and waits no longer than this.
pub(crate) fn command_within(addr: SocketAddr, arguments: &[&str], patience: Duration) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT)?;
    stream.set_read_timeout(Some(patience))?;
    let bulks = arguments.iter().map(|argument| format!("${}\r\n{argument}\r\n", argument.len()));
    let request = format!("*{}\r\n{}", arguments.len(), bulks.collect::<String>());
    stream.write_all(request.as_bytes())?;
    read_reply(&mut BufReader::new(stream))
}

fn read_reply(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
    let number = || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
    match kind {
        "+" => Ok(Reply::Text(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Int(number()?)),
        "$" | "*" if number()? < 0 => Ok(Reply::Nil),
        "$" => read_bulk(stream, number()?),
        "*" => (0..number()?).map(|_| read_reply(stream)).collect::<io::Result<_>>().map(Reply::Array),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn read_bulk(stream: &mut impl BufRead, length: i64) -> io::Result<Reply> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
}
