//! Commands that replace programs of Colmet, or are compared with them.

mod collector;
mod compare;
