//! Laws that hold for any writes.
