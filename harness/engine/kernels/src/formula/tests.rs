use super::*;
use crate::testing::{filled, same_bits_on_any_threads};
use proptest::prelude::*;

fn run(formula: &Formula, isa: Isa, operands: &[Operand<'_>], sizes: &[usize]) -> Vec<Vec<f32>> {
    let mut results: Vec<Vec<f32>> = sizes.iter().map(|size| vec![f32::NAN; *size]).collect();
    formula.run(isa, operands, &mut results.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    results
}

/// Softmax over rows, as instructions.
fn softmax(space: Vec<usize>, rows: usize) -> Formula {
    let instructions = vec![
        Instruction::Operand(0),
        Instruction::RowMax(0),
        Instruction::Binary(Binary::Sub, 0, 1),
        Instruction::Unary(Unary::Exp, 2),
        Instruction::RowSum(3),
        Instruction::Binary(Binary::Div, 3, 4),
    ];
    let outputs = vec![
        Output { place: 5, kind: OutputKind::Elements },
        Output { place: 4, kind: OutputKind::Rows },
        Output { place: 4, kind: OutputKind::Sums { strides: vec![0; space.len()], rows: true } },
    ];
    Formula { space, rows, instructions, outputs }
}

#[test]
fn rows_of_any_length_are_folded() {
    for isa in Isa::available() {
        for row in [1, 3, 17, 1000, LONGEST_ROW, LONGEST_ROW + 1, 3 * LONGEST_ROW + 5] {
            let x = filled(3 * row, 1);
            let operand = Operand { data: Data::Float(&x), strides: &[row, 1] };
            let found = run(&softmax(vec![3, row], 1), isa, &[operand], &[3 * row, 3, 1]);
            let mut in_place = [x.clone(), vec![f32::NAN; 3], vec![f32::NAN]];
            let operand = Operand { data: Data::Result(0), ..operand };
            softmax(vec![3, row], 1).run(isa, &[operand], &mut in_place.each_mut().map(Vec::as_mut_slice));
            assert_eq!(in_place.as_slice(), found, "rows of {row} in place");
            let total: f64 = found[1].iter().map(|sum| f64::from(*sum)).sum();
            assert_eq!(found[2], [total as f32], "rows of {row} count once");
            for (n, x) in x.chunks(row).enumerate() {
                let largest = x.iter().copied().fold(f32::MIN, f32::max);
                let sum: f64 = x.iter().map(|x| f64::from(x - largest).exp()).sum();
                assert!((f64::from(found[1][n]) / sum - 1.0).abs() < 1e-6, "row of {row}");
                for (x, y) in x.iter().zip(&found[0][n * row..]) {
                    let exact = f64::from(x - largest).exp() / sum;
                    assert!((f64::from(*y) - exact).abs() <= 4e-7 * exact + 1e-30, "row of {row}: {y} {exact}");
                }
            }
        }
    }
}

/// 2^24 + 1 + 1, one number per row: rounded to f32 after each row, the ones would be lost.
#[test]
fn sums_over_several_long_rows_are_rounded_once() {
    let row = LONGEST_ROW + 1;
    let mut x = vec![0.0; 3 * row];
    [16_777_216.0, 1.0, 1.0].into_iter().enumerate().for_each(|(n, number)| x[n * row + 7] = number);
    let sums = |strides, place, rows| Output { place, kind: OutputKind::Sums { strides, rows } };
    let formula = Formula {
        space: vec![3, row],
        rows: 1,
        instructions: vec![Instruction::Operand(0), Instruction::RowSum(0)],
        outputs: vec![sums(vec![0, 0], 0, false), sums(vec![0, 0], 1, true), sums(vec![0, 1], 1, false)],
    };
    for isa in Isa::available() {
        let operand = Operand { data: Data::Float(&x), strides: &[row, 1] };
        let found = run(&formula, isa, &[operand], &[1, 1, row]);
        assert_eq!((&found[0], &found[1]), (&vec![16_777_218.0], &vec![16_777_218.0]));
        assert_eq!(found[2], vec![16_777_218.0; row]);
    }
}

/// `x * s` over `[n, c, p]` with `s` per channel, in place, and the sum of the product per channel.
#[test]
fn operands_broadcast_and_results_are_summed() {
    let (n, c, p) = (5, 7, 700);
    let (x, s) = (filled(n * c * p, 1), filled(c, 2));
    let formula = Formula {
        space: vec![n, c, p],
        rows: 0,
        instructions: vec![
            Instruction::Operand(0),
            Instruction::Operand(1),
            Instruction::Binary(Binary::Mul, 0, 1),
            Instruction::Coordinate { inner: p, extent: c },
        ],
        outputs: vec![
            Output { place: 2, kind: OutputKind::Elements },
            Output { place: 2, kind: OutputKind::Sums { strides: vec![0, 1, 0], rows: false } },
            Output { place: 3, kind: OutputKind::Elements },
        ],
    };
    for isa in Isa::available() {
        let mut results = [x.clone(), vec![f32::NAN; c], vec![f32::NAN; n * c * p]];
        let operands = [
            Operand { data: Data::Result(0), strides: &[c * p, p, 1] },
            Operand { data: Data::Float(&s), strides: &[0, 1, 0] },
        ];
        formula.run(isa, &operands, &mut results.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        for channel in 0..c {
            let mut sum = 0.0;
            for image in 0..n {
                for pixel in 0..p {
                    let at = (image * c + channel) * p + pixel;
                    assert_eq!(results[0][at], x[at] * s[channel]);
                    assert_eq!(results[2][at], channel as f32);
                    sum += f64::from(x[at] * s[channel]);
                }
            }
            assert!((f64::from(results[1][channel]) - sum).abs() < 1e-6 * sum.abs().max(1.0));
        }
    }
}

#[test]
fn threads_do_not_matter() {
    let x = filled(40 * 3000, 3);
    let long = filled(2 * 50_000, 4);
    same_bits_on_any_threads(|isa| {
        let mut formula = softmax(vec![40, 3000], 1);
        formula.outputs.push(Output { place: 5, kind: OutputKind::Sums { strides: vec![0, 1], rows: false } });
        let operand = Operand { data: Data::Float(&x), strides: &[3000, 1] };
        let mut found = run(&formula, isa, &[operand], &[40 * 3000, 40, 1, 3000]);
        let mut formula = softmax(vec![2, 50_000], 1);
        formula.outputs.push(Output { place: 2, kind: OutputKind::Sums { strides: vec![0, 0], rows: false } });
        let operand = Operand { data: Data::Float(&long), strides: &[50_000, 1] };
        found.extend(run(&formula, isa, &[operand], &[100_000, 2, 1, 1]));
        found
    });
}

proptest! {
    /// Registers are reused, results are computed where they are, rows have one number: no value is lost by it.
    #[test]
    fn values_are_kept_until_they_are_read(
        picks in prop::collection::vec((0usize..5, 0usize..100, 0usize..100), 1..30),
        places in prop::array::uniform4(0usize..100),
        (rows, row) in (1usize..40, 1usize..200),
        with_rows in prop::bool::ANY,
    ) {
        let len = rows * row;
        let mut instructions: Vec<Instruction> = (0..4).map(Instruction::Operand).collect();
        instructions.push(Instruction::Constant(0.5));
        for (kind, a, b) in picks {
            let n = instructions.len();
            instructions.push(match kind {
                0 if with_rows => Instruction::RowMax(a % n),
                0 | 1 => Instruction::Unary(Unary::Neg, a % n),
                2 => Instruction::Binary(Binary::Max, a % n, b % n),
                3 => Instruction::Binary(Binary::Sub, a % n, b % n),
                _ => Instruction::Select(a % n, b % n, (a + b) % n),
            });
        }
        let (x, y, per_row) = (filled(len, 7), filled(len, 8), filled(rows, 9));
        let given = filled(len, 10);
        let mut values: Vec<Vec<f32>> = Vec::new();
        for instruction in &instructions {
            let of = |f: &dyn Fn(usize) -> f32| (0..len).map(f).collect::<Vec<f32>>();
            values.push(match *instruction {
                Instruction::Operand(0) => x.clone(),
                Instruction::Operand(1) => y.clone(),
                Instruction::Operand(2) => of(&|i| per_row[i / row]),
                Instruction::Operand(_) => given.clone(),
                Instruction::Constant(value) => vec![value; len],
                Instruction::RowMax(a) => {
                    let largest = |row: &[f32]| row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    of(&|i| largest(&values[a][i / row * row..][..row]))
                }
                Instruction::Unary(_, a) => of(&|i| -values[a][i]),
                Instruction::Binary(Binary::Max, a, b) => of(&|i| values[a][i].max(values[b][i])),
                Instruction::Binary(_, a, b) => of(&|i| values[a][i] - values[b][i]),
                Instruction::Select(c, a, b) => of(&|i| if values[c][i] != 0.0 { values[a][i] } else { values[b][i] }),
                Instruction::RowSum(_) | Instruction::Coordinate { .. } => unreachable!(),
            });
        }
        let [first, second, summed, by_column] = places.map(|place| place % instructions.len());
        let sums = |strides: [usize; 2]| OutputKind::Sums { strides: strides.to_vec(), rows: false };
        let outputs = vec![
            Output { place: first, kind: OutputKind::Elements },
            Output { place: second, kind: OutputKind::Elements },
            Output { place: summed, kind: sums([0, 0]) },
            Output { place: by_column, kind: sums([0, 1]) },
        ];
        let formula = Formula { space: vec![rows, row], rows: usize::from(with_rows), instructions, outputs };
        let whole = [row, 1];
        let operands = [
            Operand { data: Data::Result(0), strides: &whole },
            Operand { data: Data::Result(1), strides: &whole },
            Operand { data: Data::Float(&per_row), strides: &[1, 0] },
            Operand { data: Data::Float(&given), strides: &whole },
        ];
        let mut results = [x.clone(), y.clone(), vec![f32::NAN], vec![f32::NAN; row]];
        formula.run(Isa::best(), &operands, &mut results.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        prop_assert_eq!(&results[0], &values[first]);
        prop_assert_eq!(&results[1], &values[second]);
        let close = |found: f32, terms: &mut dyn Iterator<Item = f32>| {
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + f64::from(x), size + f64::from(x.abs())));
            (f64::from(found) - sum).abs() <= 1e-6 * size
        };
        prop_assert!(close(results[2][0], &mut values[summed].iter().copied()));
        for (column, found) in results[3].iter().enumerate() {
            prop_assert!(close(*found, &mut values[by_column].iter().copied().skip(column).step_by(row)));
        }
    }
}
