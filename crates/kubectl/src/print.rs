//! Printers: pure functions from objects to text.
