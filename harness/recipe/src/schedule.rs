//! The learning rate of each step, as a pure function.

use std::f64::consts::PI;

use crate::schema::{GuideCosine, Per, Schedule, StepDecay, TMax, Warmup, WarmupCount, WarmupShape};

impl Schedule {
    /// The learning rate that the update of `step` uses (from 0) in a training of `epochs` with `steps_per_epoch` each.
    /// Past the end of training it stays where it got to.
    ///
    /// Within the warm-up, at the fraction f of its way ((i+1)/n or i/n, see [`WarmupCount`]): start + (base -
    /// start)*f, or start*(base/start)^f. After it, with t and T in steps or epochs as [`Per`] and [`TMax`] say:
    ///
    /// | variant | formula | source |
    /// | --- | --- | --- |
    /// | constant | base | |
    /// | cosine | min + (base - min)*(1 + cos(pi*t/T))/2 | arXiv 1608.03983, eq. 5; PyTorch's CosineAnnealingLR |
    /// | guide_cosine | max*((total - i)/(total - W) * (1 + cos(2*pi*0.47*i/(total - W)))/2 + 1e-5) | MindSpore's ResNet50 migration guide |
    /// | poly | min + (base - min)*(1 - t/T)^power | DeepLab, arXiv 1606.00915, section 4.1.2; the DB authors' T is one more |
    /// | log | base*(end/base)^(t/(T - 1)) | numpy.logspace, as in the SiamMask authors' LogScheduler |
    /// | step | base*gamma^floor(i/every) | PyTorch's StepLR |
    pub fn lr(&self, step: usize, steps_per_epoch: usize, epochs: usize) -> f64 {
        let clock = Clock { step, steps_per_epoch: steps_per_epoch.max(1), epochs };
        match self {
            Self::Constant(constant) => {
                clock.warm(constant.warmup.as_ref(), constant.base_lr).unwrap_or(constant.base_lr)
            }
            Self::Cosine(cosine) => clock.warm(cosine.warmup.as_ref(), cosine.base_lr).unwrap_or_else(|| {
                let (t, end) = clock.decay(cosine.per, cosine.t_max, cosine.warmup.as_ref());
                cosine.min_lr + (cosine.base_lr - cosine.min_lr) * (1.0 + libm::cos(PI * part(t, end))) / 2.0
            }),
            Self::GuideCosine(guide) => clock.guide(guide),
            Self::Poly(poly) => clock.warm(poly.warmup.as_ref(), poly.base_lr).unwrap_or_else(|| {
                let (t, end) = clock.decay(poly.per, poly.t_max, poly.warmup.as_ref());
                poly.min_lr + (poly.base_lr - poly.min_lr) * libm::pow(1.0 - part(t, end), poly.power)
            }),
            Self::Log(log) => clock.warm(log.warmup.as_ref(), log.base_lr).unwrap_or_else(|| {
                let (t, end) = clock.decay(log.per, TMax::AfterWarmup, log.warmup.as_ref());
                log.base_lr * libm::pow(log.end_lr / log.base_lr, part(t, end - 1.0))
            }),
            Self::Step(decay) => clock.warm(decay.warmup.as_ref(), decay.base_lr).unwrap_or_else(|| clock.drops(decay)),
        }
    }

    /// The highest learning rate that the schedule is built around.
    pub fn peak_lr(&self) -> f64 {
        match self {
            Self::Constant(constant) => constant.base_lr,
            Self::Cosine(cosine) => cosine.base_lr,
            Self::GuideCosine(guide) => guide.lr_max,
            Self::Poly(poly) => poly.base_lr,
            Self::Log(log) => log.base_lr,
            Self::Step(decay) => decay.base_lr,
        }
    }

    /// The rise at the beginning; the guide's formula has its own.
    pub fn warmup(&self) -> Option<&Warmup> {
        match self {
            Self::Constant(constant) => constant.warmup.as_ref(),
            Self::Cosine(cosine) => cosine.warmup.as_ref(),
            Self::GuideCosine(_) => None,
            Self::Poly(poly) => poly.warmup.as_ref(),
            Self::Log(log) => log.warmup.as_ref(),
            Self::Step(decay) => decay.warmup.as_ref(),
        }
    }
}

/// t/T within the decay; a decay without length is at its end.
fn part(t: f64, end: f64) -> f64 {
    if end <= 0.0 { 1.0 } else { (t / end).clamp(0.0, 1.0) }
}

/// A moment of a training.
#[derive(Clone, Copy)]
struct Clock {
    step: usize,
    steps_per_epoch: usize,
    epochs: usize,
}

impl Clock {
    fn epoch(self) -> usize {
        self.step / self.steps_per_epoch
    }

    fn total(self) -> usize {
        self.epochs * self.steps_per_epoch
    }

    /// The learning rate, if this is in the warm-up.
    fn warm(self, warmup: Option<&Warmup>, base: f64) -> Option<f64> {
        let warmup = warmup?;
        let length = warmup.over.steps(self.steps_per_epoch);
        if self.step as u64 >= length {
            return None;
        }
        let (i, n) = match warmup.per {
            Per::Step => (self.step as f64, length as f64),
            Per::Epoch => (self.epoch() as f64, length as f64 / self.steps_per_epoch as f64),
        };
        let way = match warmup.count {
            WarmupCount::FromZero => i / n,
            WarmupCount::FromOne => (i + 1.0) / n,
        };
        let start = warmup.start_lr;
        Some(match warmup.shape {
            WarmupShape::Linear => start + (base - start) * way,
            WarmupShape::Geometric => start * libm::pow(base / start, way),
        })
    }

    /// t and T of a decay.
    fn decay(self, per: Per, t_max: TMax, warmup: Option<&Warmup>) -> (f64, f64) {
        let warm_steps = warmup.map_or(0, |warmup| warmup.over.steps(self.steps_per_epoch)) as f64;
        let (t, total, warm) = match per {
            Per::Step => (self.step as f64, self.total() as f64, warm_steps),
            Per::Epoch => (self.epoch() as f64, self.epochs as f64, warm_steps / self.steps_per_epoch as f64),
        };
        match t_max {
            TMax::AfterWarmup => (t - warm, total - warm),
            TMax::All => (t, total),
            TMax::AllPlusOne => (t, total + 1.0),
        }
    }

    fn guide(self, guide: &GuideCosine) -> f64 {
        let (i, total) = (self.step.min(self.total()) as f64, self.total() as f64);
        let warm = guide.warmup.steps(self.steps_per_epoch) as f64;
        if i < warm {
            return guide.lr_init + (guide.lr_max - guide.lr_init) / warm * (i + 1.0);
        }
        let length = (total - warm).max(1.0);
        let linear = (total - i) / length;
        let cosine = 0.5 * (1.0 + libm::cos(PI * 2.0 * 0.47 * i / length));
        guide.lr_max * (linear * cosine + 0.00001)
    }

    fn drops(self, decay: &StepDecay) -> f64 {
        let every = decay.every.steps(self.steps_per_epoch).max(1);
        let drops = self.step as u64 / every;
        decay.base_lr * decay.gamma.powi(drops.min(i32::MAX as u64) as i32)
    }
}
