//! Entropy-coded data: bits, and the Huffman codes in them (T.81, annexes C and F).

use super::JpegError;

/// Bits that are looked up at once.
const LOOKUP: u32 = 10;

/// A Huffman code, prepared for decoding.
#[derive(Clone)]
pub(super) struct Table {
    /// By the next [`LOOKUP`] bits: the symbol and the length of its code, `symbol << 8 | length`; 0 if the code is
    /// longer.
    codes: Box<[u16; 1 << LOOKUP]>,
    /// By the next [`LOOKUP`] bits: a coefficient whose code and value fit into them; length 0 if they do not.
    coefficients: Box<[Coefficient; 1 << LOOKUP]>,
    /// By code length: the first code beyond those of this length and shorter, aligned to 16 bits.
    limits: [u32; 17],
    /// By code length: what to add to a code to get the index of its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

/// A run of zeros and the value after it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Coefficient {
    pub value: i16,
    /// Zeros before the value; [`END_OF_BLOCK`] if the rest of the block is zero.
    pub run: u8,
    /// Bits of code and value.
    length: u8,
}

/// A run that ends any block.
pub(super) const END_OF_BLOCK: u8 = 64;

impl Table {
    /// A code with `counts[i]` symbols of length `i + 1`, given in order of their codes.
    pub fn new(counts: &[u8; 16], symbols: &[u8]) -> Result<Self, JpegError> {
        let mut table = Self {
            codes: Box::new([0; 1 << LOOKUP]),
            coefficients: Box::new([Coefficient::default(); 1 << LOOKUP]),
            limits: [0; 17],
            offsets: [0; 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut index) = (0_u32, 0_usize);
        for length in 1..=16_u32 {
            let count = usize::from(counts[length as usize - 1]);
            table.offsets[length as usize] = index as i32 - code as i32;
            for &symbol in symbols.get(index..index + count).ok_or(JpegError::Corrupt("a Huffman table"))? {
                if length <= LOOKUP {
                    let first = (code << (LOOKUP - length)) as usize;
                    let span = table.codes.get_mut(first..first + (1 << (LOOKUP - length)));
                    span.ok_or(JpegError::Corrupt("a Huffman table"))?.fill(u16::from(symbol) << 8 | length as u16);
                }
                code += 1;
            }
            if code > 1 << length {
                return Err(JpegError::Corrupt("a Huffman table"));
            }
            index += count;
            table.limits[length as usize] = code << (16 - length);
            code <<= 1;
        }
        for bits in 0..1 << LOOKUP {
            table.coefficients[bits] = coefficient_in(bits as u32, table.codes[bits]);
        }
        Ok(table)
    }

    /// The symbol of a code longer than [`LOOKUP`], among the next 16 bits, and its length.
    #[cold]
    fn long_code(&self, bits: u32) -> Result<(u8, u32), JpegError> {
        let length = (LOOKUP as usize + 1..=16).find(|&length| bits < self.limits[length]);
        let length = length.ok_or(JpegError::Corrupt("a code that is not in the Huffman table"))?;
        let index = (bits >> (16 - length)) as i32 + self.offsets[length];
        let symbol = usize::try_from(index).ok().and_then(|index| self.symbols.get(index));
        Ok((*symbol.ok_or(JpegError::Corrupt("a code that is not in the Huffman table"))?, length as u32))
    }
}

/// The coefficient at the start of [`LOOKUP`] bits that begin with the code `entry`, if all of it is in them.
fn coefficient_in(bits: u32, entry: u16) -> Coefficient {
    let (symbol, length) = ((entry >> 8) as u8, u32::from(entry & 0xFF));
    let (run, size) = (symbol >> 4, u32::from(symbol & 15));
    if length == 0 || length + size > LOOKUP {
        return Coefficient::default();
    }
    let value_bits = bits >> (LOOKUP - length - size) & ((1 << size) - 1);
    let run = if size == 0 && run != 15 { END_OF_BLOCK } else { run };
    Coefficient { value: extend(value_bits, size), run, length: (length + size) as u8 }
}

/// The value of `size` bits (T.81, F.2.2.1: EXTEND).
#[inline(always)]
fn extend(bits: u32, size: u32) -> i16 {
    // A first bit of 0 means negative: bits - (2^size - 1).
    let negative = (bits as i32) < ((1 << size) >> 1);
    (bits as i32 - if negative { (1 << size) - 1 } else { 0 }) as i16
}

/// The entropy-coded data of a scan, without stuffing, in its restart intervals.
pub(super) struct Entropy {
    bytes: Vec<u8>,
    /// End of each interval in `bytes`.
    ends: Vec<usize>,
    /// Length of the data in the file.
    pub consumed: usize,
}

impl Entropy {
    /// Takes the entropy-coded data at the start of `data`, up to the first marker that is not a restart marker.
    pub fn split(data: &[u8]) -> Result<Self, JpegError> {
        let mut bytes = Vec::with_capacity(data.len());
        let mut ends = Vec::new();
        let mut position = 0;
        loop {
            let rest = &data[position..];
            let at = memchr::memchr(0xFF, rest).ok_or(JpegError::Truncated)?;
            bytes.extend_from_slice(&rest[..at]);
            match rest.get(at + 1).ok_or(JpegError::Truncated)? {
                0x00 => bytes.push(0xFF),
                0xD0..=0xD7 => ends.push(bytes.len()),
                // Filling before a marker.
                0xFF => {
                    position += at + 1;
                    continue;
                }
                _ => {
                    ends.push(bytes.len());
                    return Ok(Self { bytes, ends, consumed: position + at });
                }
            }
            position += at + 2;
        }
    }

    /// A reader of restart interval `number`.
    pub fn interval(&self, number: usize) -> Result<BitReader<'_>, JpegError> {
        let end = *self.ends.get(number).ok_or(JpegError::Corrupt("too few restart markers"))?;
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        Ok(BitReader { bytes: &self.bytes[start..end], position: 0, bits: 0, count: 0 })
    }
}

/// Reads bits, most significant first. Beyond the end there are zeros; [`check`](Self::check) finds that out.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bytes taken.
    position: usize,
    /// Bits not yet used, from the top, and below them bits that [`refill`](Self::refill) will add again.
    bits: u64,
    /// Number of bits not yet used.
    count: u32,
}

impl BitReader<'_> {
    /// Makes at least 56 bits available.
    #[inline(always)]
    fn refill(&mut self) {
        let word = match self.bytes.get(self.position..).and_then(|rest| rest.first_chunk()) {
            Some(chunk) => u64::from_be_bytes(*chunk),
            None => self.last_word(),
        };
        self.bits |= word >> self.count;
        self.position += (63 - self.count as usize) >> 3;
        self.count |= 56;
    }

    /// The bytes that are left, followed by zeros.
    #[cold]
    fn last_word(&self) -> u64 {
        let mut word = [0; 8];
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        word[..rest.len()].copy_from_slice(rest);
        u64::from_be_bytes(word)
    }

    /// Fails if more bits were used than there are.
    #[inline(always)]
    pub fn check(&self) -> Result<(), JpegError> {
        if self.position * 8 - self.count as usize > self.bytes.len() * 8 { Err(JpegError::Truncated) } else { Ok(()) }
    }

    #[inline(always)]
    fn peek(&self, n: u32) -> u32 {
        (self.bits >> 1 >> (63 - n)) as u32
    }

    #[inline(always)]
    fn skip(&mut self, n: u32) {
        self.bits <<= n;
        self.count -= n;
    }

    /// The next `n` bits, at most 16.
    #[inline(always)]
    pub fn take(&mut self, n: u32) -> u32 {
        if self.count < 16 {
            self.refill();
        }
        let bits = self.peek(n);
        self.skip(n);
        bits
    }

    /// The next symbol of `table`. Needs 16 bits.
    #[inline(always)]
    fn code(&mut self, table: &Table) -> Result<u8, JpegError> {
        let entry = table.codes[self.peek(LOOKUP) as usize];
        let (symbol, length) =
            if entry != 0 { ((entry >> 8) as u8, u32::from(entry & 0xFF)) } else { table.long_code(self.peek(16))? };
        self.skip(length);
        Ok(symbol)
    }

    /// The next symbol of `table`.
    #[inline(always)]
    pub fn symbol(&mut self, table: &Table) -> Result<u8, JpegError> {
        if self.count < 16 {
            self.refill();
        }
        self.code(table)
    }

    /// `size` bits, at most 15, as a signed value.
    #[inline(always)]
    pub fn signed(&mut self, size: u32) -> i16 {
        extend(self.take(size), size)
    }

    /// The next DC difference.
    #[inline(always)]
    pub fn difference(&mut self, table: &Table) -> Result<i16, JpegError> {
        let size = u32::from(self.symbol(table)?);
        if size > 15 {
            return Err(JpegError::Corrupt("a DC difference of more than 15 bits"));
        }
        Ok(self.signed(size))
    }

    /// The next AC coefficient.
    #[inline(always)]
    pub fn coefficient(&mut self, table: &Table) -> Result<Coefficient, JpegError> {
        // A code has at most 16 bits, a value 15.
        if self.count < 32 {
            self.refill();
        }
        let found = table.coefficients[self.peek(LOOKUP) as usize];
        if found.length != 0 {
            self.skip(u32::from(found.length));
            return Ok(found);
        }
        let symbol = self.code(table)?;
        let (run, size) = (symbol >> 4, u32::from(symbol & 15));
        let value = extend(self.peek(size), size);
        self.skip(size);
        Ok(Coefficient { value, run: if size == 0 && run != 15 { END_OF_BLOCK } else { run }, length: 0 })
    }
}
