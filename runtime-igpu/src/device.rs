//! An open device: checked calls, waits in short slices, and what happens when the device goes away.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::executor::block_on;

use crate::adapter::IgpuAdapter;
use crate::error::{IgpuError, Kind, Result};
use crate::vulkan::{self, Vulkan};

/// Longest single wait. Destroying a buffer blocks behind a wait, so waits are short.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// An open device with its queue. Calls that may fail go through [`Gpu::checked`].
pub(crate) struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) has_subgroups: bool,
    /// Whether buffers for kernels can be mapped too.
    pub(crate) can_map: bool,
    /// The same device below the graphics library.
    pub(crate) vulkan: Option<Vulkan>,
    health: Arc<Health>,
    stall_timeout: Duration,
    /// Held around every submit and poll, which all go through this type. A wait whose time is up reads how far the device is and
    /// then looks at the queue; where another thread's submit or poll has emptied the queue in between, the graphics library
    /// panics ("If the queue is empty, the current submission index .."). Once a release has the repair
    /// (<https://github.com/gfx-rs/wgpu/pull/9958>) this lock can go.
    ///
    /// A submit that waits here for another thread's wait loses nothing: the device works in order. Callbacks run while it is
    /// held; they only note what they are told.
    turn: Mutex<()>,
}

/// What the device's callbacks have told so far.
#[derive(Default)]
struct Health {
    lost: OnceLock<String>,
    uncaptured: Mutex<Option<String>>,
}

impl Gpu {
    /// Opens a device with the adapter's own limits and the features the kernels can use.
    pub(crate) fn open(adapter: &IgpuAdapter, stall_timeout: Duration) -> Result<Self> {
        let wanted = wgpu::Features::SUBGROUP | wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
        let mut features = adapter.features & wanted;
        if !adapter.is_unified() {
            // On a discrete card a mappable buffer lives on the wrong side of the bus.
            features.remove(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS);
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("hostlane decode"),
            required_features: features,
            required_limits: adapter.limits.clone(),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let importing = adapter
            .can_import()
            .then(|| vulkan::open(&adapter.raw, &descriptor))
            .flatten();
        let (device, queue) = match importing {
            Some(opened) => opened,
            None => block_on(adapter.raw.request_device(&descriptor)).map_err(|error| {
                let message = format!("cannot open a device on {}: {error}", adapter.description());
                IgpuError::new(Kind::Feature, message).caused_by(error)
            })?,
        };
        let health = Arc::new(Health::default());
        let for_errors = Arc::clone(&health);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let mut first = for_errors
                .uncaptured
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| error.to_string());
        }));
        let for_loss = Arc::clone(&health);
        device.set_device_lost_callback(move |reason, message| {
            let _ = for_loss.lost.set(format!("{reason:?}: {message}"));
        });
        Ok(Self {
            vulkan: Vulkan::of(&device),
            device,
            queue,
            has_subgroups: features.contains(wgpu::Features::SUBGROUP),
            can_map: features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS),
            health,
            stall_timeout,
            turn: Mutex::new(()),
        })
    }

    /// Runs `call` with every kind of device error turned into a typed one.
    pub(crate) fn checked<T>(&self, call: impl FnOnce(&wgpu::Device) -> T) -> Result<T> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let value = self.guarded(|| call(&self.device));
        // Popping resolves at once on native backends; scopes go in reverse order.
        let errors = [
            validation.pop().now_or_never(),
            internal.pop().now_or_never(),
            memory.pop().now_or_never(),
        ];
        let value = value?;
        match errors.into_iter().flatten().flatten().next() {
            Some(error) => Err(self.classify(error)),
            None => Ok(value),
        }
    }

    /// Turns a panic of the graphics library, as it has on device loss, into an error.
    fn guarded<T>(&self, call: impl FnOnce() -> T) -> Result<T> {
        catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
            let text = panic_text(&*panic);
            let _ = self.health.lost.set(text.to_owned());
            IgpuError::new(Kind::DeviceLost, format!("device lost: {text}"))
        })
    }

    /// As [`guarded`](Self::guarded), with no other thread inside a submit or a poll.
    fn in_turn<T>(&self, call: impl FnOnce() -> T) -> Result<T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.guarded(call)
    }

    fn classify(&self, error: wgpu::Error) -> IgpuError {
        if let Err(lost) = self.ask_lost() {
            return lost;
        }
        let (kind, what) = match &error {
            wgpu::Error::OutOfMemory { .. } => (Kind::Memory, "out of device memory"),
            wgpu::Error::Validation { .. } => (Kind::Shader, "rejected by the graphics library"),
            wgpu::Error::Internal { .. } => (Kind::Shader, "failed in the driver"),
        };
        IgpuError::new(kind, format!("{what}: {error}")).caused_by(error)
    }

    /// # Errors
    ///
    /// When the device was lost, or an error outside any scope was reported since the last look.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_lost()?;
        let mut first = self
            .health
            .uncaptured
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match first.take() {
            Some(text) => Err(IgpuError::new(
                Kind::Shader,
                format!("rejected by the graphics library: {text}"),
            )),
            None => Ok(()),
        }
    }

    /// As [`check_lost`](Self::check_lost), after giving the callback, which only a poll runs, its chance.
    fn ask_lost(&self) -> Result<()> {
        let _ = self.in_turn(|| self.device.poll(wgpu::PollType::Poll))?;
        self.check_lost()
    }

    fn check_lost(&self) -> Result<()> {
        match self.health.lost.get() {
            Some(text) => Err(IgpuError::new(Kind::DeviceLost, format!("device lost: {text}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn submit(
        &self,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
    ) -> Result<wgpu::SubmissionIndex> {
        self.check_lost()?;
        self.in_turn(|| self.queue.submit(commands))
    }

    /// Waits for a submission, in slices, and for the callbacks due by then.
    pub(crate) fn wait(&self, submission: &wgpu::SubmissionIndex) -> Result<()> {
        self.wait_in_slices(submission, WAIT_SLICE)
    }

    fn wait_in_slices(&self, submission: &wgpu::SubmissionIndex, slice: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            let poll = wgpu::PollType::Wait {
                submission_index: Some(submission.clone()),
                timeout: Some(slice),
            };
            let outcome = self.in_turn(|| self.device.poll(poll))?;
            self.check()?;
            match outcome {
                Ok(_) => return Ok(()),
                Err(wgpu::PollError::Timeout) if started.elapsed() < self.stall_timeout => {}
                Err(wgpu::PollError::WrongSubmissionIndex(..)) => {
                    // A lost device takes submissions without a word and does not know them later.
                    self.ask_lost()?;
                    return Err(IgpuError::new(
                        Kind::DeviceLost,
                        "device lost: it dropped a submission",
                    ));
                }
                Err(error) => {
                    let message = format!("device did not finish within {:?}: {error}", self.stall_timeout);
                    return Err(IgpuError::new(Kind::Stalled, message).caused_by(error));
                }
            }
        }
    }

    /// Lets finished submissions release what they held, without waiting.
    pub(crate) fn reclaim(&self) -> Result<()> {
        // Whoever has the turn does it too.
        if let Ok(_turn) = self.turn.try_lock() {
            let _ = self.guarded(|| self.device.poll(wgpu::PollType::Poll))?;
        }
        self.check()
    }

    /// Reads the start of a mappable buffer once `submission` is done.
    pub(crate) fn read(
        &self,
        buffer: &wgpu::Buffer,
        bytes: u64,
        submission: &wgpu::SubmissionIndex,
    ) -> Result<wgpu::BufferView> {
        let mapped = Arc::new(OnceLock::new());
        let for_callback = Arc::clone(&mapped);
        buffer.map_async(wgpu::MapMode::Read, ..bytes, move |outcome| {
            let _ = for_callback.set(outcome);
        });
        self.wait(submission)?;
        let started = Instant::now();
        loop {
            match mapped.get() {
                Some(Ok(())) => break,
                Some(Err(error)) => {
                    self.ask_lost()?;
                    return Err(IgpuError::new(
                        Kind::DeviceLost,
                        format!("cannot read back: {error}"),
                    ));
                }
                None if started.elapsed() > self.stall_timeout => {
                    return Err(IgpuError::new(Kind::Stalled, "read-back was never mapped"));
                }
                None => self.reclaim()?,
            }
        }
        buffer
            .get_mapped_range(..bytes)
            .map_err(|error| IgpuError::new(Kind::Internal, format!("cannot read back: {error}")))
    }

    /// Takes the device away, as a driver reset would; for fault tests.
    pub(crate) fn lose(&self) {
        self.device.destroy();
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("the graphics library panicked")
}

#[cfg(test)]
mod tests {
    use crate::kernel::Kernel;
    use crate::kv::LayerCache;
    use crate::options::{IgpuOptions, UploadPath};
    use crate::program::KvShape;
    use crate::shader::{KernelSpec, Shader};
    use crate::testing::Rig;
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
        let error = Gpu::open(&adapter, options.stall_timeout)
            .err()
            .expect("no device has so many");
        assert!(error.is_unsupported_feature(), "{error:?}");
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
        let options = IgpuOptions::default();
        let Ok(adapter) = IgpuAdapter::find(&options) else {
            eprintln!("not exercised: devices that do not finish: no adapter");
            return;
        };
        if !adapter.is_cpu() {
            eprintln!("not exercised: devices that do not finish: only a CPU adapter is slow enough");
            return;
        }
        let gpu = Gpu::open(&adapter, Duration::ZERO).expect("opens");
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
        let child = std::process::Command::new("sh")
            .args(["-c", "ulimit -v 6000000 && exec \"$0\" --exact device::tests::caches_are_allocated_until_memory_ends --nocapture"])
            .arg(std::env::current_exe().expect("this test has a path"))
            .env("LIMITED", "1")
            .output()
            .expect("the child starts");
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&child.stdout),
            String::from_utf8_lossy(&child.stderr)
        );
        assert!(child.status.success(), "{text}");
        assert!(text.contains("memory ended: out of device memory"), "{text}");
    }
}
