//! Weights as tiles of pairs: `[2 destination blocks][2 source blocks][tap][part][destination block][16 pairs of source
//! channels][16 destination channels]`, with zeros where there is no block.

use crate::blocked::C0;
use crate::conv::ConvShape;
use crate::conv::weights::{Direction, PackedLayout};
use crate::isa::Isa;
use crate::micro::amx::{MAX_TILES, TILE};
use crate::parts::{Parts, for_parts, store_pairs};
use crate::simd::{pixels, vectorised};
use rayon::prelude::*;

/// Words of one tap: two source blocks, all parts of two destination blocks.
pub(super) fn tap_words(parts: Parts) -> usize {
    parts.count() * MAX_TILES * TILE
}

/// Words of all weights.
pub(in crate::conv) fn packed_words(shape: &ConvShape, direction: Direction, parts: Parts) -> usize {
    let [dest, source] = direction.blocks(shape).map(|blocks| blocks.div_ceil(2));
    dest * source * shape.taps() * tap_words(parts)
}

/// Converts packed weights of a dense convolution of 16 input channels or more.
pub(in crate::conv) fn pack(
    isa: Isa,
    shape: &ConvShape,
    direction: Direction,
    parts: Parts,
    packed: &[f32],
    tiles: &mut [u32],
) {
    let layout = PackedLayout::forward(shape);
    assert_eq!(packed.len(), layout.len(), "packed weights");
    assert_eq!(tiles.len(), packed_words(shape, direction, parts), "workspace");
    let [dest_blocks, source_blocks] = direction.blocks(shape);
    let (taps, sources) = (shape.taps(), source_blocks.div_ceil(2));
    tiles.par_chunks_exact_mut(taps * tap_words(parts)).enumerate().for_each(|(index, tiles)| {
        let (pair, source) = (index / sources, index % sources);
        for (tap, tiles) in tiles.chunks_exact_mut(tap_words(parts)).enumerate() {
            for half in 0..2 * MAX_TILES {
                let (dest, source) = (2 * pair + half / 2, 2 * source + half % 2);
                let at = half * TILE / 2;
                if dest >= dest_blocks || source >= source_blocks {
                    tiles.chunks_exact_mut(MAX_TILES * TILE).for_each(|part| part[at..][..TILE / 2].fill(0));
                    continue;
                }
                let (output, input) = match direction {
                    Direction::Forward => (dest, source),
                    Direction::Transposed => (source, dest),
                };
                let matrix = &packed[layout.part(output, input)][tap * C0 * C0..][..C0 * C0];
                for_parts!(parts, convert(isa, matrix, direction == Direction::Transposed, &mut tiles[at..]));
            }
        }
    });
}

vectorised! {
    /// Pairs of rows of a matrix of 16 x 16, or of its transpose.
    fn convert [const P: usize,] [P] (simd, matrix: &[f32], transposed: bool, tiles: &mut [u32]) -> () {
        let matrix = pixels(matrix);
        let mut rows = [simd.splat(0.0); C0];
        for (row, values) in rows.iter_mut().zip(matrix) {
            *row = simd.load(values);
        }
        if transposed {
            rows = simd.transpose(rows);
        }
        for (index, pair) in rows.as_chunks::<2>().0.iter().enumerate() {
            store_pairs::<S, P>(simd, *pair, tiles, index * C0, MAX_TILES * TILE);
        }
    }
}
