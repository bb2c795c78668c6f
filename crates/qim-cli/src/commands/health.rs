//! `qim health`: one small HTTP request, so that an image needs no other program to check itself.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::Serialize;
use tonic::codegen::http::Uri;

use crate::cli::HealthArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;

/// The writer's, as it is configured by default.
const DEFAULT_ADMIN_URL: &str = "http://127.0.0.1:7401";
/// For all of it: a daemon that cannot answer in this time is not ready.
const TIMEOUT: Duration = Duration::from_secs(3);
/// More than any answer has.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

#[derive(Serialize)]
struct Health<'a> {
    ready: bool,
    status: u16,
    body: &'a str,
}

/// Prints what `/readyz` says. Only status 200 is good.
pub(crate) fn run(session: &Session, args: &HealthArgs, output: &mut Output) -> Result<(), Failure> {
    let authority = authority(args.admin.as_deref(), session.environment.admin_addr.as_deref())?;
    let (status, body) = get_readyz(&authority)
        .map_err(|error| Failure::Found(format!("http://{authority}/readyz: {error}")))?;
    let ready = status == 200;
    if output.is_json() {
        output.json(&Health { ready, status, body: &body })?;
    } else {
        output.line(body.trim_end())?;
    }
    if ready { Ok(()) } else { Err(Failure::Found(format!("http://{authority}/readyz: status {status}"))) }
}

/// HOST:PORT, from the command line, else from where the daemon beside us listens, else the default.
fn authority(url: Option<&str>, admin_addr: Option<&str>) -> Result<String, Failure> {
    match (url, admin_addr) {
        (Some(url), _) => authority_of(url)
            .ok_or_else(|| Failure::Usage(format!("--admin {url:?} is not http://HOST:PORT"))),
        (None, Some(addr)) => reachable(addr)
            .ok_or_else(|| Failure::Configuration(format!("QIM_ADMIN_ADDR: {addr:?} is not ADDRESS:PORT"))),
        (None, None) => Ok(authority_of(DEFAULT_ADMIN_URL).expect("the default is a URL")),
    }
}

fn authority_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let names_host_only = uri.path_and_query().is_none_or(|rest| rest.as_str() == "/");
    let host = uri.host().filter(|host| !host.is_empty())?;
    (uri.scheme_str() == Some("http") && names_host_only)
        .then(|| format!("{host}:{}", uri.port_u16().unwrap_or(80)))
}

/// A daemon that listens on all addresses is reached on the loopback one.
fn reachable(addr: &str) -> Option<String> {
    let (host, port) = addr.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let host = match host {
        "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        "" => return None,
        host => host,
    };
    Some(format!("{host}:{port}"))
}

fn get_readyz(authority: &str) -> io::Result<(u16, String)> {
    let deadline = Instant::now() + TIMEOUT;
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut stream = connect(authority, left)?;
    stream.set_write_timeout(Some(left()?))?;
    // HTTP/1.0: the answer comes in one piece and ends with the connection.
    write!(stream, "GET /readyz HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while (answer.len() as u64) < ANSWER_BYTES_MAX {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    parse_answer(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))
}

fn connect(authority: &str, left: impl Fn() -> io::Result<Duration>) -> io::Result<TcpStream> {
    let mut refusal = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for addr in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, left()?) {
            Ok(stream) => return Ok(stream),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// Status and body.
fn parse_answer(answer: &[u8]) -> Option<(u16, String)> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.parse().ok()?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_admin_port_is_found_where_the_daemon_listens() {
        let found = |url, addr| authority(url, addr).unwrap();
        assert_eq!(found(None, None), "127.0.0.1:7401");
        assert_eq!(found(None, Some("0.0.0.0:7402")), "127.0.0.1:7402");
        assert_eq!(found(None, Some("[::]:7402")), "[::1]:7402");
        assert_eq!(found(None, Some("10.0.0.1:7402")), "10.0.0.1:7402");
        assert_eq!(found(Some("http://[::1]:9"), Some("x")), "[::1]:9");
        assert_eq!(authority(Some("https://h:1"), None).unwrap_err().exit_status(), 2);
        for bad in ["", "7402", ":7402", "h:x", "h:99999"] {
            assert_eq!(authority(None, Some(bad)).unwrap_err().exit_status(), 78, "{bad:?}");
        }
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = b"HTTP/1.0 503 Service Unavailable\r\ncontent-length: 3\r\n\r\nno\n";
        assert_eq!(parse_answer(answer), Some((503, "no\n".to_owned())));
        assert_eq!(parse_answer(b"SSH-2.0-x\r\n\r\n"), None);
        assert_eq!(parse_answer(b""), None);
    }

    #[test]
    fn an_answer_is_read_to_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            for piece in ["HTTP/1.0 200 OK\r\n", "\r\n", "rea", "dy\n"] {
                stream.write_all(piece.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            request
        });
        assert_eq!(get_readyz(&authority).unwrap(), (200, "ready\n".to_owned()));
        assert!(server.join().unwrap().starts_with(b"GET /readyz HTTP/1.0\r\n"));
        assert!(get_readyz(&authority).is_err());
    }
}
