//! A browser without JavaScript: follows redirects, keeps cookies, fills in forms.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::wire::{Request, Response, exchange};

/// A form of a page: where it goes and what its fields hold.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) action: String,
    pub(crate) method: String,
    pub(crate) fields: BTreeMap<String, String>,
    /// Names of the fields that a person fills in.
    pub(crate) typed: Vec<String>,
}

impl Form {
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.fields.remove(name);
        self
    }

    fn encoded(&self) -> String {
        let pairs = self.fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        pairs.collect::<Vec<_>>().join("&")
    }
}

/// One person's browser at the console.
#[derive(Debug, Clone)]
pub(crate) struct Browser {
    address: SocketAddr,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, cookies: BTreeMap::new() }
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn cookie_header(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    /// Opens a page and follows redirects.
    #[track_caller]
    pub(crate) fn open(&mut self, path: &str) -> Response {
        let response = self.fetch(Request::get(path));
        self.follow(response)
    }

    /// Submits a form as a browser does, with `Origin`.
    #[track_caller]
    pub(crate) fn submit(&mut self, form: &Form) -> Response {
        let response = self.fetch(self.form_request(form).header("Origin", &self.origin()));
        self.follow(response)
    }

    /// The request that submits a form, without `Origin` and cookies.
    pub(crate) fn form_request(&self, form: &Form) -> Request {
        assert_eq!(form.method, "post", "forms that change something are posted: {form:?}");
        Request::post(&form.action).body("application/x-www-form-urlencoded", form.encoded())
    }

    /// Sends a request with the cookies and keeps those that come back.
    #[track_caller]
    pub(crate) fn fetch(&mut self, request: Request) -> Response {
        let request = if self.cookies.is_empty() { request } else { request.header("Cookie", &self.cookie_header()) };
        let response = exchange(self.address, &request);
        for (name, value) in &response.headers {
            if name.eq_ignore_ascii_case("Set-Cookie")
                && let Some((name, value)) = value.split(';').next().unwrap_or_default().split_once('=')
            {
                if value.is_empty() {
                    self.cookies.remove(name);
                } else {
                    self.cookies.insert(name.to_owned(), value.to_owned());
                }
            }
        }
        response
    }

    #[track_caller]
    fn follow(&mut self, mut response: Response) -> Response {
        for _ in 0..5 {
            if !(300..400).contains(&response.status) {
                return response;
            }
            let location = response.header("Location").expect("a redirect says where to").to_owned();
            let path = location.strip_prefix(&self.origin()).unwrap_or(&location).to_owned();
            assert!(path.starts_with('/'), "redirected elsewhere: {location}");
            response = self.fetch(Request::get(&path));
        }
        panic!("redirected without end");
    }

    /// Signs in with an approver's token.
    #[track_caller]
    pub(crate) fn sign_in(&mut self, token: &str) -> Response {
        self.sign_in_by("token", token)
    }

    /// Signs in with the code of a one-time link, typed in.
    #[track_caller]
    pub(crate) fn sign_in_with_code(&mut self, code: &str) -> Response {
        self.sign_in_by("code", code)
    }

    #[track_caller]
    fn sign_in_by(&mut self, field: &str, secret: &str) -> Response {
        let page = self.open("/sign-in");
        let form = forms(&page.text()).into_iter().find(|form| form.typed.iter().any(|typed| typed == field));
        let form = form.unwrap_or_else(|| panic!("no form with {field:?}: {}", page.text()));
        self.submit(&form.with(field, secret))
    }
}

/// All forms of a page.
pub(crate) fn forms(html: &str) -> Vec<Form> {
    let mut found = Vec::new();
    for part in html.split("<form").skip(1) {
        let (head, rest) = part.split_once('>').unwrap_or((part, ""));
        let inner = rest.split("</form").next().unwrap_or_default();
        let mut form = Form {
            action: attribute(head, "action").unwrap_or_default(),
            method: attribute(head, "method").unwrap_or_else(|| "get".to_owned()).to_ascii_lowercase(),
            fields: BTreeMap::new(),
            typed: Vec::new(),
        };
        for tag in inner.split('<') {
            let kind = tag.split([' ', '>', '/', '\n']).next().unwrap_or_default();
            let Some(name) = attribute(tag.split('>').next().unwrap_or_default(), "name") else { continue };
            match (kind, attribute(tag, "type").as_deref()) {
                ("input", Some("hidden")) => {
                    form.fields.insert(name, attribute(tag, "value").unwrap_or_default());
                }
                ("input", Some("radio" | "checkbox" | "submit")) | ("button" | "select", _) => {}
                ("input" | "textarea", _) => {
                    form.fields.insert(name.clone(), String::new());
                    form.typed.push(name);
                }
                _ => {}
            }
        }
        found.push(form);
    }
    found
}

/// The form of a page whose action ends so.
#[track_caller]
pub(crate) fn form_to(html: &str, end: &str) -> Form {
    let all = forms(html);
    match all.iter().find(|form| form.action.ends_with(end)) {
        Some(form) => form.clone(),
        None => panic!("no form to {end:?} among {all:?} in {html}"),
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let quoted = tag.split(&format!("{name}=\"")).nth(1)?;
    Some(decode(quoted.split('"').next().unwrap_or_default()))
}

fn decode(text: &str) -> String {
    text.replace("&#x2f;", "/")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
