//! Initialisation of parameters: per layer, and defaults.

pub use zoo_graph::init::{Dirac, FanMode, Init, Kaiming, NormalInit, TorchDefault, UniformInit, Xavier};

zoo_settings::settings! {
    /// Initialisation of the parameters of a convolution or dense layer. The defaults come from the enclosing block,
    /// then from `model.init`, then from PyTorch (`torch_default`).
    pub struct WeightInit {
        /// Initialisation of the weight.
        pub weight?: Init,
        /// Initialisation of the bias.
        pub bias?: Init,
    }
}

impl WeightInit {
    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This, completed by `other`.
    pub(crate) fn or(&self, other: &Self) -> Self {
        let pick = |own: &Option<Init>, other: &Option<Init>| own.as_ref().or(other.as_ref()).cloned();
        Self { weight: pick(&self.weight, &other.weight), bias: pick(&self.bias, &other.bias) }
    }

    /// How the weight starts.
    pub fn weight(&self) -> Init {
        self.weight.clone().unwrap_or(Init::TorchDefault(TorchDefault {}))
    }

    /// How the bias starts.
    pub fn bias(&self) -> Init {
        self.bias.clone().unwrap_or(Init::TorchDefault(TorchDefault {}))
    }
}

zoo_settings::settings! {
    /// Initialisation of the parameters of a batch normalisation. The defaults come from the enclosing block, then from
    /// `model.init`, then from PyTorch (gamma 1, beta 0).
    pub struct BnInit {
        /// Value of all elements of the scale. Zero for the last normalisation of a residual branch makes the block
        /// start as the identity (arXiv 1706.02677).
        pub gamma?: f64,
        /// Value of all elements of the shift.
        pub beta?: f64,
    }
}

impl BnInit {
    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This, completed by `other`.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self { gamma: self.gamma.or(other.gamma), beta: self.beta.or(other.beta) }
    }
}

zoo_settings::settings! {
    /// Initialisation of all parameters whose layer has none. By default as in PyTorch (`torch_default`; gamma 1, beta
    /// 0).
    pub struct InitDefaults {
        /// Initialisation of convolutions.
        pub conv: WeightInit = WeightInit::default(),
        /// Initialisation of dense layers.
        pub linear: WeightInit = WeightInit::default(),
        /// Initialisation of batch normalisations.
        pub bn: BnInit = BnInit::default(),
    }
}

impl InitDefaults {
    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This, completed by `other`.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self { conv: self.conv.or(&other.conv), linear: self.linear.or(&other.linear), bn: self.bn.or(&other.bn) }
    }
}
