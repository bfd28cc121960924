//! Baseline and extended sequential scans (T.81, annex F).

use super::JpegError;
use super::header::{Frame, Header, QuantTable, Scan, ZIGZAG};
use super::huffman::{BitReader, END_OF_BLOCK, Entropy, Table};
use super::idct::Extent;
use super::plane::Plane;

/// Where each place of the zigzag sequence is stored; runs that leave the block end in an unused place.
const PLACES: [u8; 256] = {
    let mut places = [64; 256];
    let mut k = 0;
    while k < 64 {
        places[k] = ZIGZAG[k];
        k += 1;
    }
    places
};

/// A component of a scan with the tables of its blocks.
struct Part<'a> {
    dc: &'a Table,
    ac: &'a Table,
    quant: QuantTable,
    prediction: i16,
}

/// Decodes one scan into the planes of its components, as far down as the planes reach; compiled for each vector unit.
pub(super) struct ScanJob<'a> {
    pub scan: &'a Scan,
    pub frame: &'a Frame,
    pub header: &'a Header,
    pub entropy: &'a Entropy,
    pub planes: &'a mut [Plane],
}

impl pulp::NullaryFnOnce for ScanJob<'_> {
    type Output = Result<(), JpegError>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let Self { scan, frame, header, entropy, planes } = self;
        let units = scan.units(frame);
        let mut parts = Vec::new();
        let mut rows = 0;
        for part in &scan.components {
            let component = &frame.components[part.index];
            parts.push(Part {
                dc: header.dc[part.dc_table].as_ref().ok_or(JpegError::Missing("Huffman table"))?,
                ac: header.ac[part.ac_table].as_ref().ok_or(JpegError::Missing("Huffman table"))?,
                quant: super::quant_table(header, component)?,
                prediction: 0,
            });
            let unit_rows = if units.interleaved { component.v } else { 1 };
            rows = rows.max(planes[part.index].block_rows().end.div_ceil(unit_rows));
        }
        let interval = if header.restart_interval == 0 { usize::MAX } else { header.restart_interval };
        let mut reader = entropy.interval(0)?;
        for unit in 0..units.wide * rows.min(units.high) {
            if unit > 0 && unit % interval == 0 {
                reader = entropy.interval(unit / interval)?;
                parts.iter_mut().for_each(|part| part.prediction = 0);
            }
            for (part, of) in parts.iter_mut().zip(&scan.components) {
                let plane = &mut planes[of.index];
                for (column, row) in units.blocks(unit, &frame.components[of.index]) {
                    let difference = reader.difference(part.dc)?;
                    part.prediction = part.prediction.wrapping_add(difference);
                    // Room for one more: see `PLACES`.
                    let mut block = [0; 65];
                    block[0] = part.prediction;
                    let extent = Extent::up_to(coefficients(&mut reader, part.ac, &mut block)?);
                    if plane.holds(column, row)
                        && let Some(block) = block.first_chunk()
                    {
                        plane.put(column, row, block, extent, &part.quant);
                    }
                }
            }
            reader.check()?;
        }
        Ok(())
    }
}

/// Reads the AC coefficients of a block, and returns the last place of the zigzag sequence that one was stored at.
#[inline(always)]
fn coefficients(reader: &mut BitReader<'_>, table: &Table, block: &mut [i16; 65]) -> Result<usize, JpegError> {
    let mut k = 1_usize;
    while k < 64 {
        let found = reader.coefficient(table)?;
        if found.run == END_OF_BLOCK {
            break;
        }
        k += usize::from(found.run);
        block[usize::from(PLACES[k & 255])] = found.value;
        k += 1;
    }
    Ok(k - 1)
}
