//! One ONNX Runtime value, owned, created over memory that somebody else owns or returned by a run.
//!
//! `ort`'s own [`ort::value::Value`] carries its type, memory information and backing in several allocations, which costs more
//! than a small kernel's run; the engine makes thousands of values per prompt, so it holds the bare pointer.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use ort::sys::{ONNXTensorElementDataType as ElementType, OrtMemoryInfo, OrtValue};
use ort::{AsPointer, ortsys};

/// Bytes of a tensor; 4-bit elements are packed two to a byte.
pub(crate) fn byte_len(element: ElementType, shape: &[i64]) -> usize {
    use ElementType::*;
    let bits = match element {
        ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64
        | ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64
        | ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE => 64,
        ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
        | ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32
        | ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32 => 32,
        ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16
        | ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16
        | ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16
        | ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16 => 16,
        ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4 | ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4 => 4,
        _ => 8,
    };
    (shape.iter().product::<i64>() as usize * bits).div_ceil(8)
}

/// An owned `OrtValue`. `'m` is the memory it was created over; a value that a run returned owns its memory and is `'static`.
pub(crate) struct RawValue<'m> {
    pointer: NonNull<OrtValue>,
    memory: PhantomData<&'m [u8]>,
}

// SAFETY: an OrtValue is a reference-counted tensor without thread affinity; it is only ever used through `&self` for reading by
// runs, and released once.
unsafe impl Send for RawValue<'_> {}
// SAFETY: as above; nothing here mutates through `&self`.
unsafe impl Sync for RawValue<'_> {}

impl<'m> RawValue<'m> {
    /// A tensor over `bytes`, which must hold exactly what `shape` and `element` say.
    pub(crate) fn over(bytes: &'m [u8], element: ElementType, shape: &[i64]) -> ort::Result<Self> {
        assert_eq!(
            bytes.len(),
            byte_len(element, shape),
            "tensor memory and shape disagree"
        );
        // SAFETY: the memory is borrowed for 'm, and no run writes to its inputs.
        unsafe { Self::over_raw(bytes.as_ptr().cast_mut().cast(), bytes.len(), element, shape) }
    }

    /// A tensor over integers.
    pub(crate) fn over_slice<T: Integer>(values: &'m [T], shape: &[i64]) -> ort::Result<Self> {
        // SAFETY: integers have no padding and the length in bytes is that of the slice.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        Self::over(bytes, T::ELEMENT, shape)
    }

    /// A tensor over `n_bytes` at `data`.
    ///
    /// # Safety
    /// The memory is valid for 'm, and if the value is bound as an output, nobody else reads or writes it during the run.
    pub(crate) unsafe fn over_raw(
        data: *mut c_void,
        n_bytes: usize,
        element: ElementType,
        shape: &[i64],
    ) -> ort::Result<Self> {
        let mut value = ptr::null_mut();
        ortsys![unsafe CreateTensorWithDataAsOrtValue(
            memory_info(), data, n_bytes, shape.as_ptr(), shape.len(), element, &mut value
        )?];
        Ok(Self::from_run(
            NonNull::new(value).expect("ONNX Runtime returned a null tensor"),
        ))
    }

    /// Takes ownership of a value that a run returned.
    pub(crate) fn from_run(pointer: NonNull<OrtValue>) -> Self {
        Self {
            pointer,
            memory: PhantomData,
        }
    }

    /// Gives the value up; somebody else releases it.
    pub(crate) fn into_raw(self) -> *mut OrtValue {
        let pointer = self.pointer.as_ptr();
        std::mem::forget(self);
        pointer
    }

    pub(crate) fn as_ptr(&self) -> *mut OrtValue {
        self.pointer.as_ptr()
    }

    /// Element type and shape.
    pub(crate) fn describe(&self) -> ort::Result<(ElementType, Vec<i64>)> {
        describe(self.as_ptr())
    }
}

/// Integer types of tensors made here.
pub(crate) trait Integer: Copy {
    const ELEMENT: ElementType;
}

impl Integer for i64 {
    const ELEMENT: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
}

impl Integer for i32 {
    const ELEMENT: ElementType = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
}

/// Element type and shape of a live value.
pub(crate) fn describe(value: *const OrtValue) -> ort::Result<(ElementType, Vec<i64>)> {
    let mut info = ptr::null_mut();
    ortsys![unsafe GetTensorTypeAndShape(value, &mut info)?];
    let described = (|| -> ort::Result<(ElementType, Vec<i64>)> {
        let mut element = ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        ortsys![unsafe GetTensorElementType(info, &mut element)?];
        let mut n_dims = 0;
        ortsys![unsafe GetDimensionsCount(info, &mut n_dims)?];
        let mut shape = vec![0; n_dims];
        ortsys![unsafe GetDimensions(info, shape.as_mut_ptr(), n_dims)?];
        Ok((element, shape))
    })();
    ortsys![unsafe ReleaseTensorTypeAndShapeInfo(info)];
    described
}

/// Where a live value's elements are.
pub(crate) fn data(value: *mut OrtValue) -> ort::Result<*mut u8> {
    let mut data = ptr::null_mut();
    ortsys![unsafe GetTensorMutableData(value, &mut data)?];
    Ok(data.cast())
}

impl Drop for RawValue<'_> {
    fn drop(&mut self) {
        ortsys![unsafe ReleaseValue(self.as_ptr())];
    }
}

/// CPU memory, described once per process.
pub(crate) fn memory_info() -> *const OrtMemoryInfo {
    use std::sync::OnceLock;

    static INFO: OnceLock<ort::memory::MemoryInfo<'static>> = OnceLock::new();
    INFO.get_or_init(ort::memory::MemoryInfo::default).ptr()
}

/// ONNX Runtime's name of an element type; both number them alike.
pub(crate) fn element_type(dtype: onnx_model::DataType) -> ElementType {
    use ElementType::*;
    use onnx_model::DataType;
    match dtype {
        DataType::Float32 => ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DataType::Uint8 => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DataType::Int8 => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DataType::Uint16 => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        DataType::Int16 => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        DataType::Int32 => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DataType::Int64 => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DataType::String => ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
        DataType::Bool => ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DataType::Float16 => ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DataType::Float64 => ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        DataType::Uint32 => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        DataType::Uint64 => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        DataType::BFloat16 => ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        DataType::Float8E4M3Fn => ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN,
        DataType::Float8E5M2 => ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2,
        DataType::Uint4 => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4,
        DataType::Int4 => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4,
    }
}
