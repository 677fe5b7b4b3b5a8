// What changes from one decoded token to the next.

struct State {
    // The token to embed.
    token: u32,
    // Its position, which is also how many positions the KV cache holds before it.
    position: u32,
    // Positions the KV cache has room for.
    capacity: u32,
}
