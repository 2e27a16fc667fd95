//! What pingora asks of a connection beside its bytes.
//!
//! Owns the answers to that: how a connection is closed, and that there is nothing to tell of its
//! identity, its encryption and its times. Must never read or write a byte by itself.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::StrictStream;

#[async_trait]
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Shutdown for StrictStream<S> {
    async fn shutdown(&mut self) {
        // A client that is gone is closed as well.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> UniqueID for StrictStream<S> {
    fn id(&self) -> UniqueIDType {
        // Names a pooled connection to pingora; a client's is never pooled.
        0
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Ssl for StrictStream<S> {}
impl<S: AsyncRead + AsyncWrite + Unpin> Peek for StrictStream<S> {}

impl<S: AsyncRead + AsyncWrite + Unpin> GetTimingDigest for StrictStream<S> {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> GetProxyDigest for StrictStream<S> {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> GetSocketDigest for StrictStream<S> {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}
