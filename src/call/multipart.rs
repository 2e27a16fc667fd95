//! `multipart/form-data` bodies (RFC 7578) as names and values.
//!
//! Owns a strict reader of a body that is whole in memory: what lenient readers skip (preambles,
//! epilogues, padding, folded or doubled part headers, doubled parameters, extended names) is
//! refused, because the upstream may read it otherwise. Must never write a file.

use serde_json::{Value, json};

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::refusal::Refusal;

use super::media::{ContentType, is_token, parameters, unsupported};

/// How many parts a body may have.
pub const PARTS_MAX: usize = 1_000;
/// How long the head of one part may be, in bytes.
pub const PART_HEAD_BYTES_MAX: usize = 8 * 1024;

/// The parts of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// Names and values in order. A field is a string; a file is an object of `name`, `type`,
    /// `length` and `sha256`, so that the args stand for its content and the boundary for nothing.
    pub fields: Vec<(String, Value)>,
    /// Whether a part says something that its value does not show (another type of text, headers
    /// beyond the usual): then the envelope has to bind the body's own digest.
    pub body_bound: bool,
}

/// Reads all parts.
///
/// # Errors
///
/// `BODY_MALFORMED` for everything that is not exactly parts between boundaries,
/// `MEDIA_TYPE_UNSUPPORTED` for a field in another charset than UTF-8 or a transfer encoding that
/// has to be decoded.
pub fn parse(body: &[u8], boundary: &str) -> Result<Parts, Refusal> {
    let opening = format!("--{boundary}");
    let between = memchr::memmem::Finder::new(format!("\r\n--{boundary}").as_bytes()).into_owned();
    let body = body.strip_prefix(b"\r\n").unwrap_or(body);
    let mut rest =
        body.strip_prefix(opening.as_bytes()).ok_or_else(|| malformed("it does not begin with its boundary"))?;
    let mut parts = Parts { fields: Vec::new(), body_bound: false };
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            return match end {
                b"" | b"\r\n" => Ok(parts),
                _ => Err(malformed("something follows after its last boundary")),
            };
        }
        let part = rest.strip_prefix(b"\r\n").ok_or_else(|| malformed("something stands on the line of a boundary"))?;
        if parts.fields.len() == PARTS_MAX {
            return Err(malformed("it has more than 1,000 parts"));
        }
        let head_end = memchr::memmem::find(part, b"\r\n\r\n").ok_or_else(|| malformed("a part has no content"))?;
        if head_end > PART_HEAD_BYTES_MAX {
            return Err(malformed("the head of a part is too long"));
        }
        let head = PartHead::read(&part[..head_end])?;
        let content = &part[head_end + 4..];
        let end = between.find(content).ok_or_else(|| malformed("it ends in the middle of a part"))?;
        let (value, plain) = head.value(&content[..end])?;
        parts.body_bound |= !plain;
        parts.fields.push((head.name, value));
        rest = &content[end + between.needle().len()..];
    }
}

fn malformed(why: &str) -> Refusal {
    Refusal::new(Code::BodyMalformed, format!("The multipart body could be read in two ways: {why}. Nothing was sent."))
}

struct PartHead {
    name: String,
    file_name: Option<String>,
    content_type: Option<String>,
    length: Option<String>,
    /// Whether there were headers beyond the usual.
    others: bool,
}

impl PartHead {
    fn read(head: &[u8]) -> Result<Self, Refusal> {
        let head = std::str::from_utf8(head).map_err(|_| malformed("the head of a part is not UTF-8"))?;
        let mut read = Self { name: String::new(), file_name: None, content_type: None, length: None, others: false };
        let mut seen: Vec<String> = Vec::new();
        for line in head.split("\r\n") {
            let (name, value) =
                line.split_once(':').ok_or_else(|| malformed("a line in the head of a part has no colon"))?;
            let value = value.trim_matches([' ', '\t']);
            if !is_token(name) || value.chars().any(|character| character.is_control() && character != '\t') {
                return Err(malformed("a line in the head of a part is folded or has characters that no header has"));
            }
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "content-disposition" => read.take_disposition(value)?,
                "content-type" => read.content_type = Some(value.to_owned()),
                "content-length" => read.length = Some(value.to_owned()),
                "content-transfer-encoding" => check_transfer_encoding(value)?,
                _ => read.others = true,
            }
            if seen.contains(&name) {
                return Err(malformed("a header stands twice in the head of a part"));
            }
            seen.push(name);
        }
        if seen.iter().any(|name| name == "content-disposition") {
            Ok(read)
        } else {
            Err(malformed("a part has no name"))
        }
    }

    fn take_disposition(&mut self, value: &str) -> Result<(), Refusal> {
        let (kind, rest) = value.split_at(value.find(';').unwrap_or(value.len()));
        if !kind.trim_ascii().eq_ignore_ascii_case("form-data") {
            return Err(malformed("a part is not `form-data`"));
        }
        let mut name = None;
        for (parameter, value) in parameters(rest).map_err(|why| malformed(&format!("`Content-Disposition` {why}")))? {
            match parameter.as_str() {
                "name" => name = Some(value),
                "filename" => self.file_name = Some(value),
                _ => return Err(malformed("`Content-Disposition` has a parameter besides `name` and `filename`")),
            }
        }
        self.name = name.ok_or_else(|| malformed("a part has no name"))?;
        Ok(())
    }

    /// The value of the part, and whether it shows everything that the part says.
    fn value(&self, content: &[u8]) -> Result<(Value, bool), Refusal> {
        if self.length.as_ref().is_some_and(|length| *length != content.len().to_string()) {
            return Err(malformed("the `Content-Length` of a part is wrong"));
        }
        let kind = self.content_type.as_deref().map(ContentType::parse).transpose();
        let kind = kind.map_err(|why| malformed(&format!("the `Content-Type` of a part {why}")))?;
        let is_text =
            kind.as_ref().is_none_or(|kind| kind.essence.starts_with("text/") || kind.essence.ends_with("json"));
        if self.file_name.is_some() || !is_text {
            let file = json!({
                "name": self.file_name, "type": self.content_type, "length": content.len(),
                "sha256": Digest::of(content),
            });
            return Ok((file, !self.others));
        }
        if !kind.as_ref().is_none_or(ContentType::is_utf8) {
            return Err(unsupported("a field of it is in another charset than UTF-8"));
        }
        let text = std::str::from_utf8(content).map_err(|_| malformed("a field of it is not valid UTF-8"))?;
        let plain = kind.is_none_or(|kind| kind.essence == "text/plain");
        Ok((Value::String(text.to_owned()), plain && !self.others))
    }
}

fn check_transfer_encoding(value: &str) -> Result<(), Refusal> {
    if ["7bit", "8bit", "binary"].iter().any(|known| value.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    Err(unsupported("a part of it has a transfer encoding that some servers decode and some do not"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const NAME: &str = "Content-Disposition: form-data; name=\"a\"";

    fn read(body: &str) -> Result<Parts, Code> {
        parse(body.replace('\n', "\r\n").as_bytes(), "B").map_err(|refusal| refusal.code)
    }

    fn one(head: &str, content: &str) -> Result<Parts, Code> {
        read(&format!("--B\n{head}\n\n{content}\n--B--\n"))
    }

    #[test]
    fn fields_and_files() {
        let body = "--B\nContent-Disposition: form-data; name=\"t\"\n\n待办\n--B\n\
            content-disposition: form-data; name=f; filename=\"x.txt\"\nContent-Type: text/plain\n\nabc\n--B\n\
            Content-Disposition: form-data; name=\"t\"\nContent-Type: text/plain; charset=UTF-8\n\n\n--B--";
        let parts = read(body).unwrap();
        let file = json!({"name": "x.txt", "type": "text/plain", "length": 3, "sha256": Digest::of(b"abc")});
        assert_eq!(parts.fields, [("t".into(), json!("待办")), ("f".into(), file), ("t".into(), json!(""))]);
        assert!(!parts.body_bound);
        assert_eq!(read("--B--").unwrap().fields, []);
    }

    #[test]
    fn p2_the_boundary_does_not_matter_and_every_byte_of_a_file_does() {
        let body = |boundary: &str, content: &str| {
            format!("--{boundary}\r\n{NAME}; filename=\"f\"\r\n\r\n{content}\r\n--{boundary}--\r\n")
        };
        let first = parse(body("one", "abc").as_bytes(), "one").unwrap();
        assert_eq!(first, parse(body("two", "abc").as_bytes(), "two").unwrap());
        assert_ne!(first, parse(body("one", "abd").as_bytes(), "one").unwrap());
    }

    #[test]
    fn what_the_value_does_not_show_binds_the_body() {
        for head in ["Content-Type: application/json", "Content-Type: text/html", "X-Tag: 1"] {
            assert!(one(&format!("{NAME}\n{head}"), "{}").unwrap().body_bound, "{head}");
        }
        for head in ["Content-Length: 2", "Content-Transfer-Encoding: binary", "Content-Type: text/plain"] {
            assert!(!one(&format!("{NAME}\n{head}"), "{}").unwrap().body_bound, "{head}");
        }
        let blob = one(&format!("{NAME}\nContent-Type: image/png"), "x").unwrap();
        assert_eq!(blob.fields[0].1["name"], Value::Null);
    }

    #[test]
    fn lenient_readers_would_differ_so_it_is_refused() {
        for body in [
            "",
            "B",
            "--B",
            "--B\n",
            "--C\n",
            "preamble\n--B--",
            "--B--\nepilogue",
            "--B-",
            "--B --",
            "--B \nx",
            "--B\n--B--",
            "--B\n\n\n--B--",
            "--B\nno colon\n\nx\n--B--",
            "--B\nContent-Disposition: form-data; name=\"a\"\n\nx",
            "--B\nContent-Disposition: form-data; name=\"a\"\n\nx\n--BX\n",
            "--B\nContent-Disposition: form-data; name=\"a\"\n\nx\n--B\n",
        ] {
            assert_eq!(read(body), Err(Code::BodyMalformed), "{body}");
        }
        for head in [
            "Content-Disposition: form-data",
            "Content-Disposition: attachment; name=\"a\"",
            "Content-Disposition: form-data; name=\"a\"; filename=\"x.sh\"; name=\"b\"",
            "Content-Disposition: form-data; name=\"a\"; filename*=utf-8''x",
            "Content-Disposition: form-data; name*=utf-8''a",
            "Content-Disposition: form-data; name=\"a\\\"; filename=\\\"x\"",
            "Content-Disposition: form-data; name=\"a",
            "Content-Disposition: form-data; name=\"a\\b\"",
            "Content-Disposition: form-data; name=\"a\"\nContent-Disposition: form-data; name=\"b\"",
            "Content-Disposition: form-data;\n name=\"a\"",
            "Content-Disposition : form-data; name=\"a\"",
            "Content-Disposition: form-data; name=\"a\"\nX: a\u{0}b",
            "Content-Disposition: form-data; name=\"a\"\nContent-Length: 7",
            "Content-Disposition: form-data; name=\"a\"\nContent-Type: plain",
        ] {
            assert_eq!(one(head, "x"), Err(Code::BodyMalformed), "{head}");
        }
        for line in [
            "Content-Transfer-Encoding: base64",
            "Content-Transfer-Encoding: quoted-printable",
            "Content-Type: text/plain; charset=utf-7",
        ] {
            assert_eq!(one(&format!("{NAME}\n{line}"), "x"), Err(Code::MediaTypeUnsupported), "{line}");
        }
        let bare = parse(b"--B\nContent-Disposition: form-data; name=a\n\nx\n--B--", "B");
        assert_eq!(bare.unwrap_err().code, Code::BodyMalformed);
        let not_utf8 = [b"--B\r\n", NAME.as_bytes(), b"\r\n\r\n\xff\r\n--B--"].concat();
        assert_eq!(parse(&not_utf8, "B").unwrap_err().code, Code::BodyMalformed);
        let bare_cr = format!("--B\r\n{NAME}\rX: y\r\n\r\nx\r\n--B--");
        assert_eq!(parse(bare_cr.as_bytes(), "B").unwrap_err().code, Code::BodyMalformed);
        let long = format!("{NAME}\nX: {}", "y".repeat(PART_HEAD_BYTES_MAX));
        assert_eq!(one(&long, "x"), Err(Code::BodyMalformed));
        let many = format!("--B\n{}--B--", format!("{NAME}\n\nx\n--B\n").repeat(PARTS_MAX + 1));
        assert_eq!(read(&many), Err(Code::BodyMalformed));
    }
}
