//! Initialisation of variables: distributions of `zoo_recipe`, drawn by a counter-based generator.
//!
//! Word `n` of element `i` of a variable is `mix(mix(key + (i + 1) * G) + (n + 1) * G)`, with `mix` the finalizer of
//! SplitMix64 (Steele, Lea, Flood 2014), `G` its increment and `key = mix(seed) ^ fnv1a64(name)`. So every element is a
//! function of the seed, the variable's name and its row-major index alone. Values are computed in f64 and rounded to
//! f32, in graphs of any element type, so that an f64 step starts from the same numbers as an f32 step.

use crate::{EngineError, candle_dtype};
use candle_core::{Device, Tensor};
use rayon::prelude::*;
use zoo_graph::{Graph, Shape, Variable, VariableId, VariableRole};
use zoo_recipe::schema::{FanMode, Init};

/// The initial value of a variable, as a row-major tensor.
///
/// # Errors
/// As [`first_values`].
pub fn initial(graph: &Graph, id: VariableId, seed: u64) -> Result<Tensor, EngineError> {
    let ty = graph.ty(graph.variable(id).value);
    let values = first_values(graph, id, seed, ty.shape.numel())?;
    Ok(Tensor::from_vec(values, ty.shape.to_vec(), &Device::Cpu)?.to_dtype(candle_dtype(ty.dtype))?)
}

/// The first `count` initial elements of a variable, in row-major order.
///
/// # Errors
/// An initialiser that needs fans for a tensor without them: one with fewer than two axes that is not the bias of a
/// weight.
pub fn first_values(graph: &Graph, id: VariableId, seed: u64, count: usize) -> Result<Vec<f32>, EngineError> {
    let variable = match graph.variable(id).role {
        VariableRole::Average { parameter } => graph.variable(parameter),
        VariableRole::Weight
        | VariableRole::Bias
        | VariableRole::NormWeight
        | VariableRole::NormBias
        | VariableRole::RunningMean
        | VariableRole::RunningVar
        | VariableRole::Slot { .. } => graph.variable(id),
    };
    let distribution = Distribution::of(graph, variable)?;
    let words = Words::new(seed, &variable.name);
    let elements = (0..count).into_par_iter().with_min_len(1 << 12);
    Ok(elements.map(|i| distribution.draw(&words, i as u64) as f32).collect())
}

/// An initialiser, with all that it needs from its variable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Distribution {
    /// One value.
    Constant(f64),
    /// Between minus and plus this bound.
    Uniform(f64),
    /// Around zero with this standard deviation.
    Normal(f64),
    /// As `Normal`, with values beyond two standard deviations drawn again.
    TruncatedNormal(f64),
    /// The first filters copy one channel each; the others are uniform with this bound.
    Dirac {
        /// Channels, and filters that copy one.
        channels: u64,
        /// Elements of a filter per channel.
        taps: u64,
        /// Which of them is the centre.
        centre: u64,
        bound: f64,
    },
}

impl Distribution {
    fn of(graph: &Graph, variable: &Variable) -> Result<Self, EngineError> {
        let fans = || Fans::of(graph, variable);
        Ok(match &variable.init {
            Init::KaimingNormal(kaiming) => Self::Normal(kaiming.gain / fans()?.mode(kaiming.mode).sqrt()),
            Init::KaimingUniform(kaiming) => Self::Uniform(kaiming.gain * (3.0 / fans()?.mode(kaiming.mode)).sqrt()),
            Init::XavierNormal(xavier) => Self::Normal(xavier.gain * (2.0 / fans()?.sum()).sqrt()),
            Init::XavierUniform(xavier) => Self::Uniform(xavier.gain * (6.0 / fans()?.sum()).sqrt()),
            Init::Uniform(uniform) => Self::Uniform(uniform.bound),
            Init::Normal(normal) => Self::Normal(normal.std),
            Init::TruncatedNormal(normal) => Self::TruncatedNormal(normal.std),
            Init::Constant(value) => Self::Constant(*value),
            Init::Dirac(_) => {
                let shape = &graph.ty(variable.value).shape;
                let extents: Vec<u64> = shape.iter().skip(2).map(|extent| *extent as u64).collect();
                // PyTorch's centre of an even extent is behind the middle.
                let centre = extents.iter().fold(0, |centre, extent| centre * extent + extent / 2);
                let channels = shape.get(1).map_or(0, |channels| *channels as u64);
                let bound = 1.0 / fans()?.fan_in.sqrt();
                Self::Dirac { channels, taps: extents.iter().product(), centre, bound }
            }
            Init::TorchDefault(_) => Self::Uniform(1.0 / fans()?.fan_in.sqrt()),
        })
    }

    fn draw(self, words: &Words, element: u64) -> f64 {
        match self {
            Self::Constant(value) => value,
            Self::Dirac { channels, taps, centre, .. } if element < channels * channels * taps => {
                let (row, tap) = (element / taps, element % taps);
                let copies = row / channels == row % channels && tap == centre;
                f64::from(u8::from(copies))
            }
            Self::Uniform(bound) | Self::Dirac { bound, .. } => bound * (2.0 * words.uniform(element, 0) - 1.0),
            Self::Normal(std) => std * words.normal(element, 0),
            Self::TruncatedNormal(std) => {
                let mut attempt = 0;
                loop {
                    let z = words.normal(element, attempt);
                    if z.abs() <= 2.0 {
                        return std * z;
                    }
                    attempt += 1;
                }
            }
        }
    }
}

/// Connections per output and per input of a weight.
struct Fans {
    fan_in: f64,
    fan_out: f64,
}

impl Fans {
    /// Fans of a weight `[out, in, ...]`: the product of all dimensions except the first, and of all except the
    /// second, as in `torch.nn.init._calculate_fan_in_and_fan_out`. A bias has the fans of its weight.
    fn of(graph: &Graph, variable: &Variable) -> Result<Self, EngineError> {
        let shape = |variable: &Variable| graph.ty(variable.value).shape.clone();
        let weight = match variable.role {
            VariableRole::Bias => {
                let weight = variable.name.strip_suffix("bias").map(|layer| format!("{layer}weight"));
                weight.and_then(|weight| graph.find_variable(&weight)).map(|id| shape(graph.variable(id)))
            }
            VariableRole::Weight
            | VariableRole::NormWeight
            | VariableRole::NormBias
            | VariableRole::RunningMean
            | VariableRole::RunningVar
            | VariableRole::Slot { .. }
            | VariableRole::Average { .. } => Some(shape(variable)),
        };
        weight.as_ref().and_then(Self::of_shape).ok_or_else(|| EngineError::Initializer {
            name: variable.name.clone(),
            message: "its initialiser needs a weight with at least two axes: use a constant or a bound".into(),
        })
    }

    fn of_shape(shape: &Shape) -> Option<Self> {
        let &[outputs, inputs, ref rest @ ..] = &shape[..] else { return None };
        let taps: usize = rest.iter().product();
        Some(Self { fan_in: (inputs * taps) as f64, fan_out: (outputs * taps) as f64 })
    }

    fn mode(&self, mode: FanMode) -> f64 {
        match mode {
            FanMode::FanIn => self.fan_in,
            FanMode::FanOut => self.fan_out,
        }
    }

    fn sum(&self) -> f64 {
        self.fan_in + self.fan_out
    }
}

/// The random words of one variable.
struct Words {
    key: u64,
}

/// SplitMix64's increment: the golden ratio in 64 bits.
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

impl Words {
    fn new(seed: u64, name: &str) -> Self {
        let fnv1a64 =
            name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |z, b| (z ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Self { key: mix(seed) ^ fnv1a64 }
    }

    fn word(&self, element: u64, n: u64) -> u64 {
        let element = mix(self.key.wrapping_add((element + 1).wrapping_mul(INCREMENT)));
        mix(element.wrapping_add((n + 1).wrapping_mul(INCREMENT)))
    }

    /// Uniform in `(0, 1)`: the middle of one of 2^52 equal parts.
    fn uniform(&self, element: u64, n: u64) -> f64 {
        ((self.word(element, n) >> 12) as f64 + 0.5) * 2f64.powi(-52)
    }

    /// Standard normal, by Box and Muller (1958) from words `2 * attempt` and the next.
    fn normal(&self, element: u64, attempt: u64) -> f64 {
        let radius = (-2.0 * libm::log(self.uniform(element, 2 * attempt))).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.uniform(element, 2 * attempt + 1))
    }
}

/// Finalizer of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z ^= z >> 30;
    z = z.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^= z >> 27;
    z = z.wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_graph::{DType, TensorType};
    use zoo_recipe::schema::{Dirac, Kaiming, NormalInit, TorchDefault, UniformInit, Xavier};

    /// A layer with a weight of fan_in 72 and fan_out 1152, and a bias.
    fn layer(init: Init) -> Graph {
        let mut graph = Graph::default();
        for (name, role, shape) in
            [("conv.weight", VariableRole::Weight, vec![128, 8, 3, 3]), ("conv.bias", VariableRole::Bias, vec![128])]
        {
            graph.add_variable(name, role, TensorType::plain(shape, DType::F32), init.clone(), None);
        }
        graph
    }

    fn values(init: Init) -> Vec<f64> {
        let tensor = initial(&layer(init), VariableId(0), 7).unwrap();
        tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f64::from).collect()
    }

    /// Mean, standard deviation and largest magnitude.
    fn statistics(values: &[f64]) -> [f64; 3] {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        [mean, variance.sqrt(), values.iter().fold(0.0, |m, v| v.abs().max(m))]
    }

    /// With 9216 values, the error of the mean is at most 4 standard errors, and that of the deviation 4 of its own.
    fn expect(init: Init, std: f64, bound: Option<f64>) {
        let [mean, found, greatest] = statistics(&values(init.clone()));
        assert!(mean.abs() < 4.0 * std / 96.0, "{init:?}: mean {mean}");
        assert!((found / std - 1.0).abs() < 4.0 / (2.0f64 * 9216.0).sqrt(), "{init:?}: deviation {found}, not {std}");
        match bound {
            Some(bound) => assert!(greatest <= bound && greatest > 0.99 * bound, "{init:?}: up to {greatest}"),
            None => assert!(greatest > 3.0 * std, "{init:?}: up to {greatest}"),
        }
    }

    #[test]
    fn distributions_are_those_of_their_formulas() {
        let (fan_in, fan_out) = (72f64, 1152f64);
        let kaiming = |mode, gain| Kaiming { mode, gain };
        let root3 = 3f64.sqrt();
        expect(Init::KaimingNormal(Kaiming::default()), (2.0 / fan_in).sqrt(), None);
        expect(Init::KaimingNormal(kaiming(FanMode::FanOut, 1.0)), (1.0 / fan_out).sqrt(), None);
        let he = (6.0 / fan_in).sqrt();
        expect(Init::KaimingUniform(Kaiming::default()), he / root3, Some(he));
        expect(Init::XavierNormal(Xavier::default()), (2.0 / (fan_in + fan_out)).sqrt(), None);
        let glorot = 0.5 * (6.0 / (fan_in + fan_out)).sqrt();
        expect(Init::XavierUniform(Xavier { gain: 0.5 }), glorot / root3, Some(glorot));
        expect(Init::Uniform(UniformInit { bound: 0.3 }), 0.3 / root3, Some(0.3));
        expect(Init::Normal(NormalInit { std: 0.01 }), 0.01, None);
        // A standard normal distribution truncated at two deviations has variance 1 - 4 phi(2) / (2 Phi(2) - 1) =
        // 0.774.
        expect(Init::TruncatedNormal(NormalInit { std: 0.01 }), 0.008_796, Some(0.02));
        let torch = 1.0 / fan_in.sqrt();
        expect(Init::TorchDefault(TorchDefault {}), torch / root3, Some(torch));
        assert!(values(Init::Constant(0.5)).iter().all(|v| *v == 0.5));
    }

    /// Of 128 filters of 8 channels, 8 copy a channel.
    #[test]
    fn dirac_copies_channels() {
        let values = values(Init::Dirac(Dirac {}));
        let (copies, rest) = values.split_at(8 * 8 * 9);
        let ones: Vec<usize> = (0..copies.len()).filter(|i| copies[*i] == 1.0).collect();
        assert_eq!(ones, (0..8).map(|k| (k * 8 + k) * 9 + 4).collect::<Vec<_>>());
        assert!(copies.iter().filter(|value| **value != 0.0).count() == 8);
        let bound = 1.0 / 72f64.sqrt();
        assert!(
            rest.iter().all(|value| value.abs() <= bound + 1e-9) && rest.iter().any(|value| value.abs() > 0.99 * bound)
        );
    }

    #[test]
    fn quartiles_of_the_normal_are_where_they_belong() {
        let mut values = values(Init::Normal(NormalInit { std: 1.0 }));
        values.sort_by(f64::total_cmp);
        let quantile = |p: f64| values[(p * values.len() as f64) as usize];
        for (p, z) in [(0.25, -0.6745), (0.5, 0.0), (0.75, 0.6745), (0.975, 1.96)] {
            assert!((quantile(p) - z).abs() < 0.1, "{p}: {}", quantile(p));
        }
    }

    #[test]
    fn a_bias_has_the_fan_of_its_weight() {
        let graph = layer(Init::TorchDefault(TorchDefault {}));
        let bias: Vec<f32> = initial(&graph, VariableId(1), 7).unwrap().to_vec1().unwrap();
        let greatest = bias.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
        assert!(greatest < 1.0 / 72f32.sqrt() && greatest > 0.9 / 72f32.sqrt());
        let mut alone = Graph::default();
        let ty = TensorType::plain([4], DType::F32);
        alone.add_variable("bias", VariableRole::Bias, ty, Init::TorchDefault(TorchDefault {}), None);
        assert!(matches!(initial(&alone, VariableId(0), 7), Err(EngineError::Initializer { .. })));
    }

    #[test]
    fn values_hang_on_seed_name_and_index_only() {
        let words = |seed, name| Words::new(seed, name);
        let draws = |w: Words| (0..1000).map(|i| w.word(i, 0)).collect::<Vec<_>>();
        let reference = draws(words(1, "a"));
        assert_eq!(reference, draws(words(1, "a")));
        for other in [draws(words(2, "a")), draws(words(1, "b"))] {
            assert_eq!(other.iter().filter(|w| reference.contains(w)).count(), 0);
        }
        let in_pool = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| values(Init::Normal(NormalInit { std: 1.0 })))
        };
        assert_eq!(in_pool(1), in_pool(3));
    }

    #[test]
    fn f64_starts_from_the_same_numbers_as_f32() {
        let graph = |dtype| {
            let mut graph = Graph::default();
            let ty = TensorType::plain([4, 4], dtype);
            graph.add_variable("w", VariableRole::Weight, ty, Init::Normal(NormalInit { std: 1.0 }), None);
            graph
        };
        let single: Vec<f32> =
            initial(&graph(DType::F32), VariableId(0), 3).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let double: Vec<f64> =
            initial(&graph(DType::F64), VariableId(0), 3).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        assert!(single.iter().zip(&double).all(|(s, d)| f64::from(*s) == *d));
    }
}
