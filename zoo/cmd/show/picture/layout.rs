//! The layout of a picture.
//!
//! An architecture is a tree of sequences and branches, and so is its layout: parts of a sequence are placed below each
//! other, branches side by side. Layers that start from a named value form a separate strand. Independent strands are
//! placed side by side, others below the strand from which they start. Lengths are in pixels of 1/96 inch.

use super::outline::{Outline, Part, Unit};
use std::collections::BTreeMap;
use zoo_recipe::layers::Work;

/// Height of a line of text.
pub(super) const LINE: f64 = 14.0;
/// Average width of a character.
const CHARACTER: f64 = 6.3;
/// The longest curve between a tap and its use.
const LONGEST_CURVE: f64 = 240.0;
/// Space between two parts of a sequence: an edge with a shape next to it.
const GAP: f64 = 24.0;
/// Room inside frames.
const PAD: f64 = 12.0;
/// Room between branches.
const BETWEEN: f64 = 22.0;
/// Room around the picture.
const MARGIN: f64 = 24.0;
/// Height of a frame's title.
pub(super) const TITLE: f64 = 20.0;
/// Columns that are higher than this are split.
const COLUMN: f64 = 1000.0;
/// Most columns side by side.
const MOST_COLUMNS: usize = 6;
/// Width divided by height of a page in landscape format.
const PAGE: f64 = std::f64::consts::SQRT_2;

/// A picture.
#[derive(Debug)]
pub(super) struct Drawing {
    pub width: f64,
    pub height: f64,
    /// Marks in the order of painting.
    pub marks: Vec<Mark>,
}

/// A positioned element.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// A module, `depth` frames deep.
    Frame { x: f64, y: f64, width: f64, height: f64, title: String, depth: usize },
    /// A line through these points.
    Line { points: Vec<(f64, f64)>, arrow: bool },
    /// A curve to a use of a named value.
    Curve { from: (f64, f64), to: (f64, f64) },
    /// A label next to an edge.
    Label { x: f64, y: f64, text: String },
    /// A box of layers.
    Box { x: f64, y: f64, width: f64, height: f64, unit: Unit },
    /// An input or output.
    Pill { x: f64, y: f64, width: f64, text: String },
    /// A named value.
    Dot { x: f64, y: f64, name: String },
}

impl Mark {
    fn shifted(mut self, dx: f64, dy: f64) -> Self {
        match &mut self {
            Self::Frame { x, y, .. }
            | Self::Label { x, y, .. }
            | Self::Box { x, y, .. }
            | Self::Pill { x, y, .. }
            | Self::Dot { x, y, .. } => (*x, *y) = (*x + dx, *y + dy),
            Self::Line { points, .. } => points.iter_mut().for_each(|(x, y)| (*x, *y) = (*x + dx, *y + dy)),
            Self::Curve { from, to } => {
                [from, to].into_iter().for_each(|(x, y)| (*x, *y) = (*x + dx, *y + dy));
            }
        }
        self
    }

    /// The painting order: background elements first.
    fn order(&self) -> (usize, usize) {
        match self {
            Self::Frame { depth, .. } => (0, *depth),
            // Curves to distant uses pass behind lines and boxes.
            Self::Curve { .. } => (1, 0),
            Self::Line { .. } => (2, 0),
            Self::Box { .. } => (3, 0),
            Self::Pill { .. } => (4, 0),
            Self::Dot { .. } => (5, 0),
            Self::Label { .. } => (6, 0),
        }
    }
}

/// A position at which a named value is defined or used.
#[derive(Clone, Debug)]
struct Anchor {
    name: String,
    at: (f64, f64),
}

/// A laid-out part around the axis `x = 0`, from `y = 0` downwards.
#[derive(Clone, Debug, Default)]
struct Block {
    left: f64,
    right: f64,
    height: f64,
    marks: Vec<Mark>,
    /// Whether it starts from another value than the previous part.
    fresh: bool,
    /// Whether the input ends at a box, so that an arrow makes sense.
    arrow: bool,
    /// Position and shape of its output.
    exit: Option<((f64, f64), String)>,
    taps: Vec<Anchor>,
    uses: Vec<Anchor>,
}

impl Block {
    /// Adds another block at an offset and extends the bounds.
    fn absorb(&mut self, other: Block, dx: f64, dy: f64) {
        self.left = self.left.max(other.left - dx);
        self.right = self.right.max(other.right + dx);
        self.height = self.height.max(other.height + dy);
        self.marks.extend(other.marks.into_iter().map(|mark| mark.shifted(dx, dy)));
        let moved = |anchor: Anchor| Anchor { at: (anchor.at.0 + dx, anchor.at.1 + dy), ..anchor };
        self.taps.extend(other.taps.into_iter().map(moved));
        self.uses.extend(other.uses.into_iter().map(moved));
    }

    fn line(&mut self, points: Vec<(f64, f64)>, arrow: bool) {
        self.marks.push(Mark::Line { points, arrow });
    }

    fn label(&mut self, x: f64, y: f64, text: &str) {
        if !text.is_empty() {
            self.right = self.right.max(x + width(text));
            self.marks.push(Mark::Label { x, y, text: text.to_owned() });
        }
    }
}

/// Lays out a whole network.
pub(super) fn lay_out(outline: &Outline) -> Drawing {
    let mut block = row(&outline.body, 0);
    let taps: BTreeMap<String, (f64, f64)> = block.taps.iter().map(|place| (place.name.clone(), place.at)).collect();
    for place in std::mem::take(&mut block.uses) {
        // For longer distances, the name of the tap at both ends is clearer than a curve across boxes.
        let near = |from: &&(f64, f64)| (from.0 - place.at.0).hypot(from.1 - place.at.1) <= LONGEST_CURVE;
        if let Some(from) = taps.get(&place.name).filter(near) {
            block.marks.push(Mark::Curve { from: *from, to: place.at });
        }
    }
    let (dx, dy) = (block.left + MARGIN, MARGIN);
    let mut marks: Vec<Mark> = block.marks.into_iter().map(|mark| mark.shifted(dx, dy)).collect();
    marks.sort_by_key(Mark::order);
    Drawing { width: block.left + block.right + 2.0 * MARGIN, height: block.height + 2.0 * MARGIN, marks }
}

fn width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// A sequence of parts: one strand, or several.
fn row(parts: &[Part], depth: usize) -> Block {
    let mut strands: Vec<Vec<Block>> = Vec::new();
    for part in parts {
        let block = part_of(part, depth);
        match strands.last_mut() {
            Some(strand) if !block.fresh => strand.push(block),
            _ => strands.push(vec![block]),
        }
    }
    let mut strands: Vec<Block> = strands.into_iter().map(strand).collect();
    if strands.len() < 2 {
        return strands.pop().unwrap_or_default();
    }
    let ranks = ranks(&strands);
    let last = strands.len() - 1;
    let mut all = Block { fresh: strands[0].fresh, arrow: strands[0].arrow, ..Block::default() };
    let mut rows: BTreeMap<usize, Vec<(usize, Block)>> = BTreeMap::new();
    for (index, (strand, rank)) in strands.into_iter().zip(ranks).enumerate() {
        rows.entry(rank).or_default().push((index, strand));
    }
    let mut y = 0.0;
    // The axis is that of the first strand; the other rows are centred on the first row.
    let first: f64 = rows.values().next().map_or(0.0, |row| spread(row) / 2.0);
    let origin = rows.values().next().and_then(|row| row.first()).map_or(0.0, |(_, strand)| strand.left);
    for (number, row) in rows.into_values().enumerate() {
        let mut x = if number == 0 { -origin } else { first - origin - spread(&row) / 2.0 };
        let top = y;
        for (index, strand) in row {
            x += strand.left;
            let (right, height, exit) = (strand.right, strand.height, strand.exit.clone());
            all.absorb(strand, x, top);
            if index == last {
                all.exit = exit.map(|((ex, ey), shape)| ((ex + x, ey + top), shape));
            }
            x += right + 2.0 * BETWEEN;
            y = y.max(top + height);
        }
        y += 2.0 * GAP;
    }
    all
}

fn spread(row: &[(usize, Block)]) -> f64 {
    let widths: f64 = row.iter().map(|(_, strand)| strand.left + strand.right).sum();
    widths + 2.0 * BETWEEN * (row.len().saturating_sub(1)) as f64
}

/// The row of each strand: below all strands with a value that it uses.
fn ranks(strands: &[Block]) -> Vec<usize> {
    let mut ranks: Vec<usize> = Vec::new();
    for strand in strands {
        let needs = |earlier: &Block| earlier.taps.iter().any(|tap| strand.uses.iter().any(|u| u.name == tap.name));
        let above = ranks.iter().zip(strands).filter(|(_, earlier)| needs(earlier)).map(|(rank, _)| rank + 1);
        ranks.push(above.max().unwrap_or(0));
    }
    ranks
}

/// Blocks below each other on one axis, split into several columns if the column would be too high.
fn strand(blocks: Vec<Block>) -> Block {
    let (fresh, arrow) = blocks.first().map_or((false, false), |block| (block.fresh, block.arrow));
    let mut columns: Vec<Block> = broken(blocks).into_iter().map(column).collect();
    if columns.len() < 2 {
        return Block { fresh, arrow, ..columns.pop().unwrap_or_default() };
    }
    // Edges between columns run below their source and above the first row.
    let mut all = Block { fresh, ..Block::default() };
    let (mut axis, mut bottom) = (0.0, 0.0);
    let mut before: Option<((f64, f64), String)> = None;
    for (index, column) in columns.into_iter().enumerate() {
        if index > 0 {
            let gutter = all.right + BETWEEN;
            axis = gutter + BETWEEN + column.left;
            if let Some(((x, y), shape)) = before {
                let down = bottom + GAP / 2.0;
                let points = vec![(x, y), (x, down), (gutter, down), (gutter, 2.0), (axis, 2.0), (axis, GAP)];
                all.line(points, column.arrow);
                all.label(x + 4.0, down - 3.0, &shape);
                all.height = all.height.max(down);
            }
        }
        before = column.exit.clone().map(|((x, y), shape)| ((x + axis, y + GAP), shape));
        bottom = column.height + GAP;
        all.absorb(column, axis, GAP);
    }
    if !fresh {
        all.line(vec![(0.0, 0.0), (0.0, GAP)], arrow);
    }
    all.exit = before;
    all
}

/// Blocks by column: the number of columns is the one that comes closest to the proportions of a page.
fn broken(blocks: Vec<Block>) -> Vec<Vec<Block>> {
    let total: f64 = blocks.iter().map(|block| block.height + GAP).sum();
    if total <= COLUMN {
        return vec![blocks];
    }
    let proportions = |lengths: &[usize]| {
        let mut rest = blocks.as_slice();
        let (mut wide, mut high) = (0.0_f64, 0.0_f64);
        for length in lengths {
            let (column, after) = rest.split_at(*length);
            rest = after;
            wide +=
                column.iter().map(|b| b.left).fold(0.0, f64::max) + column.iter().map(|b| b.right).fold(0.0, f64::max);
            high = high.max(column.iter().map(|block| block.height + GAP).sum());
        }
        ((wide / high) / PAGE).ln().abs()
    };
    let candidates = (1..=MOST_COLUMNS).map(|columns| even(&blocks, columns));
    let best = candidates.min_by(|a, b| proportions(a).total_cmp(&proportions(b))).unwrap_or_default();
    let mut blocks = blocks.into_iter();
    best.into_iter().map(|length| blocks.by_ref().take(length).collect()).collect()
}

/// The number of blocks in each column, with a limited number of columns, so that the highest column is as low as
/// possible.
fn even(blocks: &[Block], columns: usize) -> Vec<usize> {
    let fill = |most: f64| {
        let mut lengths = vec![0];
        let mut height = 0.0;
        for block in blocks {
            if height > 0.0 && height + block.height + GAP > most {
                lengths.push(0);
                height = 0.0;
            }
            height += block.height + GAP;
            if let Some(last) = lengths.last_mut() {
                *last += 1;
            }
        }
        lengths
    };
    let total: f64 = blocks.iter().map(|block| block.height + GAP).sum();
    let (mut low, mut high) = (0.0, total);
    // Bisection to a fraction of a pixel.
    for _ in 0..20 {
        let middle = (low + high) / 2.0;
        if fill(middle).len() <= columns { high = middle } else { low = middle }
    }
    fill(high)
}

/// Blocks below each other on one axis.
fn column(blocks: Vec<Block>) -> Block {
    let (fresh, arrow) = blocks.first().map_or((false, false), |block| (block.fresh, block.arrow));
    let mut here = Block { fresh, arrow, ..Block::default() };
    for block in blocks {
        let top = if here.height > 0.0 { here.height + GAP } else { 0.0 };
        if let Some(((x, y), shape)) = here.exit.take() {
            let bottom = y.max(here.height);
            let turn = bottom + GAP / 2.0;
            let over_there = x != 0.0;
            let over = if over_there { vec![(x, turn), (0.0, turn)] } else { vec![] };
            here.line([vec![(x, y)], over, vec![(0.0, top)]].concat(), block.arrow);
            here.label(x + 4.0, if over_there { turn - 4.0 } else { turn + 3.0 }, &shape);
        }
        place(&mut here, block, top);
    }
    here
}

/// Appends a block below; its output becomes the current output.
fn place(here: &mut Block, block: Block, top: f64) {
    let exit = block.exit.clone().map(|((x, y), shape)| ((x, y + top), shape));
    here.absorb(block, 0.0, top);
    here.exit = exit;
}

fn part_of(part: &Part, depth: usize) -> Block {
    match part {
        Part::Box(unit) => boxed(unit),
        Part::Frame { title, body } => frame(title, row(body, depth + 1), depth),
        Part::Branches { lanes, join } => branches(lanes, join, depth),
        Part::Input { name, shape } => {
            let mut block = pill(name);
            (block.fresh, block.exit) = (true, Some(((0.0, block.height), shape.clone())));
            block
        }
        Part::Output { name, .. } => pill(name),
        Part::Tap { name, output, shape } => tap(name, output.as_deref(), shape),
        Part::From(name) => {
            let mut block = Block { fresh: true, height: 8.0, left: 4.0, right: 4.0, ..Block::default() };
            block.marks.push(Mark::Dot { x: 0.0, y: 4.0, name: String::new() });
            block.label(8.0, 8.0, last(name));
            block.uses.push(Anchor { name: name.clone(), at: (0.0, 0.0) });
            block.exit = Some(((0.0, 8.0), String::new()));
            block
        }
    }
}

/// The last part of a full name.
fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn pill(text: &str) -> Block {
    let half = (width(text) + 20.0) / 2.0;
    let height = LINE + 8.0;
    let mark = Mark::Pill { x: -half, y: 0.0, width: 2.0 * half, text: text.to_owned() };
    Block { left: half, right: half, height, marks: vec![mark], arrow: true, ..Block::default() }
}

fn tap(name: &str, output: Option<&str>, shape: &str) -> Block {
    let height = 10.0;
    let mut block = Block { left: 4.0, right: 4.0, height, ..Block::default() };
    block.line(vec![(0.0, 0.0), (0.0, height)], false);
    block.marks.push(Mark::Dot { x: 0.0, y: height / 2.0, name: last(name).to_owned() });
    block.left = width(last(name)) + 10.0;
    if let Some(output) = output {
        let text = format!("{output} \u{2192}");
        let wide = width(&text) + 16.0;
        block.marks.push(Mark::Pill { x: 14.0, y: height / 2.0 - LINE / 2.0 - 4.0, width: wide, text });
        block.line(vec![(0.0, height / 2.0), (14.0, height / 2.0)], false);
        block.right = 14.0 + wide;
    }
    block.taps.push(Anchor { name: name.to_owned(), at: (0.0, height / 2.0) });
    block.exit = Some(((0.0, height), shape.to_owned()));
    block
}

fn boxed(unit: &Unit) -> Block {
    let longest = unit.text().map(width).fold(0.0, f64::max);
    let half = (longest + 18.0).max(48.0) / 2.0;
    let height = unit.text().count() as f64 * LINE + 8.0;
    let mark = Mark::Box { x: -half, y: 0.0, width: 2.0 * half, height, unit: unit.clone() };
    let mut block = Block { left: half, right: half, height, marks: vec![mark], arrow: true, ..Block::default() };
    for name in &unit.reads {
        block.uses.push(Anchor { name: name.clone(), at: (-half, height / 2.0) });
    }
    block.exit = Some(((0.0, height), unit.shape.clone()));
    block
}

fn frame(title: &str, inside: Block, depth: usize) -> Block {
    let top = TITLE + PAD;
    // The title is next to the incoming edge.
    let (left, right) = ((inside.left + PAD).max(width(title) + 18.0), inside.right + PAD);
    let height = top + inside.height + PAD;
    let (fresh, arrow) = (inside.fresh, inside.arrow);
    let exit = inside.exit.clone();
    let mut block = Block { fresh, arrow: false, ..Block::default() };
    block.marks.push(Mark::Frame { x: -left, y: 0.0, width: left + right, height, title: title.to_owned(), depth });
    block.absorb(inside, 0.0, top);
    (block.left, block.right, block.height) = (left, right, height);
    if !fresh {
        block.line(vec![(0.0, 0.0), (0.0, top)], arrow);
    }
    block.exit = exit.map(|((x, y), shape)| ((x, y + top), shape));
    block
}

fn branches(lanes: &[Vec<Part>], join: &Unit, depth: usize) -> Block {
    let mut laid: Vec<Block> = lanes
        .iter()
        .map(|lane| match lane.is_empty() {
            true => Block { left: 8.0, right: 8.0, exit: Some(((0.0, 0.0), String::new())), ..Block::default() },
            false => row(lane, depth),
        })
        .collect();
    let below = laid.iter().map(|lane| lane.height).fold(0.0, f64::max);
    let total: f64 = laid.iter().map(|lane| lane.left + lane.right + BETWEEN).sum::<f64>() - BETWEEN;
    // If there are two branches and the first is not empty, it is the main branch and goes straight down.
    let straight = laid.len() == 2;
    let mut x = if straight { -laid[0].left } else { -total / 2.0 };
    let top = GAP;
    let (bottom, join_top) = (top + below, top + below + GAP);
    let mut block = Block { fresh: laid.iter().all(|lane| lane.fresh), ..Block::default() };
    for lane in laid.drain(..) {
        let axis = x + lane.left;
        x = axis + lane.right + BETWEEN;
        if !lane.fresh {
            let into = if axis == 0.0 { vec![] } else { vec![(0.0, top / 3.0), (axis, top / 3.0)] };
            let points = [vec![(0.0, 0.0)], into, vec![(axis, top)]].concat();
            block.line(points, lane.arrow);
        }
        let exit = lane.exit.clone();
        block.absorb(lane, axis, top);
        if let Some(((ex, ey), shape)) = exit {
            let (ex, ey) = (ex + axis, ey + top);
            let turn = bottom + 0.7 * GAP;
            let over = if ex == 0.0 { vec![] } else { vec![(ex, turn), (0.0, turn)] };
            block.line([vec![(ex, ey)], over, vec![(0.0, join_top)]].concat(), true);
            block.label(ex + 4.0, bottom + 0.4 * GAP, &shape);
        }
    }
    let joined = boxed(join);
    let exit = joined.exit.clone().map(|((x, y), shape)| ((x, y + join_top), shape));
    block.absorb(joined, 0.0, join_top);
    block.exit = exit;
    block
}

/// The colour for a kind of work.
pub(super) fn fill(work: Work) -> &'static str {
    match work {
        Work::Conv => "#dbe9f9",
        Work::Dense => "#e6dff5",
        Work::Size => "#fbe6d2",
        Work::Join => "#dff0d8",
        Work::Other => "#f2f2f2",
    }
}

#[cfg(test)]
mod tests;
