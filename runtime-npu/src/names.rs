//! Input and output names as a run wants them: pointers to C strings.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

/// Null-terminated names and the pointer array that a run wants, so that a run converts and allocates nothing.
///
/// Most kernels have the same names, [`short`] ones, and then the same arrays: a run reads names that the run before left in
/// the cache.
pub(crate) struct Names(Owner);

enum Owner {
    /// The first so many of the array that all kernels share.
    Shared(&'static Array, usize),
    Own(Array),
}

struct Array {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

// SAFETY: the pointers lead into `_owned`, whose heap memory neither moves nor changes.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

/// Names in the shared arrays; attention has a dozen inputs, and some more where a norm goes before it.
const N_SHARED: usize = 32;

static INPUTS: LazyLock<Array> = LazyLock::new(|| Array::short(INPUT));
static OUTPUTS: LazyLock<Array> = LazyLock::new(|| Array::short(OUTPUT));

/// First letter of short input names.
pub(crate) const INPUT: char = 'i';
/// First letter of short output names.
pub(crate) const OUTPUT: char = 'o';

/// The short name at `position`, `i0`, `o0` and so on. ONNX Runtime makes strings of names and looks them up in every run; a name
/// of a few letters needs no allocation for that.
pub(crate) fn short(letter: char, position: usize) -> String {
    format!("{letter}{position}")
}

impl Names {
    pub(crate) fn new(names: &[String]) -> Self {
        let shared = |letter: char| {
            names.len() <= N_SHARED
                && names
                    .iter()
                    .enumerate()
                    .all(|(i, name)| *name == short(letter, i))
        };
        Self(match names {
            _ if shared(INPUT) => Owner::Shared(&INPUTS, names.len()),
            _ if shared(OUTPUT) => Owner::Shared(&OUTPUTS, names.len()),
            _ => Owner::Own(Array::new(names.to_vec())),
        })
    }

    pub(crate) fn pointers(&self) -> &[*const c_char] {
        match &self.0 {
            Owner::Shared(array, n) => &array.pointers[..*n],
            Owner::Own(array) => &array.pointers,
        }
    }
}

impl Array {
    fn new(names: Vec<String>) -> Self {
        let owned: Vec<CString> = names
            .into_iter()
            .map(|name| CString::new(name).expect("the plan refuses names with a null byte"))
            .collect();
        Self {
            pointers: owned.iter().map(|name| name.as_ptr()).collect(),
            _owned: owned,
        }
    }

    fn short(letter: char) -> Self {
        Self::new((0..N_SHARED).map(|i| short(letter, i)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn read(names: &Names) -> Vec<&str> {
        // SAFETY: the strings live as long as the names.
        let text = |&name: &*const c_char| unsafe { CStr::from_ptr(name) };
        names
            .pointers()
            .iter()
            .map(|p| text(p).to_str().unwrap())
            .collect()
    }

    #[test]
    fn names_stay_what_they_are() {
        let many: Vec<String> = (0..N_SHARED + 1).map(|i| short(INPUT, i)).collect();
        for names in [
            vec!["i0", "i1", "i2"],
            vec!["o0"],
            vec!["i0", "o1"],
            vec!["logits"],
            vec![],
        ] {
            let owned: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            assert_eq!(read(&Names::new(&owned)), names);
        }
        assert_eq!(read(&Names::new(&many)), many);
    }

    #[test]
    fn short_names_are_shared() {
        let names = |letter| Names::new(&[short(letter, 0), short(letter, 1)]);
        for letter in [INPUT, OUTPUT] {
            assert_eq!(
                names(letter).pointers().as_ptr(),
                names(letter).pointers().as_ptr()
            );
        }
    }
}
