//! One init graph over the prefill and decode engines, their barriers, and the request path.
