//! Times in whole nanoseconds. Profilers write microseconds since 1970 with three decimals, which f64 does not hold.

/// A time or a duration in nanoseconds.
pub type Nanos = i64;

/// The longest time that is read, 126 years: the sum of two does not overflow.
const LONGEST: i128 = 4_000_000_000_000_000_000;

/// Nanoseconds of decimal microseconds, such as `1736413971558972.912`. `None` for anything else, and beyond 126
/// years.
pub(crate) fn of_text(micros: &str) -> Option<Nanos> {
    let (sign, digits) = micros.strip_prefix('-').map_or((1, micros), |digits| (-1, digits));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 30 || !is_number(whole) || !is_number(part) {
        return of_float(micros.parse().ok()?);
    }
    let nanos = part.bytes().chain(*b"000").take(3).fold(0, |sum, digit| 10 * sum + i128::from(digit - b'0'));
    within(sign * (whole.parse::<i128>().ok()? * 1000 + nanos))
}

/// Nanoseconds of microseconds.
pub(crate) fn of_float(micros: f64) -> Option<Nanos> {
    // A cast saturates, and makes 0 of NaN.
    if micros.is_finite() { within((micros * 1e3).round() as i128) } else { None }
}

fn within(nanos: i128) -> Option<Nanos> {
    if nanos.abs() <= LONGEST { Nanos::try_from(nanos).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_exact() {
        assert_eq!(of_text("1736413971558972.912"), Some(1_736_413_971_558_972_912));
        assert_eq!(of_text("607.98"), Some(607_980));
        assert_eq!(of_text("0"), Some(0));
        assert_eq!(of_text("-1.5"), Some(-1500));
        assert_eq!(of_text("1e3"), Some(1_000_000));
        for text in ["", "N/A", "1.2.3", "nan", "inf", "9999999999999999999", "99999999999999999999999999999999"] {
            assert_eq!(of_text(text), None, "{text}");
        }
    }
}
