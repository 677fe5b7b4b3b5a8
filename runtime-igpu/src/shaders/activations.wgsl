// Activation functions; the constant ACTIVATION picks one.

const SIGMOID: u32 = 0u;
const SILU: u32 = 1u;
const GELU_ERF: u32 = 2u;
const GELU_TANH: u32 = 3u;
const QUICK_GELU: u32 = 4u;
const TANH: u32 = 5u;
const RELU: u32 = 6u;

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-x));
}

// tanh overflows to NaN on some drivers far from zero, where it is 1 anyway.
fn safe_tanh(x: f32) -> f32 {
    return tanh(clamp(x, -15.0, 15.0));
}

// erf to 1.2e-7 absolute: Numerical Recipes' Chebyshev fit of erfc (section 6.2).
fn erf(x: f32) -> f32 {
    let z = abs(x);
    let t = 1.0 / (1.0 + 0.5 * z);
    let tail = t * exp(-z * z - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806
        + t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
    return sign(x) * (1.0 - tail);
}

fn activate(x: f32) -> f32 {
    if (ACTIVATION == SIGMOID) {
        return sigmoid(x);
    }
    if (ACTIVATION == SILU) {
        return x * sigmoid(x);
    }
    if (ACTIVATION == GELU_ERF) {
        return 0.5 * x * (1.0 + erf(x * 0.70710678));
    }
    if (ACTIVATION == GELU_TANH) {
        return 0.5 * x * (1.0 + safe_tanh(0.79788456 * (x + 0.044715 * x * x * x)));
    }
    if (ACTIVATION == QUICK_GELU) {
        return x * sigmoid(1.702 * x);
    }
    if (ACTIVATION == TANH) {
        return safe_tanh(x);
    }
    return max(x, 0.0);
}
