//! A client that knows HTTP/2 and none of its manners.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use prost::Message;
use qim_testkit::Daemon;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::codegen::http::{HeaderMap, Request};

/// A connection whose streams get only as much as their windows say.
pub(crate) struct Hostile {
    send: SendRequest<Bytes>,
    addr: String,
    window: watch::Sender<u32>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Hostile {
    /// Takes so many bytes of each answer, and no more until it says so.
    pub(crate) async fn connect(writer: &Daemon, window: u32) -> Self {
        let addr = writer.grpc_url().trim_start_matches("http://").to_owned();
        let tcp = TcpStream::connect(&addr).await.unwrap();
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(window)
            .initial_max_send_streams(10_000)
            // Answers that were not taken for a while come all at once, and are small.
            .data_frame_budget(64 << 20)
            .max_concurrent_reset_streams(10_000);
        let (send, mut connection) = builder.handshake(tcp).await.unwrap();
        let (window, mut changed) = watch::channel(window);
        let connection = tokio::spawn(async move {
            loop {
                tokio::select! {
                    ended = &mut connection => return ended,
                    Ok(()) = changed.changed() => connection.set_initial_window_size(*changed.borrow_and_update())?,
                }
            }
        });
        Self { send, addr, window, connection }
    }

    /// Takes so many bytes from now on, also of answers that wait.
    pub(crate) fn open_windows(&self, window: u32) {
        self.window.send_replace(window);
    }

    /// Begins a request.
    pub(crate) async fn begin(
        &mut self,
        method: &str,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let request = Request::post(format!("http://{}/qim.v1.History/{method}", self.addr))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let mut send = self.send.clone().ready().await?;
        send.send_request(request, false)
    }

    /// Sends a whole request.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        message: &impl Message,
    ) -> Result<ResponseFuture, h2::Error> {
        let (response, mut body) = self.begin(method).await?;
        body.send_data(framed(message), true)?;
        Ok(response)
    }

    /// Why the writer ended the connection, where it did.
    pub(crate) async fn end(self) -> Result<(), h2::Error> {
        drop(self.send);
        self.connection.await.unwrap()
    }
}

/// As gRPC sends it.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let mut bytes = prefix(message.encoded_len());
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
}

/// Announces a message of this length.
pub(crate) fn prefix(length: usize) -> BytesMut {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap());
    bytes
}

/// What a request was answered: a status where it has one before its body, else the body, to be taken or not.
pub(crate) async fn answer(response: ResponseFuture) -> Result<RecvStream, Code> {
    let response = response.await.map_err(|_| Code::Unknown)?;
    match status(response.headers()) {
        Some(code) => Err(code),
        None => Ok(response.into_body()),
    }
}

/// The status with which a body ends that is taken to its end.
pub(crate) async fn taken(mut body: RecvStream) -> Code {
    while let Some(data) = body.data().await {
        let _ = body.flow_control().release_capacity(data.unwrap().len());
    }
    body.trailers().await.unwrap().as_ref().and_then(status).expect("trailers have a status")
}

fn status(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()))
}
