//! Client-side apply: the last-applied configuration and three-way patches.

pub mod three_way;
