//! One request on the agent's listener, from its judged head to its answer.
//!
//! Owns the order: head, route, credential, selection; then a read is streamed through untouched,
//! a write is read and held, and everything else is refused with nothing sent. Must never send a
//! write, and never send anything twice: every error of an upstream is final here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderName, StatusCode, Version};
use pingora::connectors::http::v1::Connector;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType};
use tokio::net::TcpStream;

use crate::base::chance::Chance;
use crate::base::code::Code;
use crate::base::refusal::Refusal;
use crate::draft::record::Effect;
use crate::guard::Guard;
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;
use crate::upstream::address::AddressRules;

use super::ask::{Asked, Called, no_route, no_upgrade};
use super::credential::Door;
use super::endpoints;
use super::held::HeldBytes;
use super::hold::verdict_of;
use super::identity::IdentityRules;
use super::lanes::{Dress, Lane, Lanes, Table, UPGRADED_IDLE};
use super::observe::{AgentObserver, Observed, Verdict};
use super::resolve::Tries;
use super::respond;
use super::strip::{frame, strip};
use super::wire::StrictStream;

/// What every request is answered with.
pub(super) struct AgentProxy {
    pub(super) guard: Arc<Guard>,
    pub(super) rules: IdentityRules,
    pub(super) identity_headers: Vec<HeaderName>,
    pub(super) door: Door,
    pub(super) lanes: Lanes,
    pub(super) addresses: Arc<AddressRules>,
    pub(super) held: Arc<HeldBytes>,
    pub(super) body_bytes_max: usize,
    pub(super) body_deadline: Duration,
    pub(super) observer: Arc<dyn AgentObserver>,
    pub(super) chance: Arc<dyn Chance>,
    /// Connects plain reads.
    pub(super) connector: Connector,
}

/// One request on its way.
pub(super) struct Exchange {
    began: Instant,
    /// How long its body was waited for.
    pub(super) waited: Duration,
    /// Time inside the guard so far.
    inside: Duration,
    /// The set that the request was judged with.
    table: Option<Arc<Table>>,
    pub(super) service: Option<usize>,
    pub(super) effect: Effect,
    verdict: Verdict,
    pub(super) dress: Dress,
    pub(super) upgrade: bool,
    pub(super) tries: Tries,
    /// The answer in place of pingora's own error.
    problem: Option<Answer>,
}

impl Exchange {
    /// Rewrites the head of a read for the upstream.
    pub(super) fn dressed(&mut self, lane: &Lane, request: &mut RequestHeader) -> pingora::Result<()> {
        lane.dress(request, &self.dress).inspect_err(|_| self.problem = Some(respond::refusal(not_forwarded())))
    }
}

/// The framing in front of this session.
pub(super) fn wire_of(session: &Session) -> Option<&StrictStream<TcpStream>> {
    session.as_downstream().stream().and_then(|stream| (**stream).as_any().downcast_ref())
}

impl AgentProxy {
    /// Answers a request that is not streamed through.
    async fn answer(
        &self,
        session: &mut Session,
        ctx: &mut Exchange,
        table: &Table,
        called: Result<Called<'_>, Refusal>,
    ) -> Answer {
        match called {
            Ok(Called::Own(agent, head)) => {
                let who = || self.rules.identity(&agent, &head.headers, None);
                let answer = endpoints::answer(&self.guard, &head.method, head.path.as_str(), who).await;
                ctx.verdict = if answer.status >= 500 { Verdict::Error } else { Verdict::Pass };
                answer
            }
            Ok(Called::Write { service, selection, agent, head }) => {
                match self.hold(session, ctx, table, (service, selection, agent, head)).await {
                    Ok(answer) => {
                        ctx.verdict = verdict_of(&answer);
                        answer
                    }
                    Err(refused) => respond::refusal(refused),
                }
            }
            Err(refused) => respond::refusal(refused),
        }
    }

    /// The judged address for the next attempt of this read.
    async fn address(&self, lane: &Lane, ctx: &mut Exchange) -> Result<SocketAddr, Answer> {
        if lane.broken.is_some() {
            return Err(unreached("This service's upstream is not usable as configured; the operator's log says why."));
        }
        if !ctx.tries.begin(&lane.resolver).await {
            return Err(unreached("The upstream's name does not resolve. Nothing was sent."));
        }
        let mut refused = false;
        let mut found = None;
        while let Some(address) = ctx.tries.address() {
            match self.addresses.judge(address) {
                Ok(address) => {
                    found = Some(address);
                    break;
                }
                Err(_) => {
                    refused = true;
                    ctx.tries.pass();
                }
            }
        }
        found.ok_or_else(|| {
            if refused {
                respond::refusal(host_refused())
            } else {
                unreached("The upstream could not be reached. Nothing was sent.")
            }
        })
    }

    /// The judged address for the next attempt of this read, and the lane to it.
    pub(super) async fn way<'t>(
        &self,
        table: &'t Table,
        ctx: &mut Exchange,
    ) -> pingora::Result<(SocketAddr, &'t Lane)> {
        if ctx.tries.is_first() {
            ctx.inside = ctx.began.elapsed();
        }
        let way = match ctx.service.and_then(|index| table.get(index)) {
            Some((_, lane)) => self.address(lane, ctx).await.map(|address| (address, lane)),
            None => Err(respond::refusal(no_route())),
        };
        way.map_err(|answer| {
            ctx.problem = Some(answer);
            Error::new_str("no address")
        })
    }

    /// Whether a connection that was just made may be used: a listener on a wildcard address is
    /// also reached through the machine's other addresses.
    pub(super) fn check_connected(&self, digest: Option<&Digest>, ctx: &mut Exchange) -> pingora::Result<()> {
        let socket = digest.and_then(|digest| digest.socket_digest.as_ref());
        let ends = socket.and_then(|socket| Some((*socket.local_addr()?.as_inet()?, *socket.peer_addr()?.as_inet()?)));
        if ends.is_some_and(|(local, peer)| self.addresses.judge_connected(local, peer).is_err()) {
            ctx.problem = Some(respond::refusal(host_refused()));
            return Err(Error::new_str("an own listener"));
        }
        Ok(())
    }

    fn observe(&self, ctx: &Exchange, overhead: Duration) {
        let service = ctx.table.as_ref().zip(ctx.service).and_then(|(table, index)| table.set.services.get(index));
        self.observer.request(&Observed {
            service: service.map(|service| &service.name),
            effect: ctx.effect,
            verdict: ctx.verdict,
            took: ctx.began.elapsed(),
            overhead,
        });
    }
}

fn host_refused() -> Refusal {
    Refusal::new(
        Code::HostRefused,
        "The upstream is one of the guard's own listeners, a link-local or a metadata address. Nothing was sent.",
    )
}

/// A head that pingora does not send.
fn not_forwarded() -> Refusal {
    Refusal::new(
        Code::RequestAmbiguous,
        "A header cannot be forwarded as it is. Nothing was sent; check `Connection` and `Host`.",
    )
}

/// A read for which there was nowhere to send it.
fn unreached(detail: &str) -> Answer {
    let mut problem = Problem::new(Code::UpstreamFailed, detail);
    problem.upstream_called = false;
    respond::problem(&problem)
}

/// What an upstream's failure is to the agent.
fn upstream_failed(error: &Error) -> Problem {
    use ErrorType::{
        ConnectError, ConnectNoRoute, ConnectRefused, ConnectTimedout, InvalidCert, ReadTimedout, TLSHandshakeFailure,
        TLSHandshakeTimedout, WriteTimedout,
    };
    let timed_out = matches!(error.etype, ConnectTimedout | ReadTimedout | TLSHandshakeTimedout | WriteTimedout);
    let unsent = matches!(
        error.etype,
        ConnectTimedout
            | ConnectRefused
            | ConnectNoRoute
            | ConnectError
            | TLSHandshakeFailure
            | TLSHandshakeTimedout
            | InvalidCert
    );
    let detail = match (timed_out, unsent) {
        (true, true) => "The upstream could not be connected to in time. This was a read; it may be repeated.",
        (true, false) => "The upstream did not answer in time. This was a read; it may be repeated.",
        (false, true) => "The upstream could not be reached. This was a read; it may be repeated.",
        (false, false) => "The upstream broke off. This was a read; it may be repeated.",
    };
    let mut problem = Problem::new(Code::UpstreamFailed, detail);
    problem.upstream_called = !unsent;
    if timed_out { problem.with("status", &504) } else { problem }
}

fn failed_answer(error: &Error) -> Answer {
    let problem = upstream_failed(error);
    let status =
        problem.members.get("status").and_then(serde_json::Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let mut answer = respond::problem(&problem);
    answer.status = status.unwrap_or(answer.status);
    answer
}

#[async_trait]
impl ProxyHttp for AgentProxy {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange {
            began: Instant::now(),
            waited: Duration::ZERO,
            inside: Duration::ZERO,
            table: None,
            service: None,
            effect: Effect::Read,
            verdict: Verdict::Refuse,
            dress: Dress::default(),
            upgrade: false,
            tries: Tries::default(),
            problem: None,
        }
    }

    /// None: responses pass untouched.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, ctx: &mut Exchange) -> pingora::Result<bool> {
        if let Some(wire) = wire_of(session) {
            wire.reach();
        }
        let table = self.lanes.of(self.guard.policies());
        ctx.table = Some(Arc::clone(&table));
        let called = match self.ask(session, &table, ctx) {
            Ok(Asked::Read(right)) => {
                ctx.verdict = Verdict::Pass;
                // HTTP/1.0 has no answers before the answer (RFC 9110 section 15.2).
                if session.req_header().version == Version::HTTP_10 {
                    session.as_downstream_mut().set_ignore_info_resp(true);
                }
                let Some(right) = right else { return Ok(false) };
                self.relay(session, &table, ctx, right).await?;
                return Ok(true);
            }
            Ok(Asked::Call(called)) => Ok(*called),
            Err(refused) => Err(refused),
        };
        // Boxed, so that a read does not carry the size of a whole hold along.
        let answer = Box::pin(self.answer(session, ctx, &table, called)).await;
        respond::write(session, answer).await?;
        ctx.inside = ctx.began.elapsed().saturating_sub(ctx.waited);
        Ok(true)
    }

    async fn upstream_peer(&self, _session: &mut Session, ctx: &mut Exchange) -> pingora::Result<Box<HttpPeer>> {
        let Some(table) = ctx.table.clone() else {
            ctx.problem = Some(respond::refusal(no_route()));
            return Err(Error::new_str("no policy"));
        };
        let (address, lane) = self.way(&table, ctx).await?;
        Ok(lane.peer(address, ctx.upgrade))
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        reused: bool,
        _peer: &HttpPeer,
        _fd: std::os::fd::RawFd,
        digest: Option<&Digest>,
        ctx: &mut Exchange,
    ) -> pingora::Result<()> {
        if reused { Ok(()) } else { self.check_connected(digest, ctx) }
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Exchange,
    ) -> pingora::Result<()> {
        let table = ctx.table.clone();
        match table.as_ref().zip(ctx.service).and_then(|(table, index)| table.get(index)) {
            Some((_, lane)) => ctx.dressed(lane, request),
            None => Ok(()),
        }
    }

    /// Runs after pingora has framed the answer.
    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        _ctx: &mut Exchange,
    ) -> pingora::Result<()> {
        if response.status == StatusCode::SWITCHING_PROTOCOLS { Ok(()) } else { frame(session, response) }
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        _ctx: &mut Exchange,
    ) -> pingora::Result<()> {
        // An empty last piece would end a chunked body twice.
        if end && body.as_ref().is_some_and(Bytes::is_empty) {
            *body = None;
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Exchange,
    ) -> pingora::Result<()> {
        if response.status == StatusCode::SWITCHING_PROTOCOLS
            && !wire_of(session).is_some_and(StrictStream::accept_upgrade)
        {
            ctx.problem = Some(respond::refusal(no_upgrade("bytes came before the answer to it")));
            return Err(Error::new_str("bytes before the switch of protocols"));
        }
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            // From here on, silence is not a slow body.
            session.as_downstream_mut().set_read_timeout(Some(UPGRADED_IDLE));
        }
        strip(response)
    }

    /// Never a second send: the upstream may have read the first.
    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        _session: &mut Session,
        mut error: Box<Error>,
        _ctx: &mut Exchange,
        _client_reused: bool,
    ) -> Box<Error> {
        error.set_retry(false);
        error
    }

    /// A refused connection sent nothing: the next address of the same name may be tried.
    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Exchange,
        mut error: Box<Error>,
    ) -> Box<Error> {
        error.set_retry(ctx.tries.goes_on(&error));
        error
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, ctx: &mut Exchange) -> FailToProxy {
        ctx.verdict = Verdict::Error;
        let gone = FailToProxy { error_code: 0, can_reuse_downstream: false };
        let begun = session.response_written().is_some_and(|response| !response.status.is_informational());
        if begun {
            return gone;
        }
        let framing = wire_of(session).and_then(|wire| wire.refusal().cloned());
        let answer = match (ctx.problem.take(), framing) {
            (Some(answer), _) => answer,
            (None, Some(refusal)) => {
                ctx.verdict = Verdict::Refuse;
                respond::refusal(refusal)
            }
            (None, None) if *error.esource() == ErrorSource::Downstream => match error.etype {
                // pingora's own rules on `Connection` and authorities; nothing was sent.
                ErrorType::InvalidHTTPHeader => {
                    ctx.verdict = Verdict::Refuse;
                    respond::refusal(not_forwarded())
                }
                _ => return gone,
            },
            (None, None) => failed_answer(error),
        };
        let error_code = answer.status;
        session.as_downstream_mut().set_keepalive(None);
        if let Err(error) = respond::write(session, answer).await {
            tracing::debug!(error = error.etype.as_str(), "an answer could not be written");
        }
        FailToProxy { error_code, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Exchange) {
        if let Some(error) = error {
            // Kinds and sources only: contexts may carry what an agent or an upstream wrote.
            let status = session.response_written().map_or(0, |response| response.status.as_u16());
            let service = ctx.table.as_ref().zip(ctx.service).and_then(|(table, index)| table.set.services.get(index));
            let service = service.map_or("", |service| service.name.as_str());
            tracing::info!(
                service,
                status,
                kind = error.etype.as_str(),
                source = error.esource().as_str(),
                "a request failed"
            );
        }
        self.observe(ctx, ctx.inside);
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Exchange, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Exchange,
        _error: &Error,
        _context: pingora::proxy::ProxyWarnLogContext,
    ) -> bool {
        true
    }

    fn request_summary(&self, session: &Session, _ctx: &Exchange) -> String {
        // Targets and headers may carry secrets (promise 10).
        session.req_header().method.as_str().chars().take(32).collect()
    }
}
