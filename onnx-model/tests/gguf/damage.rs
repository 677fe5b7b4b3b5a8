//! Damaged files give errors: no panic, no hang, no memory beyond a small multiple of the file.

use crate::build::tiny_llama;
use onnx_model::Result;
use onnx_model::gguf::{ConvertMode, GgufFile, TensorType, convert};
use std::io::Cursor;
use std::path::Path;

fn open(bytes: &[u8]) -> Result<GgufFile<Cursor<&[u8]>>> {
    GgufFile::from_reader("test.gguf", Cursor::new(bytes))
}

/// Opens and reads everything that the directory promises.
fn read_all(bytes: &[u8]) -> Result<()> {
    let mut file = open(bytes)?;
    let tensors: Vec<(String, usize)> = file
        .tensors()
        .values()
        .map(|t| (t.name.clone(), t.rows))
        .collect();
    for (name, rows) in tensors {
        file.rows_f32(&name, 0..rows)?;
    }
    Ok(())
}

fn sample() -> Vec<u8> {
    tiny_llama(TensorType::Q4_1, TensorType::Q8_0).bytes()
}

/// A fixed pseudo-random sequence.
fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = sample();
    read_all(&bytes).unwrap();
    // All lengths in the header and directories, then every 97th.
    let lengths = (0..14_000).chain((14_000..bytes.len()).step_by(97));
    for len in lengths {
        let error = open(&bytes[..len])
            .err()
            .unwrap_or_else(|| panic!("{len} of {} bytes were accepted", bytes.len()));
        assert!(error.is_malformed(), "{len}: {error:?}");
    }
}

#[test]
fn mutated_files_never_panic() {
    let bytes = sample();
    let directory = 14_000;
    let mut state = 1;
    let mut accepted = 0;
    for round in 0..20_000 {
        let mut mutant = bytes.clone();
        for _ in 0..=random(&mut state) % 3 {
            let at = random(&mut state) as usize % directory;
            mutant[at] = match random(&mut state) % 4 {
                0 => 0,
                1 => 0xff,
                2 => mutant[at].wrapping_add(1),
                _ => random(&mut state) as u8,
            };
        }
        // Converting is slower, so only some get that far.
        if round % 50 == 0 {
            let dir = tempfile::tempdir().unwrap();
            if let Ok(mut file) = open(&mutant) {
                let _ = convert(&mut file, dir.path(), ConvertMode::Int8, &mut |_| ());
            }
        } else if open(&mutant).is_ok() {
            accepted += 1;
        }
    }
    assert!(
        accepted > 1000,
        "only {accepted} mutants were read, so the test shows little"
    );
}

#[test]
fn numbers_that_promise_too_much_are_refused_before_allocating() {
    let header = |n_tensors: u64, n_values: u64, rest: &[u8]| {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(n_tensors.to_le_bytes());
        bytes.extend(n_values.to_le_bytes());
        bytes.extend(rest);
        bytes
    };
    let huge = u64::MAX.to_le_bytes();
    let strings = [
        &1_u64.to_le_bytes()[..],
        b"k",
        &9_u32.to_le_bytes(),
        &8_u32.to_le_bytes(),
        &huge,
    ]
    .concat();
    let nested = [
        &1_u64.to_le_bytes()[..],
        b"k",
        &9_u32.to_le_bytes(),
        &9_u32.to_le_bytes(),
        &huge,
    ]
    .concat();
    let cases = [
        (header(u64::MAX, 0, &[]), "tensor directory"),
        (header(0, u64::MAX / 2, &[]), "metadata of length"),
        (header(0, 1, &[huge; 2].concat()), "string of length"),
        (header(0, 1, &strings), "metadata k: array of length"),
        (header(0, 1, &nested), "arrays of arrays"),
    ];
    for (bytes, message) in cases {
        let error = open(&bytes).err().unwrap();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn tensors_outside_of_the_file_are_refused() {
    for dims in [
        vec![64, u64::MAX / 32],
        vec![1 << 40, 1 << 40],
        vec![64, 1 << 30],
        vec![33, 2],
        vec![0, 2],
        vec![64, 0],
    ] {
        let mut gguf = tiny_llama(TensorType::Q4_1, TensorType::Q8_0);
        gguf.tensors[0].dims = dims.clone();
        let error = open(&gguf.bytes())
            .err()
            .unwrap_or_else(|| panic!("{dims:?} were accepted"));
        assert!(error.to_string().contains("token_embd.weight"), "{error}");
    }
}

#[test]
fn other_files_are_not_taken_for_gguf() {
    for bytes in [
        &b""[..],
        b"GGUF",
        b"PK\x03\x04 a zip file, and a long one at that",
    ] {
        assert!(open(bytes).err().unwrap().to_string().contains("not a GGUF file"));
    }
    let mut big_endian = sample();
    big_endian[4..8].copy_from_slice(&3_u32.to_be_bytes());
    assert!(
        open(&big_endian)
            .err()
            .unwrap()
            .to_string()
            .contains("(big-endian)")
    );
    let error = GgufFile::open(Path::new("/does/not/exist.gguf")).err().unwrap();
    assert!(
        error.is_io() && error.to_string().contains("/does/not/exist.gguf"),
        "{error}"
    );
}
