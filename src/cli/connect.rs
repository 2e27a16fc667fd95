//! The command line's way to the control listener: one request per connection, with a bearer
//! token. Must never send the generated token to another machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::base::secret::Secret;
use crate::ops::keys_file;

use super::out::{Exit, Failed, visible};

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long an answer may take; a confirm waits for the outcome.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long connecting may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// How to reach a guard, as options of every subcommand that asks one.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Reach {
    /// The control listener's URL
    #[arg(
        long,
        env = "COUNTERSIGN_CONTROL",
        default_value = "http://127.0.0.1:7071",
        value_name = "URL",
        global = true
    )]
    pub(super) control: Uri,
    /// An approver's token; without it the generated one from the keys file is used
    #[arg(long, env = "COUNTERSIGN_TOKEN", hide_env_values = true, value_name = "TOKEN", global = true)]
    pub(super) token: Option<String>,
    /// The keys file with the generated token of the approver `local`
    #[arg(long, default_value = "countersign.keys", value_name = "FILE", global = true)]
    pub(super) keys: PathBuf,
}

/// A guard's control listener.
#[derive(Debug, Clone)]
pub(super) struct Control {
    tls: bool,
    host: String,
    port: u16,
    authority: String,
    token: Secret,
}

/// An answer of the control listener.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reply {
    /// The status.
    pub(super) status: u16,
    /// The body; `Null` where it is not JSON.
    pub(super) body: Value,
}

impl Reach {
    /// Reads the options and finds the token.
    ///
    /// # Errors
    ///
    /// The URL or the token cannot be used.
    pub(super) fn open(&self) -> Result<Control, Failed> {
        let usage = |message: String| Failed::new(Exit::Usage, message);
        let shown = visible(&self.control.to_string());
        let tls = match self.control.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(usage(format!("{shown} is not an http or https URL")).hint("--control http://HOST:PORT")),
        };
        let authority = self.control.authority().ok_or_else(|| usage(format!("{shown} names no host")))?;
        if !matches!(self.control.path(), "" | "/") || self.control.query().is_some() {
            return Err(usage(format!("{shown} has a path; the control listener's URL has none")));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let authority = authority.as_str().rsplit('@').next().unwrap_or_default().to_owned();
        let token = match &self.token {
            Some(token) => Secret::new(token.trim()),
            None => self.generated(&host)?,
        };
        if token.reveal().is_empty() || !token.reveal().bytes().all(|b| b.is_ascii_graphic()) {
            return Err(usage("the token is empty or has characters that no token has".to_owned()));
        }
        Ok(Control { tls, host, port, authority, token })
    }

    fn generated(&self, host: &str) -> Result<Secret, Failed> {
        let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !local {
            return Err(Failed::new(Exit::Usage, "no token for this guard")
                .hint("pass --token or set COUNTERSIGN_TOKEN; the generated token is never sent to another machine"));
        }
        keys_file::read(&self.keys).map(|keys| keys.local_token).map_err(|error| {
            let failed = Failed::told(Exit::Usage, &error);
            match failed.hint {
                Some(_) => failed,
                None => failed.hint("run this in the guard's folder, name its keys file with --keys, or pass --token"),
            }
        })
    }
}

impl Control {
    /// A guard of this very process, for the quickstart.
    #[must_use]
    pub(super) fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }

    /// Reads.
    ///
    /// # Errors
    ///
    /// The guard did not answer.
    pub(super) async fn get(&self, path: &str) -> Result<Reply, Failed> {
        self.call(Method::GET, path, None).await
    }

    /// Asks for a change.
    ///
    /// # Errors
    ///
    /// The guard did not answer. Whether it did what was asked is then not known.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Reply, Failed> {
        self.call(Method::POST, path, Some(body)).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, Failed> {
        let changing = body.is_some();
        let request = self.request(method, path, body)?;
        let stream = tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect((self.host.as_str(), self.port)))
            .await
            .map_err(|_| self.unreachable("it did not take the connection in time"))?
            .map_err(|error| self.unreachable(&error.to_string()))?;
        let exchange = async {
            if self.tls { exchange(self.secure(stream).await?, request).await } else { exchange(stream, request).await }
        };
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(why)) => Err(self.broke_off(changing, &why)),
            Err(_) => Err(self.broke_off(changing, "no answer in time")),
        }
    }

    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Request<Full<Bytes>>, Failed> {
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let mut bearer = header::HeaderValue::try_from(format!("Bearer {}", self.token.reveal()))
            .map_err(|_| Failed::new(Exit::Usage, "the token has characters that no token has"))?;
        bearer.set_sensitive(true);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::AUTHORIZATION, bearer)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("countersign/", env!("CARGO_PKG_VERSION")));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(bytes)).map_err(|error| Failed::new(Exit::Usage, error.to_string()))
    }

    async fn secure(&self, stream: TcpStream) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let tls = tokio_rustls::TlsConnector::from(Arc::new(config));
        tls.connect(name, stream).await.map_err(|error| error.to_string())
    }

    fn unreachable(&self, why: &str) -> Failed {
        Failed::new(Exit::Unreachable, format!("no guard answers at {}: {why}", self.url()))
            .hint("start one with `countersign guard URL` or `countersign run`, or name another with --control")
    }

    fn broke_off(&self, changing: bool, why: &str) -> Failed {
        let message = format!("the guard at {} broke off: {why}", self.url());
        if changing {
            Failed::new(Exit::Unknown, format!("{message}. What was asked may or may not have been recorded"))
                .hint("look with `countersign drafts show ID`; asking again is harmless")
        } else {
            Failed::new(Exit::Unreachable, message)
        }
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Reply, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    driver.abort();
    let bytes = body.map_err(|error| error.to_string())?.to_bytes();
    Ok(Reply { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn reach(url: &str, token: Option<&str>) -> Reach {
        Reach { control: url.parse().unwrap(), token: token.map(str::to_owned), keys: "/nowhere/keys".into() }
    }

    #[test]
    fn p10_the_generated_token_stays_on_this_machine() {
        for far in
            ["http://guard.example", "https://10.0.0.1", "http://localhost.example:1", "http://[2001:db8::1]:7071"]
        {
            let failed = reach(far, None).open().unwrap_err();
            assert!(failed.message.contains("no token for this guard"), "{far}: {failed}");
        }
        for near in ["http://127.0.0.1:7071", "http://localhost:7071", "http://[::1]:7071"] {
            assert!(reach(near, None).open().unwrap_err().message.contains("/nowhere/keys"), "{near}");
        }
    }

    #[test]
    fn urls_and_tokens_are_checked() {
        let control = reach("https://guard.example", Some(" abc\n")).open().unwrap();
        assert_eq!((control.tls, control.port, control.host.as_str()), (true, 443, "guard.example"));
        assert!(reach("ftp://guard.example", Some("abc")).open().is_err());
        assert!(reach("http://guard.example/console", Some("abc")).open().is_err());
        assert!(reach("http://guard.example", Some("")).open().is_err());
        assert!(reach("http://guard.example", Some("a\nb")).open().is_err());
    }

    #[tokio::test]
    async fn p10_debug_prints_no_token() {
        let control = reach("http://127.0.0.1:1", Some("very-secret")).open().unwrap();
        assert!(!format!("{control:?}").contains("very-secret"));
    }

    #[tokio::test]
    async fn nobody_there_and_an_answer_cut_short() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            for _ in 0..2 {
                drop(listener.accept().await.unwrap());
            }
        });
        let control = reach(&url, Some("abc")).open().unwrap();
        assert_eq!(control.get("/v1/drafts").await.unwrap_err().exit, Exit::Unreachable);
        let failed = control.post("/v1/drafts/x/confirm", &serde_json::json!({})).await.unwrap_err();
        assert_eq!(failed.exit, Exit::Unknown);
        server.await.unwrap();
        assert_eq!(control.get("/v1/drafts").await.unwrap_err().exit, Exit::Unreachable);
    }
}
