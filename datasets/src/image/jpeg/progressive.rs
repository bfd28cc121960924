//! Progressive scans: coefficients refined bit by bit (T.81, annex G).

use super::JpegError;
use super::header::{Component, Frame, Header, Scan, ZIGZAG};
use super::huffman::{BitReader, Entropy, Table};
use super::idct::Block;

/// The coefficients of one component, block by block, with padding to whole units of interleaved scans.
pub(super) struct Coefficients {
    blocks: Vec<Block>,
    blocks_wide: usize,
}

impl Coefficients {
    /// Room for all blocks of `component`, all zero.
    pub fn new(component: &Component, frame: &Frame) -> Self {
        let blocks_wide = frame.mcus_wide * component.h;
        Self { blocks: vec![[0; 64]; blocks_wide * frame.mcus_high * component.v], blocks_wide }
    }

    /// One block.
    pub fn block(&self, column: usize, row: usize) -> &Block {
        &self.blocks[row * self.blocks_wide + column]
    }
}

/// The state that blocks of a restart interval share.
struct State {
    /// Last DC value of each component of the scan.
    predictions: [i16; 4],
    /// Blocks of the current band still without new coefficients.
    end_of_band: u32,
}

/// Decodes one scan into the coefficients of all components.
pub(super) fn decode_scan(
    scan: &Scan,
    frame: &Frame,
    header: &Header,
    entropy: &Entropy,
    coefficients: &mut [Coefficients],
) -> Result<(), JpegError> {
    let units = scan.units(frame);
    let interval = if header.restart_interval == 0 { usize::MAX } else { header.restart_interval };
    let mut reader = entropy.interval(0)?;
    let mut state = State { predictions: [0; 4], end_of_band: 0 };
    for unit in 0..units.count() {
        if unit > 0 && unit % interval == 0 {
            reader = entropy.interval(unit / interval)?;
            state = State { predictions: [0; 4], end_of_band: 0 };
        }
        for (slot, part) in scan.components.iter().enumerate() {
            let target = &mut coefficients[part.index];
            for (column, row) in units.blocks(unit, &frame.components[part.index]) {
                let block = &mut target.blocks[row * target.blocks_wide + column];
                if scan.start == 0 {
                    let table = header.dc[part.dc_table].as_ref();
                    dc(scan, &mut reader, table, &mut state.predictions[slot], block)?;
                } else {
                    let table = header.ac[part.ac_table].as_ref().ok_or(JpegError::Missing("Huffman table"))?;
                    if scan.high == 0 {
                        ac_first(scan, &mut reader, table, &mut state.end_of_band, block)?;
                    } else {
                        ac_refine(scan, &mut reader, table, &mut state.end_of_band, block)?;
                    }
                }
            }
        }
        reader.check()?;
    }
    Ok(())
}

fn dc(
    scan: &Scan,
    reader: &mut BitReader<'_>,
    table: Option<&Table>,
    prediction: &mut i16,
    block: &mut Block,
) -> Result<(), JpegError> {
    if scan.high == 0 {
        let difference = reader.difference(table.ok_or(JpegError::Missing("Huffman table"))?)?;
        *prediction = prediction.wrapping_add(difference);
        block[0] = prediction.wrapping_shl(scan.low);
    } else {
        block[0] |= (reader.take(1) << scan.low) as i16;
    }
    Ok(())
}

/// Coefficients of a band, first scan: zero runs and values, or a number of blocks without any.
fn ac_first(
    scan: &Scan,
    reader: &mut BitReader<'_>,
    table: &Table,
    end_of_band: &mut u32,
    block: &mut Block,
) -> Result<(), JpegError> {
    if *end_of_band > 0 {
        *end_of_band -= 1;
        return Ok(());
    }
    let mut k = scan.start;
    while k <= scan.end {
        let symbol = reader.symbol(table)?;
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        if size == 0 && run < 15 {
            *end_of_band = (1 << run) - 1 + reader.take(run);
            return Ok(());
        }
        k += run as usize;
        if size > 0 {
            let value = reader.signed(size).wrapping_shl(scan.low);
            *coefficient(block, k)? = value;
        }
        k += 1;
    }
    Ok(())
}

/// The coefficient at place `k` of the zigzag sequence.
fn coefficient(block: &mut Block, k: usize) -> Result<&mut i16, JpegError> {
    let position = ZIGZAG.get(k).ok_or(JpegError::Corrupt("a run beyond the end of a block"))?;
    Ok(&mut block[usize::from(*position)])
}

/// Coefficients of a band, later scans: one more bit for those that are not zero, and new ones of that bit's weight.
fn ac_refine(
    scan: &Scan,
    reader: &mut BitReader<'_>,
    table: &Table,
    end_of_band: &mut u32,
    block: &mut Block,
) -> Result<(), JpegError> {
    let bit = 1_i16 << scan.low;
    let mut k = scan.start;
    if *end_of_band == 0 {
        while k <= scan.end {
            let symbol = reader.symbol(table)?;
            let (run, size) = (u32::from(symbol >> 4), symbol & 15);
            if size == 0 && run < 15 {
                *end_of_band = (1 << run) + reader.take(run);
                break;
            }
            // A new coefficient has one bit; any other size is a defect that libjpeg ignores too.
            let value = if size == 0 { 0 } else { if reader.take(1) == 1 { bit } else { -bit } };
            let mut zeros = run;
            while k <= scan.end {
                let current = coefficient(block, k)?;
                if *current != 0 {
                    refine(current, bit, reader);
                } else if zeros == 0 {
                    *current = value;
                    break;
                } else {
                    zeros -= 1;
                }
                k += 1;
            }
            k += 1;
        }
    }
    if *end_of_band > 0 {
        for k in k..=scan.end {
            let current = coefficient(block, k)?;
            if *current != 0 {
                refine(current, bit, reader);
            }
        }
        *end_of_band -= 1;
    }
    Ok(())
}

/// Reads one more bit of a coefficient that is not zero.
fn refine(value: &mut i16, bit: i16, reader: &mut BitReader<'_>) {
    if reader.take(1) == 1 && *value & bit == 0 {
        *value = if *value >= 0 { value.wrapping_add(bit) } else { value.wrapping_sub(bit) };
    }
}
