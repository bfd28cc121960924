//! What Swin Transformers of version 2 compute from parameters and constants before attention: cosines for scores, a
//! learned factor of them, a bias without a part for keys, and a bias that a small network computes (`offsets`).

use zoo_recipe::Layer;
use zoo_recipe::layers::LogitScale;
use zoo_recipe::layers::WeightNorm;
use zoo_recipe::schema::Padding;

use crate::Refusal;
use crate::arguments::At;
use crate::constant::Constant;
use crate::experts::{EXPERTS, Routed};
use crate::joins::POSITIONS;
use crate::masks::COUNTED;
use crate::offsets::Offsets;
use crate::operation::{Tensor, Unit, What};
use crate::reader::{REPEATED, Reader, Seen};
use crate::rows::Row;
use crate::scores::Bias;
use crate::sides::SIDES;
use crate::standardised::Standardised;
use crate::trace::{Argument, Made};
use crate::turned::{TURNED, Turned};
use crate::view::View;
use crate::word::Word;

/// Most parts of a bias.
const MOST_PARTS: usize = 16;

pub(crate) const LENGTHS: &str = "`dot_product_attention` with `cosine` divides queries and keys by their lengths";

/// What has no layer of its own.
#[derive(Clone, Debug)]
pub(crate) enum Computed {
    /// A view of the result of an operation, divided by its lengths along an axis.
    OfLengthOne(Tensor, Vec<View>, usize),
    /// min(x, bound) of a parameter.
    Bounded(String, f64),
    /// e^min(x, bound) of a parameter.
    Factor(String, f64),
    /// A bias, without those of as many equal parts that are false.
    Bias(String, Vec<bool>),
    /// What a small network makes of offsets.
    Offsets(Offsets),
    /// By sample and key, whether an input is not 0 there.
    Seen(Tensor),
    /// What that adds to scores: 0, or minus infinity.
    Hides(Tensor),
    /// A learned bias of scores, and a constant mask.
    Biased(Bias, Constant),
    /// What is computed of the choices of a mixture of experts.
    Routed(Routed),
    /// The matrices of experts, a parameter, with their last two axes exchanged.
    Matrices(String),
    /// Channels that constants mix.
    Turned(Turned),
    /// A number for each row.
    Row(Row),
    /// A parameter plus a number.
    Shifted(String, f64),
    /// Filters that are normalised.
    Standardised(Standardised),
    /// A parameter times a number.
    Multiple(String, f64),
    /// Tensors of the trace along a new first axis.
    Stacked(Vec<usize>),
    /// Parameters and constants side by side, `[width]`.
    Sides(Vec<Argument>),
    /// A map with minus infinity around it.
    Surrounded(Tensor, Padding),
    /// The same with its two last axes exchanged.
    Columns(Turned),
    /// Heads of keys or values, a tensor of the trace, each for a group of heads of queries.
    Grouped {
        /// The tensor, `[n, heads, t, d]`.
        of: usize,
        /// Heads of queries for each of its heads.
        group: usize,
        /// Whether its two last axes are exchanged.
        columns: bool,
    },
    /// The weight of a module, a direction times a length.
    Normed(String, WeightNorm),
}

impl Computed {
    /// This, of the shape `from`, in another shape, if attention takes it so.
    pub fn viewed(&self, from: &[usize], made: &Made, views: &[View]) -> Option<Self> {
        match self {
            Self::OfLengthOne(base, known, axis) => {
                let mut shape = from.to_vec();
                let mut axis = *axis;
                for view in views {
                    axis = moved(view, &shape, axis)?;
                    shape = view.shape(&shape);
                }
                (shape == made.shape).then(|| Self::OfLengthOne(*base, [known, views].concat(), axis))
            }
            Self::Offsets(offsets) => Some(Self::Offsets(offsets.viewed(made, views))),
            Self::Standardised(filters) => filters.viewed(made, views).map(Self::Standardised),
            // A parameter times a number, in any shape.
            Self::Multiple(..) => views.iter().all(|view| matches!(view, View::Reshape(_))).then(|| self.clone()),
            Self::Turned(turned) if views == [View::Permute(vec![0, 1, 3, 2])] => Some(Self::Columns(turned.clone())),
            Self::Grouped { of, group, columns } if views == [View::Permute(vec![0, 1, 3, 2])] => {
                Some(Self::Grouped { of: *of, group: *group, columns: !columns })
            }
            Self::Turned(turned) => turned.viewed(views).filter(|turned| turned.shape == made.shape).map(Self::Turned),
            // Further axes are those of heads and queries.
            Self::Seen(_) | Self::Hides(_) => Some(self.clone()),
            Self::Biased(..) => views.is_empty().then(|| self.clone()),
            Self::Bounded(..)
            | Self::Factor(..)
            | Self::Bias(..)
            | Self::Normed(..)
            | Self::Row(_)
            | Self::Shifted(..)
            | Self::Surrounded(..)
            | Self::Stacked(_)
            | Self::Sides(_)
            | Self::Columns(_)
            | Self::Routed(_)
            | Self::Matrices(_)
            | Self::Grouped { .. } => views.is_empty().then(|| self.clone()),
        }
    }

    /// Why nothing else can be done with it, and what can.
    pub fn refusal(&self) -> (String, &'static str) {
        match self {
            Self::OfLengthOne(..) => ("it divides rows by their lengths".to_owned(), LENGTHS),
            Self::Bounded(name, _) | Self::Factor(name, _) => {
                (format!("it bounds the parameter `{name}`"), "`logit_scale` gives a bounded factor of scores")
            }
            Self::Bias(name, _) => {
                (format!("it sets a part of the parameter `{name}` to 0"), "`linear` has `bias_of`, for its own bias")
            }
            Self::Biased(..) => ("it adds a constant tensor to a parameter".to_owned(), POSITIONS),
            Self::Seen(_) | Self::Hides(_) => ("it computes with what it compares".to_owned(), COUNTED),
            Self::Turned(_) | Self::Columns(_) => ("it multiplies by a constant tensor".to_owned(), TURNED),
            Self::Routed(_) | Self::Matrices(_) => ("it uses the choices of experts".to_owned(), EXPERTS),
            Self::Row(_) => ("it uses numbers of rows".to_owned(), "`map` has `row_mean`, `row_sum` and `row_max`"),
            Self::Standardised(filters) => (
                format!("it normalises the parameter `{}`", filters.weight),
                "`conv` has `standardised`: filters normalised by their own mean and variance",
            ),
            Self::Multiple(name, by) => (
                format!("it multiplies the parameter `{name}` by {by}"),
                "`parameter` is a value, which `scale` multiplies",
            ),
            Self::Sides(_) => ("it uses parameters side by side".to_owned(), SIDES),
            Self::Stacked(_) => ("it stacks samples".to_owned(), "`concat` joins channels or rows; sums add tensors"),
            Self::Surrounded(..) => {
                ("it pads with minus infinity".to_owned(), "`max_pool` with `pad` ignores what is around the map")
            }
            Self::Shifted(name, _) => {
                (format!("it adds a number to the parameter `{name}`"), "`rms_norm` has an `offset` of its scale")
            }
            Self::Normed(owner, _) => (
                format!("it uses the weight of `{owner}`, a direction times a length"),
                "`conv`, `conv1d` and `linear` have `weight_norm`",
            ),
            Self::Grouped { .. } => ("it repeats heads of keys or values".to_owned(), REPEATED),
            Self::Offsets(_) => (
                "it computes with constants and parameters alone".to_owned(),
                "`continuous_position_bias` is a bias of attention scores that a small network computes",
            ),
        }
    }
}

/// The place of an axis after a view; `None` if the view does not keep it as a whole.
fn moved(view: &View, from: &[usize], axis: usize) -> Option<usize> {
    match view {
        View::Permute(order) => order.iter().position(|source| *source == axis),
        View::Reshape(to) => {
            let before = |shape: &[usize], axis: usize| shape[..axis].iter().product::<usize>();
            let extent = from.get(axis)?;
            let is_same = |place: &usize| to[*place] == *extent && before(to, *place) == before(from, axis);
            (0..to.len()).find(is_same)
        }
        View::Select(..) | View::Slice(..) | View::Every(..) | View::Roll(_) | View::Fill(_) => None,
    }
}

impl Reader<'_> {
    /// What an argument is, if it has no layer of its own.
    pub(crate) fn computed(&self, argument: Option<&Argument>) -> Option<&Computed> {
        let Some(Seen::Computed(computed)) = self.given(argument) else { return None };
        Some(computed)
    }

    pub(crate) fn is_computed(&mut self, at: &At<'_>, computed: Computed) -> Result<(), Refusal> {
        self.is(at.made()?.value, Seen::Computed(Box::new(computed)));
        Ok(())
    }

    /// PyTorch's normalize, along the last axis.
    pub(crate) fn of_length_one(&mut self, at: &mut At<'_>) -> Result<(), Refusal> {
        let input = at.input();
        let (Some(Seen::Of(base, views)), rank) = (self.given(input).cloned(), at.made()?.shape.len()) else {
            return Err(at.refuse("it divides rows by their lengths", LENGTHS));
        };
        let (norm, least) = (at.float(1, "p", 2.0)?, at.float(3, "eps", 1e-12)?);
        let axis = match at.argument(2, &["dim"]) {
            None => Some(1),
            Some(axis) => axis.int().and_then(|axis| crate::arguments::wrapped(axis, rank)),
        };
        at.only("p", norm, 2.0)?;
        at.only("eps", least, 1e-12)?;
        match axis {
            Some(axis) if axis > 0 => self.is_computed(at, Computed::OfLengthOne(base, views, axis)),
            _ => Err(at.refuse("it divides by lengths along the axis of samples", LENGTHS)),
        }
    }

    /// The tensor that rows of length one are, where they are no queries or keys.
    pub(crate) fn rows_of_length_one(
        &mut self,
        (base, views, axis): (Tensor, &[View], usize),
        units: &mut Vec<Unit>,
        (module, at, operator): (&str, &str, &str),
    ) -> Result<(Tensor, Vec<View>), Refusal> {
        let rank = crate::view::shape(self.shape_of(base), views).len();
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(axis, rank - 1);
        let swapped = View::Permute(order);
        let moved = self.new_value(Seen::Of(base, [views, std::slice::from_ref(&swapped)].concat()));
        let x = self.tensor(moved, module, at, operator, units)?;
        let shape = self.shape_of(x).to_vec();
        let what = What::Layer(Word::formula("x / max(sqrt(row_sum(x^2)), 1e-12)".to_owned()));
        Ok((self.push(units, what, vec![x], shape, at), vec![swapped]))
    }

    /// The bound of a parameter.
    pub(crate) fn bounded(&mut self, at: &mut At<'_>, name: &str) -> Result<(), Refusal> {
        let most = at.argument(2, &["max"]).and_then(Argument::number);
        match (at.argument(1, &["min"]), most) {
            (None, Some(most)) => self.is_computed(at, Computed::Bounded(name.to_owned(), most)),
            _ => Err(at.refuse(
                format!("it bounds the parameter `{name}` from below"),
                "`logit_scale` bounds its parameter from above",
            )),
        }
    }

    /// Parts of a bias are set to 0. `None` if something else is overwritten.
    pub(crate) fn bias_cut(&mut self, at: &mut At<'_>) -> Result<Option<()>, Refusal> {
        let (input, key, value) = (at.input(), at.argument(1, &["key"]), at.argument(2, &["value"]));
        let name = match self.given(input) {
            Some(Seen::Reshaped(name, shape)) if shape == self.trace.shape(name) => Some(name.clone()),
            _ => None,
        };
        let (Some(name), Some(Argument::Slice([start, stop, None | Some(1)])), Some(0.0)) =
            (name, key, value.and_then(Argument::number))
        else {
            return Ok(None);
        };
        let [extent] = *self.trace.shape(&name) else { return Ok(None) };
        let place = |index: Option<i64>, usual| index.map_or(Some(usual), |index| usize::try_from(index).ok());
        let (from, to) = (place(*start, 0), place(*stop, extent));
        let parts = (2..=MOST_PARTS).filter(|parts| extent.is_multiple_of(*parts)).find_map(|parts| {
            let size = extent / parts;
            let (from, to) = (from?, to?);
            let fits = from < to && to <= extent && from.is_multiple_of(size) && to.is_multiple_of(size);
            fits.then(|| (0..parts).map(|part| !(from..to).contains(&(part * size))).collect())
        });
        match parts {
            Some(parts) => self.is_computed(at, Computed::Bias(name, parts)).map(Some),
            None => Err(at.refuse(
                format!("it sets elements of the parameter `{name}` to 0 that are no part"),
                "`linear` with `bias_of` has a bias for some of its outputs",
            )),
        }
    }

    /// The layer that gives the factor of cosines.
    pub(crate) fn logit_scale(
        &mut self,
        at: &mut At<'_>,
        name: &str,
        bound: f64,
        heads: usize,
    ) -> Result<Tensor, Refusal> {
        if self.trace.shape(name) != [heads, 1, 1] {
            return Err(at.refuse(
                format!("scores of {heads} heads are multiplied by `{name}`, {:?}", self.trace.shape(name)),
                "`logit_scale` has a parameter [heads, 1, 1]",
            ));
        }
        // The shortest number of which this is the logarithm.
        let most = bound.exp();
        let most = (1..16).filter_map(|digits| format!("{most:.digits$e}").parse::<f64>().ok());
        let Some(most) = most.into_iter().find(|most| most.ln() == bound) else {
            return Err(at.refuse(format!("the parameter `{name}` is at most {bound}"), "`logit_scale` has `most`"));
        };
        let layer = LogitScale { most, ..LogitScale::of(heads) };
        let what = What::Layer(Word::of(&Layer::LogitScale(layer)));
        Ok(self.beside(at, what, name.to_owned(), vec![heads, 1, 1]))
    }

    /// A layer with parameters that gives what an attention takes beside tensors.
    pub(crate) fn beside(&mut self, at: &mut At<'_>, what: What, name: String, shape: Vec<usize>) -> Tensor {
        let result = self.inner(at, what, Vec::new(), shape);
        if let Some(Unit::Operation(operation)) = at.units.last_mut() {
            operation.name = Some(name);
        }
        result
    }

    /// Which parts of its outputs a dense layer adds its own bias to; all if the list is empty.
    pub(crate) fn parts_of_bias(&self, argument: Option<&Argument>, owner: &str) -> Option<Vec<bool>> {
        match self.computed(argument)? {
            Computed::Bias(name, parts) if *name == format!("{owner}.bias") => Some(parts.clone()),
            _ => None,
        }
    }
}
