//! Random ID of a start. It distinguishes its batches from those of every other start.

use crate::common::error::DeliveryError;
use model::Boot;
use rustls::crypto::ring;

/// Draws 128 random bits.
///
/// # Errors
/// The kernel provides no random bits.
pub fn draw_boot() -> Result<Boot, DeliveryError> {
    let mut bits = [0; 16];
    let drawn = ring::default_provider().secure_random.fill(&mut bits);
    drawn.map_err(|_| DeliveryError::Random)?;
    Ok(Boot(bits))
}

/// Derives a number that differs at each start.
pub(crate) fn chance(boot: &Boot) -> u64 {
    boot.0.iter().fold(0, |seed, byte| seed << 8 ^ u64::from(*byte))
}
