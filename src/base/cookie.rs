//! The console's cookie by name: both listeners may stand on one host, and cookies know no ports, so
//! a browser sends it to the other listener as well. There it must neither pass nor be set.

/// The name of the console's session cookie over plain HTTP.
pub const CONSOLE: &str = "countersign";
/// Its name over HTTPS: the prefix makes browsers keep it to this host.
pub const CONSOLE_SECURE: &str = "__Host-countersign";

/// A `Cookie` value without the console's pair. `None` if nothing else is in it.
#[must_use]
pub fn without_console(value: &[u8]) -> Option<Vec<u8>> {
    let kept: Vec<&[u8]> = value.split(|byte| *byte == b';').filter(|pair| !names_console(pair)).collect();
    let kept = kept.join(&b';');
    let kept = kept.trim_ascii();
    (!kept.is_empty()).then(|| kept.to_vec())
}

/// Whether a pair of a `Cookie`, or a whole `Set-Cookie`, is the console's.
#[must_use]
pub fn names_console(pair: &[u8]) -> bool {
    let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
    [CONSOLE, CONSOLE_SECURE].iter().any(|own| name.trim_ascii() == own.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p10_only_the_consoles_pair_goes() {
        for (came, left) in [
            ("countersign=x", None),
            ("__Host-countersign=x;a=1", Some("a=1")),
            ("a=1; countersign=x; b=2", Some("a=1; b=2")),
            ("countersign=x; a=1", Some("a=1")),
            ("xcountersign=1; countersigns=2", Some("xcountersign=1; countersigns=2")),
            ("a=countersign=x", Some("a=countersign=x")),
        ] {
            let without = without_console(came.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            assert_eq!(without.as_deref(), left, "{came}");
        }
        assert!(names_console(b"countersign=evil; Path=/"));
        assert!(!names_console(b"session=countersign; Path=/"));
    }
}
