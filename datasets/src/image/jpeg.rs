//! A JPEG decoder whose pixels are those of libjpeg-turbo, and thus Pillow's, to the bit.
//!
//! Decoders can differ in the inverse DCT, the upsampling of colour, and colour conversion. Here all three follow the
//! integer arithmetic of libjpeg (see [`idct`], [`upsample`], [`colour`]). It decodes baseline, extended and
//! progressive Huffman files of 8 bits in grey, YCbCr, RGB, CMYK and YCCK, and only the requested part of an image.
//! Damaged and truncated files are errors; libjpeg would fill the rest with grey.
//!
//! Not decoded: arithmetic coding, lossless and 12-bit files, sampling factors that do not divide each other. Files
//! whose progressive scans stop short of full precision are decoded without libjpeg's smoothing between blocks.

mod colour;
mod header;
mod huffman;
mod idct;
mod plane;
mod progressive;
mod sequential;
mod upsample;

use super::{DecodeError, Image, Rect, Size};
use header::{ColourModel, Component, Event, Frame, Header, Markers, QuantTable, Scan};
use huffman::Entropy;
use idct::Extent;
use plane::Plane;
use progressive::Coefficients;
use sequential::ScanJob;
use upsample::Upsampler;

/// Why bytes are no usable JPEG file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JpegError {
    /// The file ends too early.
    #[error("truncated JPEG file")]
    Truncated,
    /// A segment or the entropy-coded data make no sense.
    #[error("corrupt JPEG file: {0}")]
    Corrupt(&'static str),
    /// Something that must come first is missing.
    #[error("corrupt JPEG file: no {0}")]
    Missing(&'static str),
    /// Lossless, hierarchical or arithmetic-coded.
    #[error("JPEG process SOF{} is not supported (only baseline, extended and progressive Huffman)", .0 & 15)]
    Process(u8),
    /// Samples of another precision than 8 bits.
    #[error("JPEG samples of {0} bits are not supported")]
    Precision(u8),
    /// Another number of components than 1, 3 or 4.
    #[error("JPEG images of {0} components are not supported")]
    Components(u8),
    /// Sampling factors that do not divide the largest ones.
    #[error("JPEG sampling factors {h}x{v} out of {h_max}x{v_max} are not supported")]
    Sampling {
        /// Horizontal factor.
        h: usize,
        /// Vertical factor.
        v: usize,
        /// Largest horizontal factor.
        h_max: usize,
        /// Largest vertical factor.
        v_max: usize,
    },
}

/// The size that the frame header claims.
pub(super) fn size(bytes: &[u8]) -> Result<Size, DecodeError> {
    let frame = Header::default().read_frame(&mut Markers::new(bytes))?;
    super::decode::check_size(frame.size)
}

/// Decodes the part of the image inside `region`, or all of it.
pub(super) fn decode(bytes: &[u8], region: Option<Rect>) -> Result<Image, DecodeError> {
    let mut markers = Markers::new(bytes);
    let mut header = Header::default();
    let frame = header.read_frame(&mut markers)?;
    let size = super::decode::check_size(frame.size)?;
    let region = region.unwrap_or(Rect::full(size));
    if region.size().area() == 0 || region.right() > size.width || region.bottom() > size.height {
        return Err(DecodeError::RegionOutside { region, size });
    }
    let planes = if frame.progressive {
        decode_progressive(&mut markers, &mut header, &frame, region)?
    } else {
        decode_sequential(&mut markers, &mut header, &frame, region)?
    };
    let model = header.colour_model(&frame);
    Ok(pulp::Arch::new().dispatch(Assembly { frame: &frame, model, planes: &planes, region }))
}

/// Most scans of a progressive file. Encoders write about ten; a few bytes are enough for a scan that goes over all
/// blocks, so that without a limit a small file could take hours.
const MAX_SCANS: usize = 100;

/// Pixels per sample of a component.
fn scale(component: &Component, frame: &Frame) -> Size {
    Size::new(frame.h_max / component.h, frame.v_max / component.v)
}

fn empty_planes(frame: &Frame, region: Rect) -> Vec<Plane> {
    frame.components.iter().map(|c| Plane::new(c, scale(c, frame), region)).collect()
}

/// The quantisation table of a component.
fn quant_table(header: &Header, component: &Component) -> Result<QuantTable, JpegError> {
    header.quant[component.quant].ok_or(JpegError::Missing("quantisation table"))
}

/// Decodes scans until every component had one.
fn decode_sequential(
    markers: &mut Markers<'_>,
    header: &mut Header,
    frame: &Frame,
    region: Rect,
) -> Result<Vec<Plane>, JpegError> {
    let mut planes = empty_planes(frame, region);
    let mut done = vec![false; planes.len()];
    while done.contains(&false) {
        let Event::Scan(scan) = header.next_event(markers)? else {
            return Err(JpegError::Missing("scan of a component"));
        };
        let entropy = Entropy::split(markers.rest())?;
        markers.position += entropy.consumed;
        let job = ScanJob { scan: &scan, frame, header, entropy: &entropy, planes: &mut planes };
        pulp::Arch::new().dispatch(job)?;
        scan.components.iter().for_each(|part| done[part.index] = true);
    }
    Ok(planes)
}

/// Decodes all scans up to the end of the file, then computes the samples.
fn decode_progressive(
    markers: &mut Markers<'_>,
    header: &mut Header,
    frame: &Frame,
    region: Rect,
) -> Result<Vec<Plane>, JpegError> {
    let mut planes = empty_planes(frame, region);
    let mut coefficients: Vec<_> = frame.components.iter().map(|c| Coefficients::new(c, frame)).collect();
    let mut quant: Vec<Option<QuantTable>> = vec![None; planes.len()];
    let mut scans = 0;
    while let Event::Scan(scan) = header.next_event(markers)? {
        scans += 1;
        if scans > MAX_SCANS {
            return Err(JpegError::Corrupt("too many scans"));
        }
        for part in &scan.components {
            // A component keeps the table that was in force at its first scan.
            quant[part.index].get_or_insert(quant_table(header, &frame.components[part.index])?);
        }
        let entropy = Entropy::split(markers.rest())?;
        markers.position += entropy.consumed;
        progressive::decode_scan(&scan, frame, header, &entropy, &mut coefficients)?;
    }
    for ((plane, coefficients), quant) in planes.iter_mut().zip(&coefficients).zip(quant) {
        let quant = quant.ok_or(JpegError::Missing("scan of a component"))?;
        pulp::Arch::new().dispatch(Reconstruction { coefficients, quant: &quant, plane });
    }
    Ok(planes)
}

/// The samples of a plane from its coefficients, compiled for each vector unit.
struct Reconstruction<'a> {
    coefficients: &'a Coefficients,
    quant: &'a QuantTable,
    plane: &'a mut Plane,
}

impl pulp::NullaryFnOnce for Reconstruction<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (column, row) in self.plane.blocks() {
            self.plane.put(column, row, self.coefficients.block(column, row), Extent::Full, self.quant);
        }
    }
}

/// The pixels of `region` from the samples of all components, compiled for each vector unit.
struct Assembly<'a> {
    frame: &'a Frame,
    model: ColourModel,
    planes: &'a [Plane],
    region: Rect,
}

impl pulp::NullaryFnOnce for Assembly<'_> {
    type Output = Image;

    #[inline(always)]
    fn call(self) -> Image {
        let Self { frame, model, planes, region } = self;
        let mut image = Image::filled(region.size(), [0; 3]);
        let mut upsamplers: Vec<Upsampler<'_>> = planes
            .iter()
            .zip(&frame.components)
            .map(|(plane, component)| Upsampler::new(plane, scale(component, frame), region.x..region.right()))
            .collect();
        let rows = image.pixels_mut().as_chunks_mut::<3>().0.chunks_exact_mut(region.width);
        for (y, out) in (region.y..region.bottom()).zip(rows) {
            match &mut upsamplers[..] {
                [a] => colour::convert(model, &[a.row(y)], out),
                [a, b, c] => colour::convert(model, &[a.row(y), b.row(y), c.row(y)], out),
                [a, b, c, d] => colour::convert(model, &[a.row(y), b.row(y), c.row(y), d.row(y)], out),
                _ => {}
            }
        }
        image
    }
}

/// The minimum coded units of a scan.
struct Units {
    wide: usize,
    high: usize,
    /// More than one component: each unit holds as many blocks of a component as its sampling factors say.
    interleaved: bool,
}

impl Scan {
    /// How the blocks of this scan are ordered (T.81, A.2).
    fn units(&self, frame: &Frame) -> Units {
        match self.components[..] {
            [single] => {
                let size = frame.components[single.index].size;
                Units { wide: size.width.div_ceil(8), high: size.height.div_ceil(8), interleaved: false }
            }
            _ => Units { wide: frame.mcus_wide, high: frame.mcus_high, interleaved: true },
        }
    }
}

impl Units {
    fn count(&self) -> usize {
        self.wide * self.high
    }

    /// Column and row of the blocks of `component` in unit number `unit`, in their order.
    #[inline(always)]
    fn blocks(&self, unit: usize, component: &Component) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (column, row) = (unit % self.wide, unit / self.wide);
        let (h, v) = if self.interleaved { (component.h, component.v) } else { (1, 1) };
        (0..v).flat_map(move |y| (0..h).map(move |x| (column * h + x, row * v + y)))
    }
}
