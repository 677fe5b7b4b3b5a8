//! A device that fails, stalls or goes away, and threads that share one.

use crate::kernel::Kernel;
use crate::kv::LayerCache;
use crate::program::KvShape;
use crate::shader::{KernelSpec, Shader};
use crate::testing::{Rig, printed_by};
use crate::upload::upload;

use super::*;

#[test]
fn a_device_that_asks_too_much_is_an_error() {
    let options = IgpuOptions::default();
    let Ok(mut adapter) = IgpuAdapter::find(&options) else {
        eprintln!("not exercised: devices that ask too much: no adapter");
        return;
    };
    adapter.limits.max_bind_groups = 1000;
    let error = Gpu::open(&adapter, &options)
        .err()
        .expect("no device has so many");
    assert!(error.is_unsupported_feature(), "{error:?}");
}

#[test]
fn only_who_chose_to_import_is_refused_when_that_fails() {
    let adapter = IgpuAdapter::find(&IgpuOptions::default());
    let Some(adapter) = adapter.ok().filter(IgpuAdapter::can_import) else {
        eprintln!("not exercised: devices that do not import after all: no adapter that should");
        return;
    };
    let open = |upload| {
        let options = IgpuOptions {
            upload,
            ..IgpuOptions::default()
        };
        Gpu::open_with(&adapter, &options, |_, _| {
            Err(IgpuError::new(Kind::Feature, "not this driver"))
        })
    };
    let error = open(Some(UploadPath::Imported)).err().expect("was chosen");
    assert!(error.is_unsupported_feature(), "{error:?}");
    for part in ["not this driver", "use another", &adapter.description()] {
        assert!(error.to_string().contains(part), "{error}");
    }
    for path in [None, Some(UploadPath::Staged)] {
        let gpu = open(path).expect("opens without");
        let buffer = upload(&gpu, UploadPath::Imported, "weights", &[7; 64]);
        assert!(buffer.is_ok(), "{path:?}: it is copied");
    }
}

#[test]
fn a_broken_shader_is_an_error_and_the_device_lives() {
    let Some(rig) = Rig::open("broken shaders") else {
        return;
    };
    let spec = KernelSpec::new(Shader::Copy, [("WORKGROUP", 64)]);
    let whole = spec.compose(rig.subgroups);
    let no_entry = whole.replace("fn main", "fn other");
    let other_bindings = whole.replace("@binding(2)", "@binding(7)");
    let too_wide = whole.replace("WORKGROUP: u32 = 64u", "WORKGROUP: u32 = 100000u");
    for text in ["not wgsl at all", "", &no_entry, &other_bindings, &too_wide] {
        let error = Kernel::compile(&rig.gpu, &spec, text)
            .err()
            .expect("this does not compile");
        assert!(error.is_shader(), "{error:?}");
        assert!(error.to_string().contains("copy WORKGROUP=64"), "{error}");
    }
    assert!(Kernel::compile(&rig.gpu, &spec, &whole).is_ok());
}

#[test]
fn a_buffer_over_the_limit_is_an_error_and_the_device_lives() {
    let Some(rig) = Rig::open("buffers over the limit") else {
        return;
    };
    let size = rig.gpu.device.limits().max_buffer_size + 16;
    let usage = wgpu::BufferUsages::STORAGE;
    let descriptor = wgpu::BufferDescriptor {
        label: None,
        size,
        usage,
        mapped_at_creation: false,
    };
    assert!(
        rig.gpu
            .checked(|device| device.create_buffer(&descriptor))
            .is_err()
    );
    assert!(upload(&rig.gpu, UploadPath::Staged, "small", &[1, 2, 3]).is_ok());
}

#[test]
fn a_device_lost_during_set_up_is_an_error() {
    let Some(rig) = Rig::open("loss of the device during set-up") else {
        return;
    };
    rig.gpu.lose();
    for path in [UploadPath::Staged, UploadPath::Mapped, UploadPath::Imported] {
        let error = upload(&rig.gpu, path, "weights", &[0; 64]).expect_err("the device is gone");
        assert!(error.is_device_lost(), "{path:?}: {error:?}");
    }
    let spec = KernelSpec::new(Shader::Copy, [("WORKGROUP", 64)]);
    let error = Kernel::compile(&rig.gpu, &spec, &spec.compose(rig.subgroups))
        .err()
        .expect("the device is gone");
    assert!(error.is_device_lost(), "{error:?}");
    let shape = KvShape {
        layers: 1,
        kv_heads: 2,
        head_dim: 32,
    };
    assert!(LayerCache::new(&rig.gpu, shape, 0, 16).is_err_and(|error| error.is_device_lost()));
}

#[test]
fn a_device_that_does_not_finish_is_an_error() {
    let options = IgpuOptions {
        stall_timeout: Duration::ZERO,
        ..IgpuOptions::default()
    };
    let Ok(adapter) = IgpuAdapter::find(&options) else {
        eprintln!("not exercised: devices that do not finish: no adapter");
        return;
    };
    if !adapter.is_cpu() {
        eprintln!("not exercised: devices that do not finish: only a CPU adapter is slow enough");
        return;
    }
    let gpu = Gpu::open(&adapter, &options).expect("opens");
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor {
        label: None,
        size: 64 << 20,
        usage,
        mapped_at_creation: false,
    };
    let commands = gpu.checked(|device| {
        let (a, b) = (
            device.create_buffer(&descriptor),
            device.create_buffer(&descriptor),
        );
        let mut encoder = device.create_command_encoder(&Default::default());
        // 16 GiB, which no CPU copies within one wait.
        for _ in 0..128 {
            encoder.copy_buffer_to_buffer(&a, 0, &b, 0, 64 << 20);
            encoder.copy_buffer_to_buffer(&b, 0, &a, 0, 64 << 20);
        }
        encoder.finish()
    });
    let submission = gpu.submit([commands.expect("records")]).expect("submits");
    let error = gpu.wait(&submission).expect_err("it takes longer than no time");
    assert!(error.is_stalled(), "{error:?}");
    assert!(error.to_string().contains("did not finish within"), "{error}");
}

/// Waits whose time is up at once, on two threads that empty the queue for each other.
#[test]
fn threads_that_wait_do_not_fail_each_other() {
    let Some(rig) = Rig::open("waits on two threads") else {
        return;
    };
    let submit_and_wait = || {
        for _ in 0..10_000 {
            let submission = rig.gpu.submit([])?;
            rig.gpu.wait_in_slices(&submission, Duration::ZERO)?;
        }
        Ok::<_, IgpuError>(())
    };
    let outcomes = std::thread::scope(|scope| {
        let threads = [scope.spawn(submit_and_wait), scope.spawn(submit_and_wait)];
        threads.map(|thread| thread.join().expect("errors are values"))
    });
    assert_eq!(
        outcomes.map(|outcome| outcome.map_err(|error| error.to_string())),
        [Ok(()), Ok(())]
    );
}

/// In a process of its own whose address space is small; by itself it only checks that small caches fit.
#[test]
fn caches_are_allocated_until_memory_ends() {
    let Some(rig) = Rig::open("the end of device memory") else {
        return;
    };
    let shape = KvShape {
        layers: 1,
        kv_heads: 64,
        head_dim: 256,
    };
    let limited = std::env::var_os("LIMITED").is_some();
    // Two buffers of 1 GiB each where memory is limited.
    let capacity = if limited { 1 << 14 } else { 16 };
    let mut caches = Vec::new();
    for _ in 0..8 {
        match LayerCache::new(&rig.gpu, shape, 0, capacity) {
            Ok(cache) => caches.push(cache),
            Err(error) => {
                assert!(limited, "16 positions fit: {error}");
                assert!(error.is_out_of_memory(), "{error:?}");
                drop(caches);
                assert!(
                    LayerCache::new(&rig.gpu, shape, 0, 16).is_ok(),
                    "the device lives"
                );
                println!("memory ended: {error}");
                return;
            }
        }
    }
    assert!(!limited, "8 GiB more than the limit were allocated");
}

#[cfg(target_os = "linux")]
#[test]
fn the_driver_running_out_of_memory_is_an_error() {
    let Some(rig) = Rig::open_cpu(
        "a driver out of memory",
        "only a CPU adapter's memory can be limited",
    ) else {
        return;
    };
    drop(rig);
    let text = printed_by(
        std::process::Command::new("sh")
            .args(["-c", "ulimit -v 6000000 && exec \"$0\" --exact device::tests::caches_are_allocated_until_memory_ends --nocapture"])
            .arg(std::env::current_exe().expect("this test has a path"))
            .env("LIMITED", "1"),
    );
    assert!(text.contains("memory ended: out of device memory"), "{text}");
}
