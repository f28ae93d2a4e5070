//! Tests of log and machine: openraft's own suite, power loss at every operation of one node, three
//! nodes that lose power, snapshots, and stores that do not belong to a node.

mod cluster;
mod crashes;
mod misuse;
mod network;
mod node;
mod snapshots;
mod suite;
