//! The room's tests drive the router itself, over a desk that notes what it was asked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod api;
mod console;
mod documents;
mod fixture;
mod pages;
mod sessions;
mod streams;
mod tasks;
mod whole;
mod wire;
