//! A weight file that shrinks while it is mapped.
