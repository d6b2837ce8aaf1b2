//! Faults below the store: full and failing disks, kills, power cuts, flipped bytes.

mod following;
mod full;
mod killed;
mod power_cuts;
mod verify;
