//! Weights to device buffers, without a second whole copy on the way.

use std::collections::VecDeque;

use crate::device::Gpu;
use crate::error::{IgpuError, Kind, Result};
use crate::options::UploadPath;

/// Bytes per staged chunk.
const CHUNK_BYTES: usize = 4 << 20;
/// Chunks that may be on their way at once.
const CHUNKS_IN_FLIGHT: usize = 2;

/// A read-only storage buffer that holds `bytes`, padded to whole 16-byte vectors.
pub(crate) fn upload(gpu: &Gpu, path: UploadPath, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    match path {
        UploadPath::Mapped => mapped(gpu, label, bytes),
        UploadPath::Staged => staged(gpu, label, bytes),
    }
}

fn padded_len(bytes: &[u8]) -> u64 {
    (bytes.len() as u64).next_multiple_of(16).max(16)
}

/// One copy, from the model's mapping into the device's own memory.
fn mapped(gpu: &Gpu, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    let buffer = gpu.checked(|device| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: padded_len(bytes),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::MAP_WRITE,
            mapped_at_creation: true,
        })
    })?;
    // After a loss, creation seems to succeed; only now does the driver tell.
    gpu.reclaim()?;
    let mut view = buffer.get_mapped_range_mut(..).map_err(|error| {
        IgpuError::new(
            Kind::Memory,
            format!("cannot map a new buffer of {} bytes: {error}", bytes.len()),
        )
    })?;
    view.slice(..bytes.len()).copy_from_slice(bytes);
    drop(view);
    gpu.checked(|_| buffer.unmap())?;
    Ok(buffer)
}

/// Two copies, chunk by chunk, with few chunks in flight.
fn staged(gpu: &Gpu, label: &str, bytes: &[u8]) -> Result<wgpu::Buffer> {
    let buffer = gpu.checked(|device| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: padded_len(bytes),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    })?;
    let mut in_flight = VecDeque::new();
    for (i, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
        let offset = (i * CHUNK_BYTES) as u64;
        let whole = chunk.len() / 4 * 4;
        gpu.checked(|_| {
            if whole > 0 {
                gpu.queue.write_buffer(&buffer, offset, &chunk[..whole]);
            }
            if whole < chunk.len() {
                let mut word = [0; 4];
                word[..chunk.len() - whole].copy_from_slice(&chunk[whole..]);
                gpu.queue.write_buffer(&buffer, offset + whole as u64, &word);
            }
        })?;
        in_flight.push_back(gpu.submit([])?);
        if in_flight.len() > CHUNKS_IN_FLIGHT {
            gpu.wait(&in_flight.pop_front().expect("not empty"))?;
        }
    }
    if bytes.len() >= CHUNK_BYTES {
        // Small uploads need no wait: their staging is released by whoever polls next.
        in_flight
            .drain(..)
            .try_for_each(|submission| gpu.wait(&submission))?;
    }
    Ok(buffer)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use crate::testing::{Rig, noise_bytes};

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
        let Some(rig) = Rig::open("memory while weights go up") else {
            return;
        };
        if rig.gpu.device.adapter_info().device_type != wgpu::DeviceType::Cpu {
            eprintln!("not exercised: memory while weights go up: device memory is not the process's own");
            return;
        }
        drop(rig);
        let child = std::process::Command::new(std::env::current_exe().expect("this test has a path"))
            .args([
                "--exact",
                "upload::tests::memory_does_not_double_alone",
                "--nocapture",
            ])
            .env("ALONE", "1")
            .output()
            .expect("the child starts");
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&child.stdout),
            String::from_utf8_lossy(&child.stderr)
        );
        assert!(child.status.success(), "{text}");
        assert!(
            text.contains("Mapped: 96 MiB") && text.contains("Staged: 96 MiB"),
            "{text}"
        );
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
