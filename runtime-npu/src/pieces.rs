//! Running a kernel of a fixed number of positions over any number of them.

use std::ptr;

use ort::ortsys;
use ort::sys::{ONNXTensorElementDataType as ElementType, OrtRunOptions, OrtValue};

use crate::kernel::Kernel;
use crate::value::{self, RawValue};

const FLOAT: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;

/// Runs `kernel`, which maps float32 `[1, rows, K]` to `[1, rows, N]`, over `[1, any, K]`. `output` is written in place if it holds
/// a value, else receives a new one.
///
/// # Safety
/// `input` is a live tensor that nobody writes to; `output` is null or a live tensor that nobody else touches.
pub(crate) unsafe fn run(
    kernel: &Kernel,
    options: *const OrtRunOptions,
    input: *const OrtValue,
    output: &mut *mut OrtValue,
    rows: usize,
) -> ort::Result<()> {
    let (element, shape) = value::describe(input)?;
    let [1, n_rows, k] = *shape.as_slice() else {
        return Err(ort::Error::new(format!(
            "an NPU kernel takes [1, positions, width], not {shape:?}"
        )));
    };
    if element != FLOAT {
        return Err(ort::Error::new(format!(
            "an NPU kernel takes float32, not {element:?}"
        )));
    }
    let (n_rows, k) = (n_rows as usize, k as usize);
    // SAFETY: the tensor has this type and shape.
    let input =
        unsafe { std::slice::from_raw_parts(value::data(input.cast_mut())?.cast::<f32>(), n_rows * k) };

    // Owned here until it is complete, so that a failing piece leaves nothing behind.
    let mut made: Option<RawValue<'static>> = None;
    let mut padded = vec![0.0f32; rows * k];
    let mut done = 0;
    for piece in input.chunks(rows * k) {
        padded[..piece.len()].copy_from_slice(piece);
        padded[piece.len()..].fill(0.0);
        let result = one_piece(kernel, options, &padded, [1, rows as i64, k as i64])?;
        let (_, shape) = result.describe()?;
        let [1, _, n] = *shape.as_slice() else {
            return Err(ort::Error::new(format!("an NPU kernel gave {shape:?}")));
        };
        let to = match made.as_ref().map_or(*output, RawValue::as_ptr) {
            null if null.is_null() => made.insert(new_tensor(&[1, n_rows as i64, n])?).as_ptr(),
            value => value,
        };
        let (n, piece_rows) = (n as usize, piece.len() / k);
        // SAFETY: the result holds `rows` rows of n, and the output `n_rows`, of which this piece has its share; they are apart.
        unsafe {
            let from = value::data(result.as_ptr())?.cast::<f32>();
            let to = value::data(to)?.cast::<f32>().add(done * n);
            ptr::copy_nonoverlapping(from, to, piece_rows * n);
        }
        done += piece_rows;
    }
    if let Some(made) = made {
        *output = made.into_raw();
    }
    Ok(())
}

fn one_piece(
    kernel: &Kernel,
    options: *const OrtRunOptions,
    rows: &[f32],
    shape: [i64; 3],
) -> ort::Result<RawValue<'static>> {
    // SAFETY: the memory is borrowed until after the run.
    let input =
        unsafe { RawValue::over_raw(rows.as_ptr().cast_mut().cast(), size_of_val(rows), FLOAT, &shape)? };
    let mut outputs = [ptr::null_mut()];
    // SAFETY: the input is alive and the output new.
    unsafe { kernel.run_whole(options, &[input.as_ptr().cast_const()], &mut outputs)? };
    let output =
        ptr::NonNull::new(outputs[0]).ok_or_else(|| ort::Error::new("an NPU kernel gave nothing"))?;
    Ok(RawValue::from_run(output))
}

/// A float32 tensor in memory of ONNX Runtime's own.
fn new_tensor(shape: &[i64]) -> ort::Result<RawValue<'static>> {
    let (mut allocator, mut value) = (ptr::null_mut(), ptr::null_mut());
    ortsys![unsafe GetAllocatorWithDefaultOptions(&mut allocator)?];
    ortsys![unsafe CreateTensorAsOrtValue(allocator, shape.as_ptr(), shape.len(), FLOAT, &mut value)?];
    let value =
        ptr::NonNull::new(value).ok_or_else(|| ort::Error::new("ONNX Runtime returned a null tensor"))?;
    Ok(RawValue::from_run(value))
}
