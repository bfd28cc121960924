//! The framing of TensorFlow's record files (`tensorflow/core/lib/io/record_writer.h`): for each record its length
//! (u64), the masked CRC-32C of the length, the bytes, and the masked CRC-32C of the bytes; all little-endian.

/// CRC-32C, rotated right by 15 bits, plus a constant (`tensorflow/core/lib/hash/crc32c.h`), so that checksums remain
/// effective for data that contain checksums.
pub fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A record with its frame.
pub fn frame(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    let mut framed = Vec::with_capacity(record.len() + 16);
    framed.extend(length);
    framed.extend(masked_crc(&length).to_le_bytes());
    framed.extend(record);
    framed.extend(masked_crc(record).to_le_bytes());
    framed
}
