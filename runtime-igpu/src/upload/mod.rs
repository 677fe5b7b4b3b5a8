//! Weights to device buffers, without a second whole copy on the way.

mod mapped;
mod staged;

use std::ops::Range;
use std::sync::Arc;

use onnx_model::{Lease, TensorBytes};

use crate::device::Gpu;
use crate::error::Result;
use crate::options::UploadPath;

/// Bytes per staged chunk.
const CHUNK_BYTES: usize = 4 << 20;

/// Where a weight is now.
pub(crate) enum Placed {
    /// In the model's mapping still, which the buffer is over. Kernels may run as long as the lease holds: a driver's threads
    /// would not survive a file that shrinks.
    InPlace(wgpu::Buffer, Arc<Lease>),
    /// In memory of the device's own.
    Copied(wgpu::Buffer),
}

/// A read-only storage buffer that holds `part` of a constant: over the mapping itself if that is the path and the part's place
/// allows it, else a copy.
///
/// `part` must lie within `home`.
pub(crate) fn place(
    gpu: &Gpu,
    path: UploadPath,
    label: &str,
    home: &TensorBytes,
    part: Range<usize>,
) -> Result<Placed> {
    if path == UploadPath::Imported
        && let Some(vulkan) = &gpu.vulkan
        && let Some(lease) = home.mapping().and_then(|mapping| mapping.lease())
        && let Some(buffer) = gpu.checked(|device| vulkan.import(device, label, home, part.clone()))?
    {
        gpu.reclaim()?;
        return Ok(Placed::InPlace(buffer, lease));
    }
    upload(gpu, path, label, &home[part]).map(Placed::Copied)
}

/// Whether [`place`] on the imported path leaves this part where it is, given an adapter that imports and a lease: told from its
/// place alone, before there is a device. Devices may ask for less than the alignment that is taken for granted here.
pub(crate) fn stays_in_place(home: &TensorBytes, part: &Range<u64>) -> bool {
    let start = home.mapping_offset().map(|offset| offset + part.start);
    start.is_some_and(|start| start.is_multiple_of(256)) && (part.end - part.start).is_multiple_of(16)
}

/// A read-only storage buffer that holds a copy of `bytes`, padded to whole 16-byte vectors.
pub(crate) fn upload(gpu: &Gpu, path: UploadPath, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    match path {
        // An adapter that imports host memory shares it.
        UploadPath::Mapped | UploadPath::Imported if gpu.can_map => mapped::mapped(gpu, label, bytes),
        _ => staged::staged(gpu, label, bytes),
    }
}

fn padded_len(bytes: &[u8]) -> u64 {
    (bytes.len() as u64).next_multiple_of(16).max(16)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use crate::adapter::IgpuAdapter;
    use crate::options::IgpuOptions;
    use crate::testing::{Rig, noise_bytes, printed_by};

    use super::*;

    /// Highest resident memory of this process so far, in bytes.
    fn peak_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .expect("the peak is there");
        line.trim()
            .trim_end_matches(" kB")
            .parse::<usize>()
            .expect("a number")
            * 1024
    }

    /// On a CPU adapter device memory is the process's own. Alone in its process, since the peak is the whole process's.
    #[test]
    fn memory_does_not_double_alone() {
        let Some(rig) = Rig::open("memory while weights go up") else {
            return;
        };
        let alone = std::env::var_os("ALONE").is_some();
        let source = noise_bytes(1, if alone { 96 << 20 } else { 1 << 20 });
        for path in [UploadPath::Staged, UploadPath::Mapped] {
            let before = peak_bytes();
            let buffer = upload(&rig.gpu, path, "weights", &source).expect("uploads");
            let grown = peak_bytes() - before;
            println!("{path:?}: {} MiB grew by {} MiB", source.len() >> 20, grown >> 20);
            // The weights themselves, the chunks in flight and what the allocator rounds up to.
            assert!(
                !alone || grown < source.len() + (32 << 20),
                "{path:?}: {grown} bytes more"
            );
            drop(buffer);
            rig.gpu.reclaim().expect("the device lives");
        }
    }

    #[test]
    fn memory_does_not_double() {
        let Some(rig) = Rig::open_cpu(
            "memory while weights go up",
            "device memory is not the process's own",
        ) else {
            return;
        };
        drop(rig);
        let this = std::env::current_exe().expect("this test has a path");
        let text = printed_by(
            std::process::Command::new(this)
                .args([
                    "--exact",
                    "upload::tests::memory_does_not_double_alone",
                    "--nocapture",
                ])
                .env("ALONE", "1"),
        );
        assert!(
            text.contains("Mapped: 96 MiB") && text.contains("Staged: 96 MiB"),
            "{text}"
        );
    }

    /// Parts of a constant are read in place where they lie as the device wants it, else copied; their bytes are the same.
    #[test]
    fn parts_are_read_in_place_or_copied() {
        let Some(rig) = Rig::open("weights read in place") else {
            return;
        };
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/fixtures/models/qwen3-tiny-int4"
        );
        let folder = onnx_model::ModelFolder::open(folder).expect("the fixture opens");
        let imports = IgpuAdapter::find(&IgpuOptions::default())
            .expect("was found before")
            .can_import()
            && folder.weight_files().all(|file| file.lease().is_some());
        if !imports {
            eprintln!(
                "not exercised: weights read in place: the adapter does not import, or the files have no leases"
            );
        }
        let names: Vec<_> = folder
            .graph()
            .initializers
            .iter()
            .map(|initializer| initializer.name.clone())
            .collect();
        let (mut n_in_place, mut n_told) = (0, 0);
        for name in names {
            let home = folder.tensor(&name).expect("a constant").bytes;
            let len = home.len();
            for (part, aligned) in [
                (0..len, len.is_multiple_of(16)),
                (16..len, false),
                (0..len.saturating_sub(4), false),
            ] {
                if part.is_empty() {
                    continue;
                }
                let told = stays_in_place(&home, &(part.start as u64..part.end as u64));
                n_told += usize::from(told);
                let buffer = match place(&rig.gpu, UploadPath::Imported, &name, &home, part.clone())
                    .expect("is placed")
                {
                    Placed::InPlace(buffer, _) => {
                        assert!(imports && home.mapping().is_some(), "{name} {part:?}");
                        n_in_place += 1;
                        buffer
                    }
                    Placed::Copied(buffer) => {
                        assert!(!imports || !told, "{name} {part:?}: was told to stay");
                        assert!(
                            !imports || !aligned || home.mapping().is_none(),
                            "{name} {part:?}"
                        );
                        buffer
                    }
                };
                assert_eq!(
                    rig.copy_out(&buffer)[..part.len()],
                    home[part.clone()],
                    "{name} {part:?}"
                );
            }
        }
        assert_eq!(n_in_place > 20, imports, "{n_in_place} parts in place");
        assert!(n_told > 20, "{n_told} parts told to stay");
    }

    #[test]
    fn every_length_arrives_whole_on_both_paths() {
        let Some(rig) = Rig::open("uploads of every length") else {
            return;
        };
        for path in [UploadPath::Staged, UploadPath::Mapped] {
            for len in [
                1,
                3,
                4,
                15,
                16,
                17,
                1000,
                CHUNK_BYTES - 1,
                CHUNK_BYTES,
                2 * CHUNK_BYTES + 7,
            ] {
                let source = noise_bytes(len as u64, len);
                let buffer = upload(&rig.gpu, path, "weights", &source).expect("uploads");
                assert_eq!(rig.copy_out(&buffer)[..len], source, "{path:?}, {len} bytes");
            }
        }
    }
}
