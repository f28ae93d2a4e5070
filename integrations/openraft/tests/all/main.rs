//! Tests of log and machine: openraft's own suite, power loss at every operation of one node, and
//! three nodes that lose power.

mod cluster;
mod crashes;
mod network;
mod node;
mod suite;
