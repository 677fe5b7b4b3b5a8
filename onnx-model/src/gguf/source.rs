//! Checked little-endian reading: no length is believed before it is compared with what the file still holds.

use std::io::{self, Read, Seek, SeekFrom};

/// Why a file could not be read; the path is added by the caller.
#[derive(Debug)]
pub(super) enum Fault {
    /// The operating system refused.
    Io(io::Error),
    /// The contents are wrong.
    Invalid(String),
    /// The contents may be right, but are of a kind that is not read here.
    Unsupported(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

/// A reader that knows where it is and how much is left.
///
/// Invariant: `position <= len`, and `len` is the length of the source when it was opened.
pub(super) struct Bytes<R> {
    inner: R,
    position: u64,
    len: u64,
}

impl<R: Read + Seek> Bytes<R> {
    /// Starts at the beginning of `inner`.
    pub fn new(mut inner: R) -> Result<Self, Fault> {
        let len = inner.seek(SeekFrom::End(0))?;
        inner.seek(SeekFrom::Start(0))?;
        Ok(Bytes {
            inner,
            position: 0,
            len,
        })
    }

    /// Offset of the next byte.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Length of the whole source in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// An error at the current position.
    pub fn invalid(&self, message: String) -> Fault {
        Fault::Invalid(format!("{message} (at byte {})", self.position))
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut out = [0; N];
        self.fill(&mut out)?;
        Ok(out)
    }

    /// An unsigned 32-bit integer.
    pub fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// An unsigned 64-bit integer.
    pub fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A boolean, which must be 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Fault> {
        match self.array::<1>()?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.invalid(format!("boolean of value {other}"))),
        }
    }

    /// A length-prefixed UTF-8 string.
    pub fn string(&mut self) -> Result<String, Fault> {
        let len = self.u64()?;
        self.require(len, 1, "string")?;
        let mut out = vec![0; len as usize];
        self.fill(&mut out)?;
        String::from_utf8(out).map_err(|_| self.invalid("string is not UTF-8".into()))
    }

    /// A count-prefixed sequence whose items take at least `min_width` bytes each.
    pub fn many<T>(
        &mut self,
        min_width: u64,
        mut item: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let count = self.u64()?;
        self.require(count, min_width, "array")?;
        (0..count).map(|_| item(self)).collect()
    }

    /// Fails unless `count` items of at least `width` bytes can still follow.
    pub fn require(&self, count: u64, width: u64, what: &str) -> Result<(), Fault> {
        let left = self.len - self.position;
        match count.checked_mul(width) {
            Some(bytes) if bytes <= left => Ok(()),
            _ => Err(self.invalid(format!(
                "{what} of length {count} does not fit into the {left} bytes that are left; the file is truncated or damaged"
            ))),
        }
    }

    /// Moves to `offset`, which may not be behind the end.
    pub fn seek(&mut self, offset: u64) -> Result<(), Fault> {
        if offset > self.len {
            return Err(Fault::Invalid(format!(
                "offset {offset} is behind the end ({} bytes)",
                self.len
            )));
        }
        self.position = self.inner.seek(SeekFrom::Start(offset))?;
        Ok(())
    }

    /// Fills `out` from the current position.
    pub fn fill(&mut self, out: &mut [u8]) -> Result<(), Fault> {
        self.require(out.len() as u64, 1, "value")?;
        self.inner.read_exact(out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Invalid(format!(
                "the file became shorter while it was read (at byte {})",
                self.position
            )),
            _ => Fault::Io(error),
        })?;
        self.position += out.len() as u64;
        Ok(())
    }
}
