use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// 200 and the like.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

/// One GET of `http://IP:PORT/PATH`. In HTTP/1.0, so that the answer comes in one piece and ends with the connection.
pub fn http_get(url: &str) -> io::Result<HttpAnswer> {
    let malformed = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{url}: {what}"));
    let rest = url.strip_prefix("http://").ok_or_else(|| malformed("not http://"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let addr = authority.parse().map_err(|_| malformed("not IP:PORT"))?;
    let mut stream = TcpStream::connect_timeout(&addr, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {authority}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| malformed("no header"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(HttpAnswer { status: status.ok_or_else(|| malformed("no status"))?, body: body.to_owned() })
}
