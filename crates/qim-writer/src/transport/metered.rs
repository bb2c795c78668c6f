use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::transport::server::TlsConnectInfo;

use super::connection::ClientInfo;
use super::malformed::{is_malformed, malformed};
use super::memory::Charge;

/// What each request takes for as long as it is open, whatever is in it: its stream, its task, its place in queues.
const REQUEST_BYTES: usize = 4 * 1024;
/// Before each message: whether it is compressed, 1 byte, and its length, 4 bytes big-endian.
const PREFIX_BYTES: usize = 5;

/// Accounts for all requests of an inner service: each while it is open, what was received of a message that is not complete
/// yet, and what its answer takes until the client has taken it. What the service itself holds it charges to the account in
/// the request's extensions, and passes on as `Arc<Charge>` in those of its answer.
#[derive(Clone)]
pub(crate) struct Metered<S>(S);

impl<S> Metered<S> {
    pub(crate) fn new(service: S) -> Self {
        Self(service)
    }
}

impl<S> Service<http::Request<Body>> for Metered<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let ClientInfo { tcp, account } = client_of(request.extensions());
        let charged = account.charge(REQUEST_BYTES).and_then(|open| Ok((open, account.charge(0)?)));
        let (open, received) = match charged {
            Ok(charged) => charged,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        request.extensions_mut().insert(account);
        request.extensions_mut().insert(tcp);
        let request =
            request.map(|body| Body::new(RequestBody { body, received, message: Message::default() }));
        let answered = self.0.call(request);
        Box::pin(async move {
            let mut response = answered.await?;
            let refused = Status::from_header_map(response.headers()).filter(is_malformed);
            if let Some(status) = refused {
                return Ok(malformed(status).into_http());
            }
            let held = response.extensions_mut().remove::<Arc<Charge>>();
            Ok(response.map(|body| Body::new(ResponseBody { body, _held: (open, held) })))
        })
    }
}

fn client_of(extensions: &http::Extensions) -> ClientInfo {
    let in_clear = extensions.get::<ClientInfo>();
    let over_tls = || extensions.get::<TlsConnectInfo<ClientInfo>>().map(TlsConnectInfo::get_ref);
    in_clear.or_else(over_tls).expect("each connection says whose it is").clone()
}

/// Charges for what was received of the message that is under way. One that is complete is the service's.
struct RequestBody {
    body: Body,
    received: Charge,
    message: Message,
}

/// How far the message that is under way has come.
#[derive(Default)]
struct Message {
    prefix: [u8; PREFIX_BYTES],
    prefix_len: usize,
    body_len: usize,
}

impl Message {
    /// Goes on by these bytes; answers how many of the last message there are, 0 where it is complete.
    fn advance(&mut self, mut bytes: &[u8]) -> usize {
        while !bytes.is_empty() {
            let missing = PREFIX_BYTES - self.prefix_len;
            let taken = if missing > 0 {
                let taken = missing.min(bytes.len());
                self.prefix[self.prefix_len..][..taken].copy_from_slice(&bytes[..taken]);
                self.prefix_len += taken;
                taken
            } else {
                let taken = (self.announced() - self.body_len).min(bytes.len());
                self.body_len += taken;
                taken
            };
            bytes.advance(taken);
            if self.prefix_len == PREFIX_BYTES && self.body_len == self.announced() {
                *self = Self::default();
            }
        }
        self.prefix_len + self.body_len
    }

    fn announced(&self) -> usize {
        let [_, length @ ..] = self.prefix;
        u32::from_be_bytes(length) as usize
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let under_way = self.message.advance(data);
            if let Err(status) = self.received.set(under_way) {
                return Poll::Ready(Some(Err(status)));
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// Keeps the charges of a request until its answer has been taken.
struct ResponseBody {
    body: Body,
    _held: (Charge, Option<Arc<Charge>>),
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_of_a_message_is_known_however_its_bytes_are_cut() {
        let message = |len: u32| [&[0][..], &len.to_be_bytes(), &vec![7; len as usize]].concat();
        let all = [message(3), message(0), message(700), message(1)].concat();
        let ends = [8, 13, 718, 724];
        for cut in [1, 2, 5, 9, 700, 1000] {
            let mut under_way = Message::default();
            let mut sent = 0;
            for chunk in all.chunks(cut) {
                sent += chunk.len();
                let complete = ends.iter().rev().find(|end| **end <= sent).copied().unwrap_or(0);
                assert_eq!(under_way.advance(chunk), sent - complete, "{cut} at a time, {sent} sent");
            }
        }
    }
}
