//! Marker segments: everything in a JPEG file but the entropy-coded data (ITU-T T.81, annex B).

use super::JpegError;
use super::huffman::Table;
use crate::image::Size;

/// Position in a block of the coefficient at each place of the zigzag sequence (T.81, figure A.6).
pub(super) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// Quantisation steps of a block, row by row.
pub(super) type QuantTable = [u16; 64];

/// How the components make colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColourModel {
    Grey,
    YCbCr,
    Rgb,
    Cmyk,
    Ycck,
}

/// One colour component.
#[derive(Debug, Clone)]
pub(super) struct Component {
    pub id: u8,
    /// Sampling factors.
    pub h: usize,
    pub v: usize,
    /// Number of its quantisation table.
    pub quant: usize,
    /// Size in samples, without padding.
    pub size: Size,
}

/// The frame header.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub size: Size,
    pub progressive: bool,
    pub components: Vec<Component>,
    /// Largest sampling factors.
    pub h_max: usize,
    pub v_max: usize,
    /// Number of minimum coded units of an interleaved scan.
    pub mcus_wide: usize,
    pub mcus_high: usize,
}

/// The part of a component in a scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanComponent {
    /// Index into the frame's components.
    pub index: usize,
    pub dc_table: usize,
    pub ac_table: usize,
}

/// The scan header.
#[derive(Debug, Clone)]
pub(super) struct Scan {
    pub components: Vec<ScanComponent>,
    /// First and last coefficient of the spectral selection.
    pub start: usize,
    pub end: usize,
    /// Successive approximation: the bit position before (0: first scan) and now.
    pub high: u32,
    pub low: u32,
}

/// The state of the marker segments.
#[derive(Default)]
pub(super) struct Header {
    pub frame: Option<Frame>,
    pub quant: [Option<QuantTable>; 4],
    pub dc: [Option<Table>; 4],
    pub ac: [Option<Table>; 4],
    /// Minimum coded units between restart markers; 0: none.
    pub restart_interval: usize,
    jfif: bool,
    /// The colour transform that an Adobe segment names.
    adobe: Option<u8>,
}

/// The action of a marker.
pub(super) enum Event {
    /// Entropy-coded data follow.
    Scan(Scan),
    /// The file is complete.
    End,
}

/// A place in the file, where markers are expected.
pub(super) struct Markers<'a> {
    bytes: &'a [u8],
    pub position: usize,
}

impl<'a> Markers<'a> {
    /// The markers of a file.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The bytes from the current position on.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position.min(self.bytes.len())..]
    }

    /// The next marker; bytes in between are skipped, as all decoders do.
    fn marker(&mut self) -> Result<u8, JpegError> {
        loop {
            let rest = self.rest();
            let at = memchr::memchr(0xFF, rest).ok_or(JpegError::Truncated)?;
            let code = *rest.get(at + 1).ok_or(JpegError::Truncated)?;
            // 0xFF may be repeated as filling; 0xFF00 is not a marker.
            self.position += at + if code == 0xFF { 1 } else { 2 };
            if code != 0 && code != 0xFF {
                return Ok(code);
            }
        }
    }

    /// The body of the segment at the current position.
    fn segment(&mut self) -> Result<Segment<'a>, JpegError> {
        let mut rest = Segment(self.rest());
        let length = usize::from(rest.u16()?);
        let body = length.checked_sub(2).and_then(|n| rest.0.get(..n)).ok_or(JpegError::Truncated)?;
        self.position += length;
        Ok(Segment(body))
    }
}

/// The unread part of a segment.
struct Segment<'a>(&'a [u8]);

impl<'a> Segment<'a> {
    fn u8(&mut self) -> Result<u8, JpegError> {
        let (&first, rest) = self.0.split_first().ok_or(JpegError::Truncated)?;
        self.0 = rest;
        Ok(first)
    }

    fn u16(&mut self) -> Result<u16, JpegError> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], JpegError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(JpegError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl Header {
    /// Reads marker segments up to the frame header.
    pub fn read_frame(&mut self, markers: &mut Markers<'_>) -> Result<Frame, JpegError> {
        loop {
            if let Some(frame) = &self.frame {
                return Ok(frame.clone());
            }
            if self.read_segment(markers)?.is_some() {
                return Err(JpegError::Missing("frame header"));
            }
        }
    }

    /// Reads marker segments up to the next scan or the end of the file.
    pub fn next_event(&mut self, markers: &mut Markers<'_>) -> Result<Event, JpegError> {
        loop {
            if let Some(event) = self.read_segment(markers)? {
                return Ok(event);
            }
        }
    }

    fn read_segment(&mut self, markers: &mut Markers<'_>) -> Result<Option<Event>, JpegError> {
        match markers.marker()? {
            // Start of image, TEM and stray restart markers have no body.
            0x01 | 0xD0..=0xD8 => {}
            0xD9 => return Ok(Some(Event::End)),
            0xC4 => self.huffman_tables(markers.segment()?)?,
            code @ 0xC0..=0xC2 => self.frame_header(markers.segment()?, code == 0xC2)?,
            code @ (0xC3 | 0xC5..=0xCF) => return Err(JpegError::Process(code)),
            0xDA => return self.scan_header(markers.segment()?).map(|scan| Some(Event::Scan(scan))),
            0xDB => self.quant_tables(markers.segment()?)?,
            0xDD => self.restart_interval = markers.segment()?.u16()?.into(),
            0xE0 => self.jfif |= markers.segment()?.0.starts_with(b"JFIF\0"),
            0xEE => {
                // "Adobe", version, two words of flags, and the transform.
                let Segment(body) = markers.segment()?;
                if let (true, Some(&transform)) = (body.starts_with(b"Adobe"), body.get(11)) {
                    self.adobe = Some(transform);
                }
            }
            _ => {
                markers.segment()?;
            }
        }
        Ok(None)
    }

    fn frame_header(&mut self, mut segment: Segment<'_>, progressive: bool) -> Result<(), JpegError> {
        if self.frame.is_some() {
            return Err(JpegError::Corrupt("a second frame header"));
        }
        let precision = segment.u8()?;
        if precision != 8 {
            return Err(JpegError::Precision(precision));
        }
        let (height, width) = (usize::from(segment.u16()?), usize::from(segment.u16()?));
        let count = segment.u8()?;
        if !matches!(count, 1 | 3 | 4) {
            return Err(JpegError::Components(count));
        }
        let mut components = Vec::new();
        for _ in 0..count {
            let (id, sampling, quant) = (segment.u8()?, segment.u8()?, usize::from(segment.u8()?));
            let (h, v) = (usize::from(sampling >> 4), usize::from(sampling & 15));
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) || quant > 3 {
                return Err(JpegError::Corrupt("a component's sampling factors or table number"));
            }
            components.push(Component { id, h, v, quant, size: Size::new(0, 0) });
        }
        let largest = |factor: fn(&Component) -> usize| components.iter().map(factor).max().unwrap_or(1);
        let (h_max, v_max) = (largest(|c| c.h), largest(|c| c.v));
        for c in &mut components {
            if h_max % c.h != 0 || v_max % c.v != 0 {
                return Err(JpegError::Sampling { h: c.h, v: c.v, h_max, v_max });
            }
            c.size = Size::new((width * c.h).div_ceil(h_max), (height * c.v).div_ceil(v_max));
        }
        self.frame = Some(Frame {
            size: Size::new(width, height),
            progressive,
            components,
            h_max,
            v_max,
            mcus_wide: width.div_ceil(8 * h_max),
            mcus_high: height.div_ceil(8 * v_max),
        });
        Ok(())
    }

    fn scan_header(&mut self, mut segment: Segment<'_>) -> Result<Scan, JpegError> {
        let frame = self.frame.as_ref().ok_or(JpegError::Missing("frame header"))?;
        let mut components: Vec<ScanComponent> = Vec::new();
        for _ in 0..segment.u8()? {
            let (id, tables) = (segment.u8()?, segment.u8()?);
            let index = frame.components.iter().position(|c| c.id == id);
            let index = index.ok_or(JpegError::Corrupt("a scan of an unknown component"))?;
            let (dc_table, ac_table) = (usize::from(tables >> 4), usize::from(tables & 15));
            if components.iter().any(|c| c.index == index) || dc_table > 3 || ac_table > 3 {
                return Err(JpegError::Corrupt("a scan's components or table numbers"));
            }
            components.push(ScanComponent { index, dc_table, ac_table });
        }
        let (start, end, approximation) = (usize::from(segment.u8()?), usize::from(segment.u8()?), segment.u8()?);
        let (high, low) = (u32::from(approximation >> 4), u32::from(approximation & 15));
        let scan = Scan { components, start, end, high, low };
        if scan.components.is_empty() || frame.progressive && !scan.is_progressive() {
            return Err(JpegError::Corrupt("a scan's components, coefficients or bit positions"));
        }
        Ok(scan)
    }

    fn quant_tables(&mut self, mut segment: Segment<'_>) -> Result<(), JpegError> {
        while !segment.0.is_empty() {
            let head = segment.u8()?;
            let (wide, number) = (head >> 4 != 0, usize::from(head & 15));
            let mut table = [0; 64];
            for position in ZIGZAG {
                table[usize::from(position)] = if wide { segment.u16()? } else { segment.u8()?.into() };
            }
            *self.quant.get_mut(number).ok_or(JpegError::Corrupt("the number of a quantisation table"))? = Some(table);
        }
        Ok(())
    }

    fn huffman_tables(&mut self, mut segment: Segment<'_>) -> Result<(), JpegError> {
        while !segment.0.is_empty() {
            let head = segment.u8()?;
            let mut counts = [0; 16];
            counts.copy_from_slice(segment.take(16)?);
            let symbols = segment.take(counts.iter().map(|&n| usize::from(n)).sum())?;
            let class = match head >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err(JpegError::Corrupt("the class of a Huffman table")),
            };
            let slot = class.get_mut(usize::from(head & 15));
            *slot.ok_or(JpegError::Corrupt("the number of a Huffman table"))? = Some(Table::new(&counts, symbols)?);
        }
        Ok(())
    }

    /// The colour model, guessed as libjpeg guesses it (`default_decompress_parms`).
    pub fn colour_model(&self, frame: &Frame) -> ColourModel {
        let ids: Vec<u8> = frame.components.iter().map(|c| c.id).collect();
        match (ids.len(), self.adobe) {
            (1, _) => ColourModel::Grey,
            (3, _) if self.jfif => ColourModel::YCbCr,
            (3, Some(0)) => ColourModel::Rgb,
            (3, None) if ids == *b"RGB" => ColourModel::Rgb,
            (3, _) => ColourModel::YCbCr,
            (_, None | Some(0)) => ColourModel::Cmyk,
            (_, Some(_)) => ColourModel::Ycck,
        }
    }
}

impl Scan {
    /// True for the combinations that T.81, G.1.1.1 allows.
    fn is_progressive(&self) -> bool {
        let bits = self.low <= 13 && (self.high == 0 || self.high == self.low + 1);
        let band = if self.start == 0 {
            self.end == 0
        } else {
            self.start <= self.end && self.end <= 63 && self.components.len() == 1
        };
        bits && band
    }
}
