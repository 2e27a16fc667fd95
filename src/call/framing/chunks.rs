//! A body in chunks (RFC 9112 section 7.1), byte by byte.

use crate::base::refusal::Refusal;
use crate::call::media::is_token_byte;

use super::{FramingLimits, ambiguous, too_large};

/// Where in a chunked body the last byte stands.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// Bytes of the line that announces the present chunk.
    line_bytes: usize,
    /// Bytes of all chunk extensions so far.
    extension_bytes: usize,
    /// Bytes of the trailer section so far.
    trailer_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// In the size, after so many digits.
    Size { digits: u32, size: u64 },
    /// In an extension.
    Extension { size: u64 },
    /// After the CR of the line that announces a chunk.
    SizeEnd { size: u64 },
    /// In the data.
    Data { left: u64 },
    /// After the data.
    DataCr,
    /// After the CR behind the data.
    DataLf,
    /// At the beginning of a trailer line.
    TrailerLine,
    /// In the name of a trailer.
    TrailerName,
    /// In the value of a trailer.
    TrailerValue,
    /// After the CR of a trailer line.
    TrailerLf,
    /// After the CR of the empty line that ends the body.
    EndLf,
}

impl Default for At {
    fn default() -> Self {
        Self::Size { digits: 0, size: 0 }
    }
}

impl Chunks {
    /// Takes bytes up to the end of the body, the end of `input`, or the first byte that is wrong.
    /// Says how many were right, and whether the body is over.
    pub(super) fn feed(&mut self, input: &[u8], limits: &FramingLimits) -> (usize, Result<bool, Refusal>) {
        let mut taken = 0;
        while let Some(byte) = input.get(taken) {
            if let At::Data { left } = &mut self.at {
                let now = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len() - taken);
                *left -= u64::try_from(now).unwrap_or(*left);
                taken += now;
                if *left == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            match self.step(*byte, limits) {
                Ok(false) => taken += 1,
                Ok(true) => return (taken + 1, Ok(true)),
                Err(refusal) => return (taken, Err(refusal)),
            }
        }
        (taken, Ok(false))
    }

    /// One byte outside of the data.
    fn step(&mut self, byte: u8, limits: &FramingLimits) -> Result<bool, Refusal> {
        self.at = match (self.at, byte) {
            (At::Size { digits, size }, _) if byte.is_ascii_hexdigit() => {
                if digits == 16 {
                    return Err(ambiguous("the size of a chunk has more than 16 digits"));
                }
                self.count_line(limits)?;
                let digit = u64::from(char::from(byte).to_digit(16).unwrap_or(0));
                At::Size { digits: digits + 1, size: size << 4 | digit }
            }
            (At::Size { digits: 1.., size }, b'\r') if size <= i64::MAX.unsigned_abs() => At::SizeEnd { size },
            (At::Size { digits: 1.., size }, b';') if size <= i64::MAX.unsigned_abs() => {
                self.count_line(limits)?;
                At::Extension { size }
            }
            (At::Size { .. }, _) => return Err(ambiguous("the size of a chunk is not a plain hexadecimal number")),
            (At::Extension { size }, b'\r') => At::SizeEnd { size },
            (At::Extension { size }, b'\t' | b' '..=b'~') => {
                self.count_line(limits)?;
                self.extension_bytes += 1;
                if self.extension_bytes > limits.chunk_extension_bytes_max {
                    return Err(ambiguous("its chunk extensions are too long"));
                }
                At::Extension { size }
            }
            (At::Extension { .. }, _) => {
                return Err(ambiguous("a chunk extension has a line break or a character that is not visible"));
            }
            (At::SizeEnd { size: 0 }, b'\n') => At::TrailerLine,
            (At::SizeEnd { size }, b'\n') => At::Data { left: size },
            (At::SizeEnd { .. }, _) => return Err(ambiguous("the line of a chunk's size has a bare carriage return")),
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => {
                self.line_bytes = 0;
                At::default()
            }
            (At::DataCr | At::DataLf, _) => return Err(ambiguous("a chunk is longer than its size says")),
            (At::Data { .. }, _) => return Err(ambiguous("a chunk is longer than its size says")),
            _ => return self.step_trailer(byte, limits),
        };
        Ok(false)
    }

    fn step_trailer(&mut self, byte: u8, limits: &FramingLimits) -> Result<bool, Refusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > limits.trailer_bytes_max {
            return Err(too_large("its trailer section"));
        }
        self.at = match (self.at, byte) {
            (At::EndLf, b'\n') => return Ok(true),
            (At::TrailerLine, b'\r') => At::EndLf,
            (At::TrailerLine | At::TrailerName, _) if is_token_byte(byte) => At::TrailerName,
            (At::TrailerName, b':') => At::TrailerValue,
            (At::TrailerValue, b'\r') => At::TrailerLf,
            (At::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => At::TrailerValue,
            (At::TrailerLf, b'\n') => At::TrailerLine,
            _ => return Err(ambiguous("a line of its trailer section is malformed")),
        };
        Ok(false)
    }

    fn count_line(&mut self, limits: &FramingLimits) -> Result<(), Refusal> {
        self.line_bytes += 1;
        if self.line_bytes > limits.chunk_line_bytes_max {
            return Err(ambiguous("a line that announces a chunk is too long"));
        }
        Ok(())
    }
}
