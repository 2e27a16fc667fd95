//! What is in force: the registry, the services and tools, and the state of the policy files.
//!
//! Shows names, paths and states. Must never show an upstream's credential or an injected header.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Value, json};

use crate::base::refusal::FieldError;
use crate::guard::problem::Problem;
use crate::policy::diagnostic::{Diagnostic, Severity};
use crate::policy::model::{Capability, CapabilityStatus, Service, Tool};

use super::asked::Asked;
use super::closed::Closed;
use super::reply;
use super::state::{NotTaken, PolicyReport};

/// `GET /v1/capabilities`
pub(super) async fn capabilities(asked: Asked) -> Response {
    let set = asked.state.desk.policies();
    let lines: Vec<Value> = set
        .services
        .iter()
        .flat_map(|service| service.capabilities.iter().map(move |capability| line(service, capability)))
        .collect();
    reply::json(200, &json!({"version": set.version, "capabilities": lines}))
}

fn line(service: &Service, capability: &Capability) -> Value {
    let status = match capability.status {
        CapabilityStatus::Enabled => "enabled",
        CapabilityStatus::Planned => "planned",
        CapabilityStatus::Forbidden => "forbidden",
    };
    json!({
        "id": capability.id, "service": service.name, "status": status, "tool": capability.tool,
        "operation": capability.operation, "risk": capability.risk, "confirm": capability.confirm,
        "guidance": capability.guidance,
    })
}

/// `GET /v1/policies`
pub(super) async fn show(asked: Asked) -> Response {
    let set = asked.state.desk.policies();
    let report = asked.state.policy_status.report();
    let services: Vec<Value> = set.services.iter().map(service).collect();
    reply::json(
        200,
        &json!({
            "version": set.version, "loaded_at": report.loaded_at, "files": report.files,
            "last_error": report.last_error, "services": services,
        }),
    )
}

fn service(service: &Service) -> Value {
    let upstream = &service.upstream;
    let scheme = if upstream.tls { "https" } else { "http" };
    let host = if upstream.host.contains(':') { format!("[{}]", upstream.host) } else { upstream.host.clone() };
    json!({
        "name": service.name,
        "hosts": service.route.hosts,
        "path_prefix": service.route.path_prefix,
        "upstream": format!("{scheme}://{host}:{}{}", upstream.port, upstream.base_path),
        "read_only": upstream.read_only,
        "unmatched": {
            "read": if service.unmatched.read_passes { "pass" } else { "refuse" },
            "write": if service.unmatched.write_held { "hold" } else { "refuse" },
        },
        "tools": service.tools.iter().map(tool).collect::<Vec<_>>(),
    })
}

fn tool(tool: &Tool) -> Value {
    json!({
        "name": tool.name, "effect": tool.effect, "capability": tool.capability, "risk": tool.risk,
        "confirm": tool.confirm, "methods": tool.matches.methods, "ttl_ms": tool.ttl.as_millis() as u64,
        "held_status": tool.held_status,
    })
}

/// `POST /v1/policies/reload`
pub(super) async fn reload(asked: Asked) -> Response {
    reply::json_or_problem(try_reload(&asked).await)
}

async fn try_reload(asked: &Asked) -> Result<PolicyReport, Problem> {
    Closed::read(asked.headers(), &asked.body)?.finish()?;
    let status = Arc::clone(&asked.state.policy_status);
    let reloaded = tokio::task::spawn_blocking(move || status.reload()).await;
    let broken = || Err(NotTaken::Unreadable("the reload broke off; the guard's log says why".to_owned()));
    let result = reloaded.unwrap_or_else(|_| broken());
    result.map_err(|why| not_taken(&why).with("version", &asked.state.desk.policies().version))
}

/// Every mistake by itself: in `errors` for whoever reads problems, in `diagnostics` as
/// `countersign check --json` prints them.
fn not_taken(why: &NotTaken) -> Problem {
    let (errors, diagnostics) = match why {
        NotTaken::Unreadable(text) => (vec![text.clone()], &[][..]),
        NotTaken::Mistakes(all) => {
            let errors = all.iter().filter(|found| found.severity == Severity::Error);
            (errors.map(Diagnostic::line).collect(), all.as_slice())
        }
    };
    let errors = errors.into_iter().map(|reason| FieldError { pointer: String::new(), reason });
    let mut problem = reply::invalid_all(errors.collect());
    problem.detail = "The policy files were not taken; the last good set stays in force. See `errors`.".to_owned();
    problem.with("diagnostics", &diagnostics)
}
