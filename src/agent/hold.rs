//! A write on its way to the guard: its body, its args, who asks.
//!
//! Owns the reading of what a proposal is made of. Must never send anything and never decide
//! whether the call may be held: the guard does. The future is not cancelled when the client hangs
//! up, so a draft that is stored is stored whole.

use std::sync::Arc;
use std::time::Instant;

use pingora::proxy::Session;

use crate::base::refusal::Refusal;
use crate::call::args::{BodyLimits, understand};
use crate::call::head::Head;
use crate::call::idempotency::idempotency_key;
use crate::guard::Proposal;
use crate::guard::answer::Answer;
use crate::policy::judge::Selection;
use crate::policy::model::Service;

use super::correlation::{request_id, traceparent};
use super::credential::Agent;
use super::held;
use super::identity::Said;
use super::lanes::Table;
use super::observe::Verdict;
use super::proxy::{AgentProxy, Exchange};

impl AgentProxy {
    /// Reads a write, understands it, and has it held.
    /// # Errors
    ///
    /// The refusal to answer; nothing is held.
    pub(super) async fn hold(
        &self,
        session: &mut Session,
        ctx: &mut Exchange,
        table: &Table,
        (service, selection, agent, head): (&Service, Selection<'_>, Arc<Agent>, Head<'static>),
    ) -> Result<Answer, Refusal> {
        let (tool, params) = match &selection {
            Selection::Tool(tool, params) => (Some(*tool), params.as_slice()),
            Selection::Capability(_) | Selection::UnmatchedRead | Selection::UnmatchedWrite => (None, &[][..]),
        };
        if let Some(tool) = tool
            && head.announces_body()
        {
            tool.check_media_type(&head.headers)?;
        }
        let said = tool.map_or(service.body_bytes_max, |tool| tool.body_bytes_max);
        let bytes_max = said.unwrap_or(self.body_bytes_max);
        let identity_headers = self.own_headers(service, &agent, &head)?;
        let idempotency_key = idempotency_key(&head.headers)?.map(|key| key.as_str().to_owned());
        let waiting = Instant::now();
        let body = held::read(session, &head, bytes_max, self.body_deadline, &self.held).await;
        ctx.waited = waiting.elapsed();
        let body = body?;
        let request_id = request_id(&head.headers, self.chance.as_ref());
        let traceparent = traceparent(&head.headers);
        let call = understand(head, body.bytes, params, &BodyLimits { body_bytes_max: bytes_max }, true)?;
        let said = Said { params, args: &call.args.values, rules: tool.and_then(|tool| tool.args.as_ref()) };
        let identity = self.rules.identity(&agent, &call.head.headers, Some(said))?;
        let proposal = Proposal {
            policies: &table.set,
            service,
            selection,
            call,
            identity,
            idempotency_key,
            request_id,
            traceparent,
            identity_headers: &identity_headers,
            ttl_max: None,
        };
        let answer = self.guard.hold(proposal).await;
        drop(body.share);
        Ok(answer)
    }
}

/// A held call and an answer from an earlier draft both name their draft.
pub(super) fn verdict_of(answer: &Answer) -> Verdict {
    let names_draft = answer.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("countersign-draft"));
    match answer.status {
        _ if names_draft => Verdict::Hold,
        500.. => Verdict::Error,
        _ => Verdict::Refuse,
    }
}
