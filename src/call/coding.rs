//! Content codings of request bodies.
//!
//! Owns the bounded decoding of a body for its args. Must never change what is sent: the coded
//! bytes go upstream as they came.

use std::io::{BufRead, Read};

use bytes::Bytes;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

use crate::base::code::Code;
use crate::base::refusal::Refusal;

use super::media::unsupported;

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Not at all.
    Identity,
    /// `gzip` or `x-gzip` (RFC 1952), one or more members.
    Gzip,
    /// `deflate`, which is the zlib format (RFC 9110 section 8.4.1.2).
    Deflate,
}

impl Coding {
    /// Reads `Content-Encoding`.
    ///
    /// # Errors
    ///
    /// `MEDIA_TYPE_UNSUPPORTED` for any other coding, and for more than one.
    pub fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut coding = Self::Identity;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            for word in value.as_bytes().split(|byte| *byte == b',') {
                let read = match word.trim_ascii().to_ascii_lowercase().as_slice() {
                    b"identity" => continue,
                    b"gzip" | b"x-gzip" => Self::Gzip,
                    b"deflate" => Self::Deflate,
                    _ => return Err(unsupported("its content coding is none of gzip, deflate and identity")),
                };
                if coding != Self::Identity {
                    return Err(unsupported("it is coded more than once"));
                }
                coding = read;
            }
        }
        Ok(coding)
    }

    /// The body without its coding, at most `bytes_max` long.
    ///
    /// # Errors
    ///
    /// `MEDIA_TYPE_UNSUPPORTED` if the bytes are not what the coding says, to the last one;
    /// `BODY_TOO_LARGE` if the result is longer than `bytes_max`.
    pub fn decode(self, body: &Bytes, bytes_max: usize) -> Result<Bytes, Refusal> {
        match self {
            Self::Identity => Ok(body.clone()),
            Self::Gzip => read_all(MultiGzDecoder::new(&body[..]), bytes_max),
            Self::Deflate => {
                let mut decoder = ZlibDecoder::new(&body[..]);
                let decoded = read_all(&mut decoder, bytes_max)?;
                // A second stream or stray bytes behind the first would be read by some and not by others.
                if decoder.get_mut().fill_buf().is_ok_and(<[u8]>::is_empty) { Ok(decoded) } else { Err(lie()) }
            }
        }
    }
}

fn lie() -> Refusal {
    unsupported("its bytes are not what `Content-Encoding` says")
}

fn read_all(decoder: impl Read, bytes_max: usize) -> Result<Bytes, Refusal> {
    let mut decoded = Vec::new();
    let bound = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(bound).read_to_end(&mut decoded).map_err(|_| lie())?;
    if decoded.len() > bytes_max {
        let detail =
            format!("The body is longer than {bytes_max} bytes once decoded. Nothing was sent; send less at once.");
        return Err(Refusal::new(Code::BodyTooLarge, detail));
    }
    Ok(decoded.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(coding: Coding, body: Vec<u8>) -> Result<Vec<u8>, Code> {
        coding.decode(&body.into(), 1000).map(|bytes| bytes.to_vec()).map_err(|refusal| refusal.code)
    }

    fn of(values: &[&str]) -> Result<Coding, Code> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::CONTENT_ENCODING, value.parse().unwrap());
        }
        Coding::of(&headers).map_err(|refusal| refusal.code)
    }

    #[test]
    fn one_known_coding_at_most() {
        assert_eq!(of(&[]), Ok(Coding::Identity));
        assert_eq!(of(&["identity"]), Ok(Coding::Identity));
        assert_eq!(of(&["GZIP"]), Ok(Coding::Gzip));
        assert_eq!(of(&["x-gzip, identity"]), Ok(Coding::Gzip));
        assert_eq!(of(&["deflate"]), Ok(Coding::Deflate));
        for bad in [&["br"][..], &["zstd"], &["gzip, gzip"], &["gzip", "deflate"], &["gzip,"], &[""], &["gzip;q=1"]] {
            assert_eq!(of(bad), Err(Code::MediaTypeUnsupported), "{bad:?}");
        }
    }

    #[test]
    fn bodies_are_decoded_to_the_last_member() {
        assert_eq!(decode(Coding::Gzip, gzip(b"abc")), Ok(b"abc".to_vec()));
        assert_eq!(decode(Coding::Gzip, [gzip(b"abc"), gzip(b"def")].concat()), Ok(b"abcdef".to_vec()));
        assert_eq!(decode(Coding::Deflate, zlib(b"abc")), Ok(b"abc".to_vec()));
        assert_eq!(decode(Coding::Gzip, gzip(&[b'a'; 1000])), Ok(vec![b'a'; 1000]));
    }

    #[test]
    fn lies_and_bombs_are_refused() {
        let cut = |mut bytes: Vec<u8>, by: usize| {
            bytes.truncate(bytes.len() - by);
            bytes
        };
        for by in [1, 8, 9, 12] {
            assert_eq!(decode(Coding::Gzip, cut(gzip(b"abcdefgh"), by)), Err(Code::MediaTypeUnsupported), "{by}");
        }
        for by in [1, 4, 5, 8] {
            assert_eq!(decode(Coding::Deflate, cut(zlib(b"abcdefgh"), by)), Err(Code::MediaTypeUnsupported), "{by}");
        }
        for body in [
            b"plain".to_vec(),
            [gzip(b"abc"), b"x".to_vec()].concat(),
            [gzip(b"abc"), vec![0; 9]].concat(),
            zlib(b"abc"),
        ] {
            assert_eq!(decode(Coding::Gzip, body), Err(Code::MediaTypeUnsupported));
        }
        for body in [b"plain".to_vec(), [zlib(b"abc"), zlib(b"abc")].concat(), raw_deflate(b"abc"), gzip(b"abc")] {
            assert_eq!(decode(Coding::Deflate, body), Err(Code::MediaTypeUnsupported));
        }
        assert_eq!(decode(Coding::Gzip, gzip(&[b'a'; 1001])), Err(Code::BodyTooLarge));
        assert_eq!(decode(Coding::Deflate, zlib(&vec![b'a'; 50_000_000])), Err(Code::BodyTooLarge));
        assert_eq!(decode(Coding::Gzip, [gzip(&[b'a'; 600]), gzip(&[b'a'; 600])].concat()), Err(Code::BodyTooLarge));
    }
}
