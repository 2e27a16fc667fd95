//! Which roles callers can have, as far as a configuration says: a tool that asks for another one
//! can be asked for by nobody.
//!
//! Owns that one question. Must never decide about a call: who asks is judged at every call.

use super::read::File;
use super::yaml::Place;

/// The roles that callers can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roles {
    /// Any: they come with the request, or nothing is known of them.
    Any,
    /// Only these; none where the configuration does not say where a role comes from.
    Only(Vec<String>),
}

impl Roles {
    /// Warns where no caller can have a role that `allow` names.
    pub(super) fn check(&self, file: &File<'_>, tool: &str, allowed: &[String], place: Place) {
        let Self::Only(known) = self else { return };
        if allowed.is_empty() || allowed.iter().any(|role| known.contains(role)) {
            return;
        }
        // The roles themselves may come from the environment, so they are not named.
        let why = if known.is_empty() {
            "the configuration does not say where a caller's role comes from"
        } else {
            "the configuration gives callers other ones"
        };
        file.warn(
            place,
            format!("nobody can ask for `{tool}`: `allow` names roles, and {why}"),
            "write `role: header:X-Role`, `role: agent` or `role: const:NAME` under `identity:` in the configuration, \
             or take `allow` out",
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::load::{Source, load_for};
    use super::super::tests::Surroundings;
    use super::*;

    const POLICY: &str = "version: 1
service: notes
upstream: {url: \"http://127.0.0.1:9\"}
capabilities:
  - {id: todo.create, status: enabled, tool: create_todo, risk: low}
tools:
  - name: create_todo
    match: {method: POST, path: /todos}
    effect: write
    allow: {roles: [user, admin]}
  - name: todos
    match: {method: GET, path: /todos}
    effect: read
    allow: {roles: [user]}
";

    fn warnings(roles: &Roles) -> Vec<String> {
        let source = Source { name: "notes.yaml".to_owned(), text: POLICY.to_owned() };
        load_for(&[source], &Surroundings, roles).unwrap().warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_role_that_no_caller_can_have_is_a_warning_with_its_place() {
        insta::assert_snapshot!(warnings(&Roles::Only(Vec::new())).join("\n"));
        let only = |role: &str| Roles::Only(vec![role.to_owned()]);
        let (of_admin, of_other) = (warnings(&only("admin")), warnings(&only("support-bot")));
        assert_eq!((of_admin.len(), of_other.len()), (1, 2));
        assert!(of_admin[0].starts_with("notes.yaml:14:"), "{of_admin:?}");
        assert!(of_other[0].contains("other ones") && !of_other[0].contains("support-bot"), "{of_other:?}");
    }

    #[test]
    fn what_may_be_any_role_is_no_warning() {
        assert_eq!(warnings(&Roles::Any), Vec::<String>::new());
        assert_eq!(warnings(&Roles::Only(vec!["user".to_owned()])), Vec::<String>::new());
    }
}
