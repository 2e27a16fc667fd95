//! Console sessions and one-time sign-in codes.
//!
//! Owns who is signed in at the console. Sessions live in memory, bounded in number and time: a
//! restart signs everyone out. Only keyed digests of cookies and codes are kept, and both are
//! measured on the clock that nobody can set back.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use http::{HeaderMap, HeaderValue, header};

use crate::base::chance::Chance;
use crate::base::cookie::{CONSOLE, CONSOLE_SECURE};
use crate::base::digest::Digest;
use crate::base::id::Principal;
use crate::base::secret::Secret;
use crate::base::time::BootTime;
use crate::control::caller;
use crate::control::credentials::ApproverEntry;
use crate::control::state::ControlState;
use crate::draft::decision::Channel;
use crate::draft::keys::KeySet;
use crate::guard::who::Approver;

/// How long a session lasts, whatever is done in it.
pub(in crate::control) const SESSION_LIFE: Duration = Duration::from_secs(8 * 3600);

/// How many sessions there may be; the oldest one gives way.
const SESSIONS_MAX: usize = 1_024;

/// How long a sign-in code can be used.
pub(in crate::control) const CODE_LIFE: Duration = Duration::from_secs(2 * 60);

/// How many codes of one approver may be open; that approver's oldest one gives way.
const CODES_PER_APPROVER_MAX: usize = 4;

/// How many codes may be open. Beyond that only an approver's own oldest one gives way, and whoever
/// has none is refused: nobody puts out the code of another.
const CODES_MAX: usize = 32;

/// A person with a live console session.
#[derive(Debug, Clone)]
pub(in crate::control) struct SignedIn {
    /// As the guard knows them.
    pub(in crate::control) who: Approver,
    /// The token that every form of this session carries.
    pub(in crate::control) csrf: Digest,
    /// The session's key, to end it.
    key: Digest,
}

/// A live session.
#[derive(Debug, Clone)]
struct Session {
    approver: Principal,
    /// The token of the approver's entry at sign-in: a changed entry ends the session.
    token_sha256: Digest,
    began: BootTime,
}

/// All live sessions, by the keyed digest of their cookie.
#[derive(Debug, Default)]
pub(in crate::control) struct Sessions(Mutex<HashMap<Digest, Session>>);

impl Sessions {
    /// Begins a session and returns the cookie's value.
    pub(super) fn begin(&self, state: &ControlState, entry: &ApproverEntry) -> Secret {
        let cookie = Secret::new(BASE64URL_NOPAD.encode(&state.chance.bytes32()));
        let key = session_key(&state.keys, &cookie);
        let began = state.clock.boot();
        let session = Session { approver: entry.name.clone(), token_sha256: entry.token_sha256, began };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, session| began.since(session.began) < SESSION_LIFE);
        if all.len() >= SESSIONS_MAX
            && let Some(oldest) = all.iter().min_by_key(|(_, session)| session.began).map(|(key, _)| *key)
        {
            all.remove(&oldest);
        }
        all.insert(key, session);
        cookie
    }

    fn find(&self, key: &Digest, now: BootTime) -> Option<Session> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).filter(|session| now.since(session.began) < SESSION_LIFE).cloned()
    }

    /// Ends one session.
    pub(super) fn end(&self, signed_in: &SignedIn) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&signed_in.key);
    }

    /// Ends every session of an approver.
    pub(in crate::control) fn revoke_all(&self, approver: &Principal) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, session| session.approver != *approver);
    }
}

/// Who is signed in, if anybody: the cookie is known, its time is not over, and the approver is
/// still the one who signed in.
pub(in crate::control) fn signed_in(state: &ControlState, headers: &HeaderMap) -> Option<SignedIn> {
    let cookie = cookie(headers, cookie_name(state))?;
    let key = session_key(&state.keys, &cookie);
    let session = state.sessions.find(&key, state.clock.boot())?;
    let known = state.credentials.load();
    let entry = caller::still_known(&known, &session.approver, &session.token_sha256)?;
    let csrf = state.keys.console_digest("csrf", &[cookie.reveal().as_bytes()]);
    Some(SignedIn { who: caller::approver(entry, "session", Channel::Console), csrf, key })
}

fn session_key(keys: &KeySet, cookie: &Secret) -> Digest {
    keys.console_digest("session", &[cookie.reveal().as_bytes()])
}

/// The `__Host-` prefix binds the cookie to this very host, where browsers take it (https).
fn cookie_name(state: &ControlState) -> &'static str {
    if state.public.is_https() { CONSOLE_SECURE } else { CONSOLE }
}

/// `Set-Cookie` that begins a session.
pub(super) fn set_cookie(state: &ControlState, cookie: &Secret) -> Option<HeaderValue> {
    baked(state, cookie.reveal(), SESSION_LIFE)
}

/// `Set-Cookie` that takes the cookie away.
pub(super) fn clear_cookie(state: &ControlState) -> Option<HeaderValue> {
    baked(state, "", Duration::ZERO)
}

fn baked(state: &ControlState, value: &str, life: Duration) -> Option<HeaderValue> {
    let secure = if state.public.is_https() { "; Secure" } else { "" };
    let name = cookie_name(state);
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}", life.as_secs());
    let mut baked = HeaderValue::try_from(text).ok()?;
    baked.set_sensitive(true);
    Some(baked)
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<Secret> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut found = lines.flat_map(|line| line.split(';')).filter_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then(|| Secret::new(value))
    });
    let first = found.next()?;
    // Two cookies of one name: somebody else's page may have set one of them.
    found.next().is_none().then_some(first)
}

/// A sign-in code that was not used yet.
#[derive(Debug, Clone)]
struct OpenCode {
    approver: Principal,
    /// The token of the approver's entry when it was made: a changed entry voids the code.
    token_sha256: Digest,
    made: BootTime,
}

/// Open sign-in codes, by their keyed digest.
#[derive(Debug, Default)]
pub(in crate::control) struct SignInCodes(Mutex<HashMap<Digest, OpenCode>>);

impl SignInCodes {
    /// Makes a code of 100 random bits, in groups that can be typed. `None` while too many codes of
    /// other approvers are open.
    pub(in crate::control) fn issue(
        &self,
        keys: &KeySet,
        chance: &dyn Chance,
        now: BootTime,
        entry: &ApproverEntry,
    ) -> Option<Secret> {
        let text = BASE32_NOPAD.encode(&chance.bytes16());
        let code = &text[..20];
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, open| now.since(open.made) < CODE_LIFE);
        let own = || open.iter().filter(|(_, open)| open.approver == entry.name);
        let gives_way = own().min_by_key(|(_, open)| open.made).map(|(key, _)| *key);
        let full = own().count() >= CODES_PER_APPROVER_MAX || open.len() >= CODES_MAX;
        if let Some(oldest) = gives_way.filter(|_| full) {
            open.remove(&oldest);
        }
        if open.len() >= CODES_MAX {
            return None;
        }
        let made = OpenCode { approver: entry.name.clone(), token_sha256: entry.token_sha256, made: now };
        open.insert(code_key(keys, code), made);
        let groups: Vec<String> =
            code.as_bytes().chunks(4).map(|four| String::from_utf8_lossy(four).into_owned()).collect();
        Some(Secret::new(groups.join("-")))
    }

    /// Spends a code, however it was typed; whose it was, by name and token.
    pub(super) fn spend(&self, keys: &KeySet, now: BootTime, typed: &Secret) -> Option<(Principal, Digest)> {
        let plain: String = typed.reveal().chars().filter(char::is_ascii_alphanumeric).collect();
        let key = code_key(keys, &plain.to_ascii_uppercase());
        let spent = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key)?;
        (now.since(spent.made) < CODE_LIFE).then_some((spent.approver, spent.token_sha256))
    }
}

fn code_key(keys: &KeySet, code: &str) -> Digest {
    keys.console_digest("sign-in code", &[code.as_bytes()])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::base::chance::SeededChance;
    use crate::base::id::Tenant;

    fn approver(name: &str) -> ApproverEntry {
        ApproverEntry {
            name: Principal::new(name).unwrap(),
            token_sha256: Digest::of(b"hers"),
            roles: Vec::new(),
            tenant: Tenant::new("default").unwrap(),
            rights: None,
        }
    }

    #[test]
    fn a_code_is_used_once_and_within_two_minutes() {
        let chance = SeededChance::new(7);
        let keys = KeySet::ephemeral(&chance);
        let codes = SignInCodes::default();
        let alice = approver("alice");
        let start = BootTime::from_nanos(1);
        let code = codes.issue(&keys, &chance, start, &alice).unwrap();
        assert_eq!(code.reveal().len(), 24);
        assert_eq!(format!("{code:?}"), "***");
        let typed = Secret::new(code.reveal().to_lowercase().replace('-', " "));
        assert_eq!(codes.spend(&keys, start, &Secret::new("AAAA-AAAA-AAAA-AAAA-AAAA")), None);
        assert_eq!(codes.spend(&keys, start, &typed), Some((alice.name.clone(), alice.token_sha256)));
        assert_eq!(codes.spend(&keys, start, &typed), None, "one use");
        let late = codes.issue(&keys, &chance, start, &alice).unwrap();
        assert_eq!(codes.spend(&keys, start + CODE_LIFE, &late), None, "two minutes");
    }

    #[test]
    fn an_approver_puts_out_no_code_but_their_own_oldest() {
        let chance = SeededChance::new(7);
        let keys = KeySet::ephemeral(&chance);
        let codes = SignInCodes::default();
        let (alice, bob) = (approver("alice"), approver("bob"));
        let at = BootTime::from_nanos;
        let of_bob = codes.issue(&keys, &chance, at(1), &bob).unwrap();
        let of_alice: Vec<Secret> = (2..102).map(|n| codes.issue(&keys, &chance, at(n), &alice).unwrap()).collect();
        assert_eq!(codes.0.lock().unwrap().len(), 1 + CODES_PER_APPROVER_MAX);
        let works: Vec<bool> = of_alice.iter().map(|code| codes.spend(&keys, at(200), code).is_some()).collect();
        let newest = works.len() - CODES_PER_APPROVER_MAX;
        assert!(works[..newest].iter().all(|works| !works) && works[newest..].iter().all(|works| *works), "{works:?}");
        assert!(codes.spend(&keys, at(200), &of_bob).is_some(), "another's code was put out");
    }

    #[test]
    fn open_codes_are_bounded_and_one_more_is_refused() {
        let chance = SeededChance::new(7);
        let keys = KeySet::ephemeral(&chance);
        let codes = SignInCodes::default();
        let start = BootTime::from_nanos(1);
        let all: Vec<Secret> = (0..CODES_MAX)
            .map(|n| {
                codes.issue(&keys, &chance, start, &approver(&format!("a{}", n / CODES_PER_APPROVER_MAX))).unwrap()
            })
            .collect();
        assert_eq!(codes.issue(&keys, &chance, start, &approver("late")), None);
        assert!(codes.issue(&keys, &chance, start, &approver("a0")).is_some(), "their own oldest gives way");
        assert_eq!(codes.0.lock().unwrap().len(), CODES_MAX);
        assert!(all[CODES_PER_APPROVER_MAX..].iter().all(|code| codes.spend(&keys, start, code).is_some()));
        assert!(codes.issue(&keys, &chance, start, &approver("late")).is_some(), "there is room again");
        let after = start + CODE_LIFE;
        assert!(codes.issue(&keys, &chance, after, &approver("later")).is_some());
        assert_eq!(codes.0.lock().unwrap().len(), 1, "what is over takes no room");
    }

    #[test]
    fn two_cookies_of_one_name_are_none() {
        let mut map = HeaderMap::new();
        map.append(header::COOKIE, "a=1; countersign=x".parse().unwrap());
        assert_eq!(cookie(&map, "countersign"), Some(Secret::new("x")));
        map.append(header::COOKIE, "countersign=y".parse().unwrap());
        assert_eq!(cookie(&map, "countersign"), None);
    }
}
