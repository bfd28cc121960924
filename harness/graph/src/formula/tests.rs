use super::*;
use differentiate::Given;
use proptest::prelude::*;

/// The value of a formula without rows for one element.
fn at(formula: &Formula, operands: &[f64]) -> Vec<f64> {
    let mut values = Vec::new();
    for term in formula.terms() {
        let value = |id: &TermId| -> f64 { values[id.0] };
        values.push(match term {
            Term::Operand(n) => operands[*n],
            Term::Constant(value) => *value,
            Term::Unary(function, x) => function.of(value(x)),
            Term::Binary(function, a, b) => function.of(value(a), value(b)),
            Term::Select(condition, yes, no) => {
                if value(condition) != 0.0 {
                    value(yes)
                } else {
                    value(no)
                }
            }
            Term::Step(_) | Term::RowSize | Term::Coordinate(_) => unreachable!("not in these tests"),
            Term::Softmax(_) | Term::LogSoftmax(_) | Term::Row(..) => unreachable!("not in these tests"),
        });
    }
    formula.results().iter().map(|result| values[result.term.0]).collect()
}

/// The gradient of the first operand for one element.
fn slope(formula: &Formula, x: f64) -> f64 {
    let y = at(formula, &[x]);
    let gradient = formula.gradient(&[0], &[0]);
    let given = gradient.operands.iter().map(|given| match given {
        Given::Operand(n) => [x][*n],
        Given::Result(n) => y[*n],
        Given::ResultGradient(_) => 1.0,
    });
    at(&gradient.formula, &given.collect::<Vec<_>>())[0]
}

#[test]
fn formulas_print_as_they_read() {
    for text in [
        "a * sigmoid(1.702 * a)",
        "a * min(max(a + 3, 0), 6) / 6",
        "(a + b) * c",
        "a - (b - c)",
        "a / (b * c)",
        "-(a + b)",
        "a ^ 2",
        "select(a > 0, a, 0.01 * a)",
        "a * tanh(softplus(a))",
        "a >= b",
        "a - row_sum(a) / row_size",
        "softmax(a) * row_max(b) - log_softmax(a)",
    ] {
        let formula = parse(text, &["a", "b", "c"], 1).unwrap();
        let printed = formula.to_string();
        assert_eq!(parse(&printed, &["a", "b", "c"], 1).unwrap(), formula, "{text} -> {printed}");
    }
    assert_eq!(parse("a*sigmoid( 1.702*a )", &["a"], 1).unwrap().to_string(), "a * sigmoid(1.702 * a)");
    assert_eq!(parse("2 * 3 + x * 1 + 0", &["x"], 1).unwrap().to_string(), "6 + a");
}

#[test]
fn mistakes_point_at_their_place() {
    for (text, at, part) in [
        ("x * sigmod(x)", 4, "did you mean `sigmoid`?"),
        ("x + y", 4, "there is no operand `y`"),
        ("x +", 3, "unexpected end"),
        ("x * (1 + x", 10, "expected `)`"),
        ("max(x)", 0, "takes 2 values, not 1"),
        ("exp(x, x)", 0, "takes 1 value, not 2"),
        ("x $ 2", 2, "unexpected"),
        ("x x", 2, "after the end"),
        ("1.2.3 * x", 0, "not a number"),
        ("1e999", 0, "not a number"),
        ("", 0, "unexpected end"),
    ] {
        let error = parse(text, &["x"], 1).unwrap_err();
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }
    let deep = format!("{}x", "-".repeat(900));
    assert!(parse(&deep, &["x"], 1).unwrap_err().message.contains("nested"));
    let long = "x + ".repeat(501);
    assert_eq!(parse(&long, &["x"], 1).unwrap_err().message, "more than 1000 numbers, names and signs");
    assert!(parse(&format!("{}x", "x + ".repeat(499)), &["x"], 1).is_ok());
}

#[test]
fn a_gradient_reads_the_result_where_that_is_enough() {
    let reads = |formula: Formula| formula.gradient(&[0], &[0]).operands;
    let by_result = [Given::ResultGradient(0), Given::Result(0)];
    for formula in [
        Formula::define(0, |[x]| [x.sigmoid()]),
        Formula::define(0, |[x]| [x.tanh()]),
        Formula::define(0, |[x]| [x.exp()]),
        Formula::define(1, |[x]| [x.softmax()]),
        Formula::define(1, |[x]| [x.log_softmax()]),
    ] {
        let mut operands = reads(formula);
        operands.sort_by_key(|given| !matches!(given, Given::ResultGradient(_)));
        assert_eq!(operands, by_result);
    }
    assert!(reads(Formula::define(0, |[x]| [x * x.sigmoid()])).contains(&Given::Operand(0)));
}

#[test]
fn ties_go_where_pytorch_sends_them() {
    let relu = Formula::define(0, |[x]| [x.max(0.0)]);
    let relu6 = Formula::define(0, |[x]| [x.max(0.0).min(6.0)]);
    assert_eq!((slope(&relu, 0.0), slope(&relu, 1e-300), slope(&relu, -1.0)), (0.0, 1.0, 0.0));
    assert_eq!((slope(&relu6, 0.0), slope(&relu6, 6.0), slope(&relu6, 3.0)), (0.0, 0.0, 1.0));
}

/// As `torch.pow`, whose gradients are 0 where their formulas are 0 * infinity or 0 * NaN.
#[test]
fn powers_of_zero_have_gradients() {
    let power = Formula::define(0, |[a, b]| [a.pow(b)]);
    let gradient = power.gradient(&[0], &[0, 1]);
    let slopes = |a: f64, b: f64| {
        let given = gradient.operands.iter().map(|given| match given {
            Given::Operand(n) => [a, b][*n],
            Given::Result(_) => Binary::Pow.of(a, b),
            Given::ResultGradient(_) => 1.0,
        });
        at(&gradient.formula, &given.collect::<Vec<_>>())
    };
    assert_eq!(slopes(0.0, 0.0), [0.0, 0.0]);
    assert_eq!(slopes(0.0, 2.0), [0.0, 0.0]);
    assert_eq!(slopes(0.0, 0.5), [f64::INFINITY, 0.0]);
    assert_eq!(slopes(3.0, 0.0), [0.0, libm::log(3.0)]);
    assert_eq!(slopes(3.0, 2.0), [6.0, 9.0 * libm::log(3.0)]);
    assert_eq!(slopes(0.0, -1.0), [f64::NEG_INFINITY, f64::NEG_INFINITY]);
    let of_zero = Formula::define(0, |[b]| [b.number(0.0).pow(b)]);
    assert_eq!((slope(&of_zero, 0.0), slope(&of_zero, 2.0)), (0.0, 0.0));
}

#[test]
fn constant_exponents_cost_no_selection() {
    let selects = |formula: &Formula| formula.terms().iter().filter(|term| matches!(term, Term::Select(..))).count();
    let gradient = |text: &str| parse(text, &["x"], 1).unwrap().gradient(&[0], &[0]).formula;
    assert_eq!((selects(&gradient("x ^ 1.5")), selects(&gradient("2 ^ x")), selects(&gradient("x ^ x"))), (0, 0, 3));
    assert_eq!(parse("x ^ 0 + x", &["x"], 1).unwrap().to_string(), "1 + a");
}

proptest! {
    /// Slopes against central differences, away from kinks.
    #[test]
    fn gradients_are_slopes(x in -4.0..4.0f64) {
        for text in [
            "x * sigmoid(x)", "x * tanh(softplus(x))", "0.5 * x * (1 + erf(x / sqrt(2)))", "exp(sin(x)) / (2 + cos(x))",
            "(x * x + 1) ^ 1.5", "x * expm1(x)", "log(x * x + 0.5) * rsqrt(x * x + 2)", "2 ^ x", "abs(x) * x", "-sqrt(x * x + 1)",
        ] {
            let formula = parse(text, &["x"], 1).unwrap();
            let h = 1e-6;
            let expected = (at(&formula, &[x + h])[0] - at(&formula, &[x - h])[0]) / (2.0 * h);
            let found = slope(&formula, x);
            prop_assert!((found - expected).abs() <= 1e-6 * (1.0 + expected.abs()), "{text} at {x}: {found} {expected}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[x0-9a-c+*/^(),.<>= -]{0,40}") {
        if let Ok(formula) = parse(&text, &["x", "a"], 1) {
            let printed = formula.to_string();
            let again = parse(&printed, &["a", "b"], 1).unwrap();
            prop_assert_eq!(again.terms().len(), formula.terms().len());
        }
    }
}
