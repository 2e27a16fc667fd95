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
        let request_id = self.request_id(&head);
        let traceparent = traceparent(&head);
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
        };
        let answer = self.guard.hold(proposal).await;
        drop(body.share);
        Ok(answer)
    }

    fn request_id(&self, head: &Head<'_>) -> String {
        let sent = head.headers.get("x-request-id").and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
        let usable = sent.filter(|id| !id.is_empty() && id.len() <= 255 && !id.chars().any(char::is_control));
        usable.map_or_else(|| format!("rq_{}", data_encoding::HEXLOWER.encode(&self.chance.bytes16())), str::to_owned)
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

/// `traceparent` where it is one (W3C Trace Context, version 00).
fn traceparent(head: &Head<'_>) -> Option<String> {
    let mut values = head.headers.get_all("traceparent").iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let text = value.to_str().ok()?;
    let mut parts =
        text.split('-').map(|part| (part.len(), part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))));
    let well_formed =
        [2, 32, 16, 2].into_iter().all(|length| parts.next() == Some((length, true))) && parts.next().is_none();
    (well_formed && !text.starts_with("ff")).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderMap;

    use super::*;

    #[test]
    fn only_a_well_formed_trace_context_goes_on() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "t".parse().unwrap());
            for value in values {
                headers.append("traceparent", value.parse().unwrap());
            }
            traceparent(&Head::read("POST", b"/", false, &headers).unwrap())
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(read(&[good]).as_deref(), Some(good));
        for bad in [&[][..], &[""], &[good, good], &["00-x-y-01"], &[&good.to_uppercase()], &[&format!("{good}-more")]]
        {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
