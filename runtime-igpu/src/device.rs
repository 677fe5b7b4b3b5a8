//! An open device: checked calls, waits in short slices, and what happens when the device goes away.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::executor::block_on;

use crate::adapter::IgpuAdapter;
use crate::error::{IgpuError, Kind, Result};
use crate::options::{IgpuOptions, UploadPath};
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

type Opened = (wgpu::Device, wgpu::Queue);

/// What the device's callbacks have told so far.
#[derive(Default)]
struct Health {
    lost: OnceLock<String>,
    uncaptured: Mutex<Option<String>>,
}

impl Gpu {
    /// Opens a device with the adapter's own limits and the features the kernels can use.
    ///
    /// # Errors
    ///
    /// The device cannot be opened; or not so that it can import the host's memory, and the options choose
    /// [`UploadPath::Imported`]. Where that path was only the default, the device is opened without, and weights are copied.
    pub(crate) fn open(adapter: &IgpuAdapter, options: &IgpuOptions) -> Result<Self> {
        Self::open_with(adapter, options, vulkan::open)
    }

    fn open_with(
        adapter: &IgpuAdapter,
        options: &IgpuOptions,
        open_importing: impl FnOnce(&wgpu::Adapter, &wgpu::DeviceDescriptor<'_>) -> Result<Opened>,
    ) -> Result<Self> {
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
            .then(|| open_importing(&adapter.raw, &descriptor));
        let (device, queue) = match importing {
            Some(Ok(opened)) => opened,
            Some(Err(error)) if options.upload == Some(UploadPath::Imported) => {
                return Err(cannot_open(
                    adapter,
                    error,
                    ", as the imported upload path needs it; use another path",
                ));
            }
            Some(Err(error)) => {
                let adapter_name = adapter.description();
                tracing::info!(adapter_name, %error, "weights are copied: the device cannot import the host's memory");
                open_plain(adapter, &descriptor)?
            }
            None => open_plain(adapter, &descriptor)?,
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
            stall_timeout: options.stall_timeout,
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

fn open_plain(adapter: &IgpuAdapter, descriptor: &wgpu::DeviceDescriptor<'_>) -> Result<Opened> {
    block_on(adapter.raw.request_device(descriptor)).map_err(|error| cannot_open(adapter, error, ""))
}

fn cannot_open(
    adapter: &IgpuAdapter,
    error: impl std::error::Error + Send + Sync + 'static,
    what_for: &str,
) -> IgpuError {
    let message = format!(
        "cannot open a device on {}{what_for}: {error}",
        adapter.description()
    );
    IgpuError::new(Kind::Feature, message).caused_by(error)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("the graphics library panicked")
}

#[cfg(test)]
mod tests;
