//! Calls judged by whole policies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cards;
mod named;
mod outbound;
mod prepare;
mod recheck;
mod select;
mod verdict;

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::base::refusal::Refusal;
use crate::call::args::{BodyLimits, Call, understand};
use crate::call::head::{Form, Head, Present};
use crate::call::path::NormalPath;
use crate::draft::record::{Identity, sample};

use super::diagnostic::report;
use super::judge::{Prepared, Selection, judge};
use super::load::{Source, load};
use super::model::{PolicySet, Service};
use super::read::Substitutions;

/// A machine on which little is set, and no file can be read.
pub(crate) struct Surroundings;

impl Substitutions for Surroundings {
    fn env(&self, name: &str) -> Result<String, String> {
        match name {
            "LIGHTNOTE_URL" => Ok("http://127.0.0.1:8080".into()),
            "TOKEN" => Ok("hunter2".into()),
            _ => Err("is not set".into()),
        }
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Err("cannot be read".into())
    }
}

/// The policy file `text`, which has no mistake.
pub(crate) fn set(text: &str) -> PolicySet {
    let source = Source { name: "policy.yaml".into(), text: text.into() };
    load(&[source], &Surroundings).unwrap_or_else(|found| panic!("{}", report(&found))).set
}

pub(super) fn lightnote() -> PolicySet {
    set(include_str!("../../../policies/lightnote.yaml"))
}

/// A policy with one write tool `t` on `POST /t`; `tool` are its further lines, indented by four.
pub(super) fn with_tool(upstream: &str, matches: &str, tool: &str) -> PolicySet {
    set(&format!(
        "version: 1\nservice: s\nupstream: {{url: 'http://up.example/base'{upstream}}}\ncapabilities:\n  - {{id: c, status: enabled, tool: t, risk: low}}\ntools:\n  - name: t\n    match: {matches}\n    effect: write\n{tool}"
    ))
}

pub(super) fn who() -> Identity {
    Identity { role: Some("user".into()), ..sample::identity("u1") }
}

pub(super) fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> Head<'static> {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query.to_owned())));
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    Head {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        host: "guard.example".into(),
        port: None,
        path: NormalPath::lift(path).unwrap(),
        query,
        present: Present::default(),
        headers: Cow::Owned(map),
        form: Form::Origin,
        expects_continue: false,
        upgrade: None,
    }
}

pub(super) fn understood(service: &Service, head: Head<'static>, body: &[u8]) -> Result<Call, Refusal> {
    let (params, limits) = match service.select(&head) {
        Selection::Tool(tool, params) => (params, tool.body_bytes_max),
        _ => (Vec::new(), service.body_bytes_max),
    };
    understand(
        head,
        Bytes::copy_from_slice(body),
        &params,
        &BodyLimits { body_bytes_max: limits.unwrap_or(1 << 20) },
        true,
    )
}

pub(super) fn judged(set: &PolicySet, head: Head<'static>, body: &[u8], who: &Identity) -> Result<Prepared, Refusal> {
    let service = &set.services[0];
    let selection = service.select(&head);
    let call = understood(service, head.clone(), body)?;
    judge(service, &selection, call, who, &[HeaderName::from_static("x-user-id")])
}

pub(super) const JSON: (&str, &str) = ("Content-Type", "application/json");

pub(super) fn json(set: &PolicySet, method: &str, target: &str, body: &str) -> Result<Prepared, Refusal> {
    judged(set, head(method, target, &[JSON]), body.as_bytes(), &who())
}
