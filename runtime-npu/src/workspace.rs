//! The values of one pass, and their reuse by the next.
//!
//! The first pass over a number of tokens lets ONNX Runtime allocate each kernel's outputs. For single tokens, which come by the
//! thousand, these values are then kept and bound as outputs of every later pass, so that a token allocates nothing but its
//! attention mask. Slots that are never alive together share one value, which keeps the working set in the cache.

use std::collections::HashMap;
use std::ptr::{self, NonNull};

use ort::sys::{ONNXTensorElementDataType as ElementType, OrtValue};

use crate::kernel::Kernel;
use crate::program::{Program, Slot};
use crate::runtime::RunOptions;
use crate::value::{self, RawValue};

/// Values by slot.
pub(crate) struct Workspace {
    /// What each slot holds in this pass; not owned.
    current: Vec<*mut OrtValue>,
    /// Values that this pass allocated and that die with it.
    owned: Vec<Option<RawValue<'static>>>,
    /// Values that are bound in every pass over one token, by slot; filled by the first such pass.
    bound: Option<Bound>,
}

/// Values bound as outputs.
struct Bound {
    values: Vec<RawValue<'static>>,
    of_slot: Vec<Option<usize>>,
}

/// Whether a pass may use and fill the values that are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// One token: shapes are the same each time.
    Bind,
    /// Any other length: values are freed at their last use.
    Free,
}

// SAFETY: `current` holds pointers only during a pass, under the engine's lock; the values themselves are Send.
unsafe impl Send for Workspace {}

impl Workspace {
    pub(crate) fn new(program: &Program) -> Self {
        Self {
            current: vec![ptr::null_mut(); program.n_slots],
            owned: (0..program.n_slots).map(|_| None).collect(),
            bound: None,
        }
    }

    /// Puts a value that the caller keeps alive into a slot.
    pub(crate) fn set(&mut self, slot: Slot, value: &RawValue<'_>) {
        self.current[slot.index()] = value.as_ptr();
    }

    /// Element type, shape and memory of what a slot holds in this pass.
    pub(crate) fn describe(&self, slot: Slot) -> ort::Result<Option<(ElementType, Vec<i64>, *mut u8)>> {
        let value = self.current[slot.index()];
        if value.is_null() {
            return Ok(None);
        }
        let (element, shape) = value::describe(value)?;
        Ok(Some((element, shape, value::data(value)?)))
    }

    /// Runs steps `range` of the program.
    pub(crate) fn run(
        &mut self,
        program: &Program,
        kernels: &[Kernel],
        range: std::ops::Range<usize>,
        reuse: Reuse,
        options: &RunOptions,
    ) -> Result<(), (usize, ort::Error)> {
        let mut outputs = Vec::with_capacity(4);
        let mut inputs: Vec<*const OrtValue> = Vec::with_capacity(12);
        for index in range {
            let step = &program.steps[index];
            inputs.clear();
            inputs.extend(
                step.inputs
                    .iter()
                    .map(|slot| self.current[slot.index()].cast_const()),
            );
            outputs.clear();
            for &slot in &step.outputs {
                let value = self.output(program, slot, step.steady && reuse == Reuse::Bind);
                self.current[slot.index()] = value;
                outputs.push(value);
            }
            // SAFETY: inputs are values of this pass, set before their first reader runs, since steps are in topological order.
            // An output is new, or bound and not alive, or the sequence's cache, which the caller borrows mutably.
            unsafe { kernels[index].run(options.as_ptr(), &inputs, &mut outputs) }
                .map_err(|error| (index, error))?;
            for (&slot, &value) in step.outputs.iter().zip(&outputs) {
                // Bound values were set before; what is new belongs to this pass.
                if self.current[slot.index()] != value {
                    self.current[slot.index()] = value;
                    self.owned[slot.index()] = NonNull::new(value).map(RawValue::from_run);
                }
            }
            if reuse == Reuse::Free {
                step.last_use_of
                    .iter()
                    .for_each(|slot| self.owned[slot.index()] = None);
            }
        }
        Ok(())
    }

    /// The value that a step writes in place, or null for a new one.
    fn output(&self, program: &Program, slot: Slot, bind: bool) -> *mut OrtValue {
        if program.in_place[slot.index()] {
            return self.current[slot.index()];
        }
        let bound = self.bound.as_ref().filter(|_| bind);
        bound
            .and_then(|b| Some(b.values[b.of_slot[slot.index()]?].as_ptr()))
            .unwrap_or(ptr::null_mut())
    }

    /// Ends a pass: everything that it allocated is freed, or after the first pass over one token kept for the next ones.
    pub(crate) fn finish(&mut self, program: &Program, keep: bool) -> ort::Result<()> {
        if keep && self.bound.is_none() {
            self.bound = Some(Bound::of(program, &mut self.owned)?);
        }
        self.owned.iter_mut().for_each(|value| *value = None);
        self.current.fill(ptr::null_mut());
        Ok(())
    }
}

impl Bound {
    /// Deals values out to slots in the order of the program: a slot takes over a value of its type and shape whose slot is dead.
    fn of(program: &Program, owned: &mut [Option<RawValue<'static>>]) -> ort::Result<Self> {
        let mut bound = Self {
            values: Vec::new(),
            of_slot: vec![None; program.n_slots],
        };
        let mut free: HashMap<(i32, Vec<i64>), Vec<usize>> = HashMap::new();
        let mut kinds: Vec<(ElementType, Vec<i64>)> = Vec::new();
        for step in program.steps.iter().filter(|step| step.steady) {
            for &slot in &step.outputs {
                let Some(value) = owned[slot.index()].take() else {
                    continue;
                };
                let (element, shape) = value.describe()?;
                let index = free
                    .get_mut(&(element as i32, shape.clone()))
                    .and_then(Vec::pop)
                    .unwrap_or_else(|| {
                        bound.values.push(value);
                        kinds.push((element, shape));
                        bound.values.len() - 1
                    });
                bound.of_slot[slot.index()] = Some(index);
            }
            for &slot in &step.last_use_of {
                if let Some(index) = bound.of_slot[slot.index()] {
                    let (element, shape) = &kinds[index];
                    free.entry((*element as i32, shape.clone()))
                        .or_default()
                        .push(index);
                }
            }
        }
        Ok(bound)
    }
}
