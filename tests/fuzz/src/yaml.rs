//! Mutations of YAML that keep more of it sound than changed bytes do.

/// What values are replaced with.
const PIECES: [&str; 40] = [
    "~", "[]", "{}", "-1", "0", "1", "2", "1e308", "-1e308", "1e-308", "1/0", "0/0", "1/3", "$width", "$classes", "$", "$width*$width",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "1099511627776", "1000000000000", "65536", "0x7fffffff",
    "\"\"", "'", "&a", "*a", "!x 1", "|", "relu", "5 epochs", "3 steps", "true", "false", "50%", "[1, 2]", "[0, 0, 0, 0]", "../../x", ".inf",
];

/// Small, fast, and good enough to choose a line (Marsaglia, xorshift32).
struct Chance(u32);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 as usize % end.max(1)
    }
}

/// A mutation of the text in `data[..size]`, written over it; returns its new length. Every third is libFuzzer's own.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut chance = Chance(seed | 1);
    chance.below(1);
    if chance.below(3) == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let Ok(text) = std::str::from_utf8(&data[..size]) else {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..=chance.below(3) {
        change(&mut lines, &mut chance);
    }
    let new = lines.join("\n") + "\n";
    let end = (0..=new.len().min(max_size)).rev().find(|end| new.is_char_boundary(*end)).unwrap_or(0);
    data[..end].copy_from_slice(&new.as_bytes()[..end]);
    end
}

fn change(lines: &mut Vec<String>, chance: &mut Chance) {
    if lines.is_empty() {
        lines.push("name: mutant".to_owned());
    }
    let at = chance.below(lines.len());
    let other = lines[chance.below(lines.len())].clone();
    match chance.below(8) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, other),
        2 => lines[at] = other,
        3 => {
            let by = 2 * (1 + chance.below(2));
            lines[at] = match chance.below(2) {
                0 => " ".repeat(by) + &lines[at],
                _ => lines[at].strip_prefix(&" ".repeat(by)).unwrap_or(&lines[at]).to_owned(),
            };
        }
        4 => {
            let value = other.rsplit(": ").next().unwrap_or_default().to_owned();
            replace_word(&mut lines[at], &value, chance);
        }
        5 => {
            if let Some(colon) = lines[at].rfind(": ") {
                lines[at].replace_range(colon + 2.., PIECES[chance.below(PIECES.len())]);
            }
        }
        _ => replace_word(&mut lines[at], PIECES[chance.below(PIECES.len())], chance),
    }
}

/// Replaces a word or number of the line.
fn replace_word(line: &mut String, by: &str, chance: &mut Chance) {
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '-');
    let mut words: Vec<(usize, usize)> = Vec::new();
    for (at, c) in line.char_indices().filter(|(_, c)| inside(*c)) {
        match words.last_mut() {
            Some((_, end)) if *end == at => *end = at + c.len_utf8(),
            _ => words.push((at, at + c.len_utf8())),
        }
    }
    if let Some((start, end)) = words.get(chance.below(words.len())) {
        line.replace_range(start..end, by);
    }
}
